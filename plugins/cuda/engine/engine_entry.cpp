// The engine's tables for the front: the skeleton's functions over runs of this trainer's own.
#include <memory>
#include <string>

#include "plugins/common/engine_table.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/engine/instance.hpp"

namespace trainhost::cuda {
namespace {

struct Maker {
  static std::unique_ptr<Instance> create(const th_host* host, std::int32_t device, const ModelSpec& model,
                                          const RunSpec& run) {
    require_supported(run);
    const char* mode = host->option ? host->option(host, "mode") : nullptr;
    const Choice choice = choose(model, run, mode ? mode : "auto", host->thread_budget);
    if (!choice.why.empty() && host->log) host->log(host, TH_LOG_INFO, kId, choice.why.c_str());
    auto made = std::make_unique<Instance>(host, device, model, run, choice.traits);
    if (host->log)
      host->log(host, TH_LOG_DEBUG, kId, (std::string("kernels: ") + made->info("kernel_set")).c_str());
    return made;
  }
};

const plugins::EngineTable kTable = plugins::engine_table<executor::InstanceCalls<Instance, Maker>>();

}  // namespace
}  // namespace trainhost::cuda

extern "C" __attribute__((visibility("default"))) const trainhost::plugins::EngineTable*
trainhost_cuda_engine() {
  return &trainhost::cuda::kTable;
}
