// Front end of the CPU trainer: manifest, traits, probe and plan, none of which needs OpenBLAS. probe() and
// create() load the engine (plugins/cpu/engine), ../engines/cpu-openblas.so, with the kernels of OpenBLAS
// that core_type.hpp chooses; calls on an instance are forwarded to it. Finding the file is shared with the
// CUDA trainer: plugins/common/engine_loader.hpp.
#include <dlfcn.h>

#include "plugins/common/engine_loader.hpp"
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/front_end/core_type.hpp"

TH_MANIFEST(
    "id = \"cpu\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32 or bf16 on all CPU cores, with OpenBLAS and own kernels\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "modes = [\"full\", \"inference\", \"lora\", \"qlora\", \"dora\"]\n"
    "device = \"cpu\"\n"
    "options = []\n"
    "priority = 0\n");

namespace trainhost::cpu {
namespace {

plugins::EngineLoader& loader() {
  // The loader's own address: dladdr() maps it to the file of the plugin.
  static plugins::EngineLoader instance({kId, "cpu-openblas.so", "trainhost_cpu_engine",
                                         "rebuild with OpenBLAS installed",
                                         reinterpret_cast<const void*>(&loader)});
  return instance;
}

/// Loads the engine on the first call. Errors: abi::StatusError (TH_E_UNAVAILABLE) if the file or OpenBLAS is
/// missing, the file is from another build, or the processor is older than x86-64-v2, for which the kernels
/// are compiled at least; the next call tries again. Thread-safe.
void load_engine(const th_host* host) {
  loader().table([&](const std::filesystem::path& path) {
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt"))
      plugins::unavailable("the processor has no SSE4.2 and POPCNT (x86-64-v2), which the kernels need",
                           "let the virtual machine pass the features of its host, or use a newer CPU");
    const CoreChoice choice = choose_core(best_core_type(), environment("OPENBLAS_CORETYPE"),
                                          environment("TRAINHOST_HONOUR_CORETYPE").value_or("") == "1");
    if (!choice.note.empty() && host && host->log) host->log(host, TH_LOG_INFO, kId, choice.note.c_str());
    // OpenBLAS reads its environment variables only while it is loaded.
    OpenBlasEnvironment during_load(choice.core);
    // A missing symbol is an error here, not a crash later, and OpenBLAS's symbols are not visible to other
    // libraries.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      plugins::unavailable(why ? why : "dlopen failed", "install OpenBLAS (libopenblas0-pthread)");
    }
    return library;
  });
}

struct FrontEnd {
  static std::uint32_t probe(const th_host* host) {
    load_engine(host);  // throws if OpenBLAS is missing
    return 1;           // one device: all cores
  }
  static executor::Choice choose(const th_host* host, const ModelSpec& model, const RunSpec& run) {
    require_supported(run);
    return {traits_of(model, run, host ? host->thread_budget : 0), ""};
  }
};

/// For ForwardCalls: loads the engine before create() is forwarded. Every other call is on an instance, so
/// the engine is loaded then.
struct EngineAccess {
  static const plugins::EngineTable& loaded() { return loader().loaded(); }
  static std::int32_t open(const th_host* host, std::int32_t device) {
    if (device != 0)
      throw abi::StatusError(TH_E_ARG, "device " + std::to_string(device) +
                                           " does not exist: the cpu trainer has only device 0");
    load_engine(host);
    return device;
  }
};

/// The functions of the decoder are those of the engine.
th_status open_decoder(const th_host* host, const abi::DecodeTable** table, th_error* error) {
  return executor::guard(error, [&] {
    executor::require(host, "host");
    executor::require(table, "table");
    load_engine(host);
    *table = loader().loaded().decode;
  });
}
constexpr abi::DecodeEntry kDecodeEntry = {abi::kDecodeRevision, 0, open_decoder};

using Calls = executor::FrontCalls<FrontEnd>;
using Forward = plugins::ForwardCalls<EngineAccess>;

}  // namespace
}  // namespace trainhost::cpu

namespace {
using trainhost::cpu::Calls;
using trainhost::cpu::Forward;
using trainhost::cpu::kDecodeEntry;
}  // namespace
TH_PLUGIN("cpu", "0.1.0", &trainhost::executor::kTrainerTable<Calls, Forward>,
          &trainhost::executor::kGenerateTable<Forward>, &trainhost::executor::kProfilerTable<Calls, Forward>,
          &kDecodeEntry)
