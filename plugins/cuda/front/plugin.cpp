// Front end of the CUDA trainer: manifest, traits, probe, plan, and name and memory of devices, none of which
// needs the CUDA toolkit or creates a CUDA context. create() loads the engine (plugins/cuda/engine); calls on
// an instance are forwarded to it unchanged.
#include <cstdio>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/front/cuda_options.hpp"
#include "plugins/cuda/front/device_checks.hpp"
#include "plugins/cuda/front/load_engine.hpp"

TH_MANIFEST(
    "id = \"cuda\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32, TF32 or bf16 on one NVIDIA GPU, with cuBLAS and own kernels\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "device = \"cuda\"\n"
    "options = [\"mode\", \"device\", \"attention\"]\n"
    "priority = 10\n");

// Defined by CMake if an engine is built. Without one require_engine_built() throws before they are used.
#ifndef TRAINHOST_CUDA_ARCHITECTURES
#define TRAINHOST_CUDA_ARCHITECTURES ""
#define TRAINHOST_CUDA_MAJOR 0
#endif

namespace trainhost::cuda {
namespace {

constexpr EngineBuild kBuild = {TRAINHOST_CUDA_ARCHITECTURES, TRAINHOST_CUDA_MAJOR};

/// The device of the run file (plugin.cuda.device), else the one that the host asks for.
int device_index(const th_host* host, std::int32_t asked) {
  const int chosen = options_of(host).device;
  return chosen >= 0 ? chosen : asked;
}

struct FrontEnd {
  // Options are checked first: an invalid value is an error on every machine, not a reason to fall back to
  // another backend. The engine is loaded last, because that is the most expensive check.
  static std::uint32_t probe(const th_host* host) {
    const int index = device_index(host, 0);
    require_engine_built();
    std::size_t count = 0;
    require_usable(device_of(index, kBuild, &count), kBuild);
    engine();
    return static_cast<std::uint32_t>(count);
  }
  static executor::Choice choose(const th_host* host, const ModelSpec& model, const RunSpec& run) {
    require_supported(run);
    const Options o = options_of(host);
    return cuda::choose(model, run, o.mode, host ? host->thread_budget : 0,
                        choose_attention(model, run, o.attention.c_str()));
  }
};

/// For ForwardCalls: checks the device and loads the engine before create() is forwarded.
struct EngineAccess {
  static const plugins::EngineTable& loaded() { return loaded_engine(); }
  static std::int32_t open(const th_host* host, std::int32_t device) {
    const int index = device_index(host, device);
    require_usable(device_of(index, kBuild), kBuild);
    engine();
    return index;
  }
};

th_status memory(const th_host* host, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes,
                 th_error* error) {
  return abi::guard(error, [&] {
    require_engine_built();
    const Device d = device_of(device_index(host, device), kBuild);
    if (free_bytes) *free_bytes = free_bytes_of(d);
    if (total_bytes) *total_bytes = d.total_bytes;
  });
}

th_status name(const th_host* host, int32_t device, char* text, uint32_t text_bytes, th_error* error) {
  return abi::guard(error, [&] {
    require_engine_built();
    const Device d = device_of(device_index(host, device), kBuild);
    if (text_bytes) std::snprintf(text, text_bytes, "%s", d.name.c_str());
  });
}

const th_device kDevice = {sizeof(th_device), 0, memory, name};
using Calls = executor::FrontCalls<FrontEnd>;
using Forward = plugins::ForwardCalls<EngineAccess>;

const void* get(const char* interface_id) {
  return th::pick(interface_id, &executor::kTrainerTable<Calls, Forward>, &executor::kGenerateTable<Forward>,
                  &executor::kProfilerTable<Calls, Forward>, &kDevice);
}

const th_plugin kPlugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, kId,
                           kVersion,          nullptr,      nullptr,      get};

}  // namespace
}  // namespace trainhost::cuda

extern "C" const th_plugin* TH_ENTRY(void) { return &trainhost::cuda::kPlugin; }
