// Exports the engine's table to the front end (plugins/common/engine_table.hpp): the functions of
// core/executor with Instance as the object of a run. Checks that the run is supported and chooses the memory
// mode.
#include <memory>
#include <string>

#include "plugins/common/engine_table.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/instance.hpp"

namespace trainhost::cuda {
namespace {

/// As in the front end: the option, else those of the device.
std::uint32_t multiprocessors(const th_host* host, int device) {
  if (const std::uint32_t n = host->option ? multiprocessors_option(host) : 0) return n;
  int n = 0;
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "querying the multiprocessors");
  return static_cast<std::uint32_t>(n);
}

struct InstanceFactory {
  static std::unique_ptr<Instance> create(const th_host* host, std::int32_t device, const ModelSpec& model,
                                          const RunSpec& run) {
    require_supported(run);
    const char* mode = host->option ? host->option(host, "mode") : nullptr;
    const Attention attention =
        choose_attention(model, run, host->option ? host->option(host, "attention") : nullptr);
    // The same pure function of the same arguments as in the front end's plan(), so both get the same traits.
    const Choice choice = choose(model, run, mode ? mode : "auto", host->thread_budget,
                                 multiprocessors(host, device), attention);
    if (!choice.why.empty() && host->log) host->log(host, TH_LOG_INFO, kId, choice.why.c_str());
    auto made = std::make_unique<Instance>(host, device, model, run, choice.traits, attention);
    if (host->log)
      host->log(host, TH_LOG_DEBUG, kId, (std::string("kernels: ") + made->info("kernel_set")).c_str());
    return made;
  }
};

const plugins::EngineTable kTable =
    plugins::engine_table<executor::InstanceCalls<Instance, InstanceFactory>>(TRAINHOST_CUDA_ARCHITECTURES);

}  // namespace
}  // namespace trainhost::cuda

extern "C" __attribute__((visibility("default"))) const trainhost::plugins::EngineTable*
trainhost_cuda_engine() {
  return &trainhost::cuda::kTable;
}
