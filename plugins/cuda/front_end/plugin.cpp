// Front end of the CUDA trainer: manifest, traits, probe, plan, and name and memory of devices, none of which
// needs the CUDA toolkit or creates a CUDA context. create() loads the engine (plugins/cuda/engine); calls on
// an instance are forwarded to it unchanged.
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/common/nccl_library.hpp"
#include "plugins/cuda/front_end/cuda_driver.hpp"
#include "plugins/cuda/front_end/cuda_options.hpp"
#include "plugins/cuda/front_end/device_checks.hpp"
#include "plugins/cuda/front_end/load_engine.hpp"
#include "plugins/cuda/front_end/nvml.hpp"
#include "trainhost/communicator.h"

TH_MANIFEST(
    "id = \"cuda\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32, TF32 or bf16 on one NVIDIA GPU, with cuBLAS and own kernels\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "modes = [\"full\", \"inference\", \"lora\", \"qlora\", \"dora\"]\n"
    "device = \"cuda\"\n"
    "options = [\"mode\", \"device\", \"attention\", \"products\", \"multiprocessors\"]\n"
    "priority = 10\n");

namespace trainhost::cuda {
namespace {

/// The ranks of the run that the host trains; null for one process.
const th_ranks* ranks_of(const th_host* host) {
  return host && host->extension ? static_cast<const th_ranks*>(host->extension(host, TH_RANKS_ID)) : nullptr;
}

/// The device of the run file (plugin.cuda.device), else the one that the host asks for. Of several ranks
/// each has the device of its number on this machine; where there are fewer devices, some ranks get the same
/// one, which is found when the run is created (a launcher may also show each rank a device of its own,
/// number 0).
int device_index(const th_host* host, std::int32_t asked) {
  const int chosen = options_of(host).device;
  if (chosen >= 0) return chosen;
  const th_ranks* ranks = ranks_of(host);
  if (!ranks || ranks->local_rank == 0) return asked;
  try {
    const std::size_t count = query_driver().devices.size();
    return count ? static_cast<int>((static_cast<std::size_t>(asked) + ranks->local_rank) % count) : asked;
  } catch (const abi::StatusError&) {  // no driver: no device is used
    return asked;
  }
}

/// "NCCL 2.27.3", or why it cannot be used.
std::string nccl_text() {
  try {
    return nccl::library().text();
  } catch (const abi::StatusError& e) {
    return e.what();
  }
}

/// The selected device, if it can be used with `engine`, one of the two functions of load_engine.hpp. The
/// engine is loaded last, because that is the most expensive check.
SelectedDevice usable_device(int index, Engine& engine, Engine (*select)(int)) {
  require_engine_file();
  SelectedDevice device = device_of(index);
  require_usable(device);
  engine = select(device.driver_version);
  require_code_for(device, engine.table->architectures, engine.file);
  return device;
}

/// Multiprocessors of the device that the run is planned for: of the run file, else of the device of this
/// machine. A plan needs no device, so a machine without one gets the default. The devices are queried once
/// per process.
std::uint32_t multiprocessors(const th_host* host) {
  if (const std::uint32_t n = multiprocessors_option(host)) return n;
  static const std::vector<Device> devices = [] {
    try {
      return query_driver().devices;
    } catch (const abi::StatusError&) {
      return std::vector<Device>();
    }
  }();
  const auto index = static_cast<std::size_t>(device_index(host, 0));
  return index < devices.size() && devices[index].multiprocessors > 0
             ? static_cast<std::uint32_t>(devices[index].multiprocessors)
             : kDefaultMultiprocessors;
}

struct FrontEnd {
  // Options are checked first: an invalid value is an error on every machine, not a reason to fall back to
  // another backend.
  static std::uint32_t probe(const th_host* host) {
    Engine engine;
    if (ranks_of(host)) nccl::library();  // throws if it cannot be used
    const SelectedDevice d = usable_device(device_index(host, 0), engine, select_engine);
    const std::string uuid = uuid_of(d);
    const std::string text = "device " + std::to_string(d.index) + " of " + std::to_string(d.count) + ": " +
                             d.name + (uuid.empty() ? "" : ", " + uuid) + "; engine " + engine.file +
                             (engine.skipped.empty() ? "" : " (" + engine.skipped + ")") + "; " + nccl_text();
    if (host && host->log) host->log(host, TH_LOG_DEBUG, kId, text.c_str());
    return static_cast<std::uint32_t>(d.count);
  }
  static executor::Choice choose(const th_host* host, const ModelSpec& model, const RunSpec& run) {
    require_supported(run);
    const Options o = options_of(host);
    return cuda::choose(model, run, o.mode, host ? host->thread_budget : 0, multiprocessors(host),
                        choose_attention(model, run, o.attention.c_str()));
  }
};

/// What info() answers about the device of an instance, besides the engine's own keys.
struct InstanceFacts {
  std::string device_name, device_uuid;
  const char* engine = "";
};
std::mutex g_facts_mutex;  // of both maps
std::map<th_trainer_inst*, InstanceFacts> g_facts;
// From open() to the end of create(), which are on one thread. No thread-local variable: see cuda_traits.cpp.
std::map<std::thread::id, InstanceFacts> g_facts_of_create;

/// For ForwardCalls: checks the device and loads the engine before create() is forwarded.
struct EngineAccess {
  static const plugins::EngineTable& loaded() { return loaded_engine(); }
  static std::int32_t open(const th_host* host, std::int32_t device) {
    Engine engine;
    const SelectedDevice d = usable_device(device_index(host, device), engine, select_engine_for_runs);
    InstanceFacts facts{d.name, uuid_of(d), engine.file};
    const std::lock_guard lock(g_facts_mutex);
    g_facts_of_create[std::this_thread::get_id()] = std::move(facts);
    return d.index;
  }
};

/// Forwards to the engine, and answers what only the front end knows: the UUID comes from driver and NVML.
struct Forward : plugins::ForwardCalls<EngineAccess> {
  using Base = plugins::ForwardCalls<EngineAccess>;
  static th_status create(const th_host* host, std::int32_t device, const th_model* model, const th_run* run,
                          th_trainer_inst** out, th_error* error) {
    const th_status s = Base::create(host, device, model, run, out, error);
    std::lock_guard lock(g_facts_mutex);
    const auto facts = g_facts_of_create.find(std::this_thread::get_id());
    if (facts == g_facts_of_create.end()) return s;  // open() failed
    if (s == TH_OK) g_facts[*out] = std::move(facts->second);
    g_facts_of_create.erase(facts);
    return s;
  }
  static const char* info(th_trainer_inst* i, const char* key) {
    if (const char* text = Base::info(i, key)) return text;
    std::lock_guard lock(g_facts_mutex);
    const auto facts = g_facts.find(i);
    if (!key || facts == g_facts.end()) return nullptr;
    const std::string_view asked = key;
    if (asked == "device_name") return facts->second.device_name.c_str();
    if (asked == "device_uuid") return facts->second.device_uuid.c_str();
    return asked == "engine" ? facts->second.engine : nullptr;
  }
  static void destroy(th_trainer_inst* i) {
    {  // first: another thread may get the same address from create() as soon as it is free
      std::lock_guard lock(g_facts_mutex);
      g_facts.erase(i);
    }
    Base::destroy(i);
  }
};

th_status memory(const th_host* host, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes,
                 th_error* error) {
  return abi::guard(error, [&] {
    require_engine_file();
    const Device d = device_of(device_index(host, device));
    if (free_bytes) *free_bytes = free_bytes_of(d);
    if (total_bytes) *total_bytes = d.total_bytes;
  });
}

th_status name(const th_host* host, int32_t device, char* text, uint32_t text_bytes, th_error* error) {
  return abi::guard(error, [&] {
    require_engine_file();
    const Device d = device_of(device_index(host, device));
    if (text_bytes) std::snprintf(text, text_bytes, "%s", d.name.c_str());
  });
}

const th_device kDevice = {sizeof(th_device), 0, memory, name};
using Calls = executor::FrontCalls<FrontEnd>;

const void* get(const char* interface_id) {
  return th::pick(interface_id, &executor::kTrainerTable<Calls, Forward>, &executor::kGenerateTable<Forward>,
                  &executor::kProfilerTable<Calls, Forward>, &kDevice);
}

const th_plugin kPlugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, kId,
                           kVersion,          nullptr,      nullptr,      get};

}  // namespace
}  // namespace trainhost::cuda

extern "C" const th_plugin* TH_ENTRY(void) { return &trainhost::cuda::kPlugin; }
