// Front end of the CPU trainer: manifest, traits, probe and plan, none of which needs OpenBLAS. create()
// loads the engine (plugins/cpu/engine); calls on an instance are forwarded to it.
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/front/load_engine.hpp"

TH_MANIFEST(
    "id = \"cpu\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32 or bf16 on all CPU cores, with OpenBLAS and own kernels\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "device = \"cpu\"\n"
    "options = []\n"
    "priority = 0\n");

namespace trainhost::cpu {
namespace {

struct FrontEnd {
  static std::uint32_t probe(const th_host* host) {
    engine(host);  // throws if OpenBLAS is missing
    return 1;      // one device: all cores
  }
  static executor::Choice choose(const th_host* host, const ModelSpec& model, const RunSpec& run) {
    require_supported(run);
    return {traits_of(model, run, host ? host->thread_budget : 0), ""};
  }
};

/// For ForwardCalls: loads the engine before create() is forwarded.
struct EngineAccess {
  static const plugins::EngineTable& loaded() { return loaded_engine(); }
  static std::int32_t open(const th_host* host, std::int32_t device) {
    if (device != 0)
      throw abi::StatusError(TH_E_ARG, "device " + std::to_string(device) +
                                           " does not exist: the cpu trainer has only device 0");
    engine(host);
    return device;
  }
};

using Calls = executor::FrontCalls<FrontEnd>;
using Forward = plugins::ForwardCalls<EngineAccess>;

}  // namespace
}  // namespace trainhost::cpu

namespace {
using trainhost::cpu::Calls;
using trainhost::cpu::Forward;
}  // namespace
TH_PLUGIN("cpu", "0.1.0", &trainhost::executor::kTrainerTable<Calls, Forward>,
          &trainhost::executor::kGenerateTable<Forward>, &trainhost::executor::kProfilerTable<Calls, Forward>)
