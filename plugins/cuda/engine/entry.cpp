// The engine's table for the front. create() refuses until the executor stands: the front, the build and the host around
// them are complete without it.
#include "core/bridge/guard.hpp"
#include "plugins/cuda/common/engine_abi.hpp"
#include "trainhost/trainhost.hpp"

namespace trainhost::cuda {
namespace {

th_status create(const th_host*, int32_t, const th_model*, const th_run*, th_trainer_inst**, th_error* error) {
  return bridge::guard(error, [] { throw bridge::StatusError(TH_E_UNSUPPORTED, "the cuda engine is being built"); });
}
void destroy(th_trainer_inst*) {}

const th_trainer kTrainer = {sizeof(th_trainer), 0, nullptr, nullptr, nullptr, create, nullptr, nullptr,
                             nullptr, nullptr, nullptr, nullptr, nullptr, destroy};
const th_generate kGenerate = {sizeof(th_generate), 0, nullptr};
const th_profiler kProfiler = {sizeof(th_profiler), 0, nullptr, nullptr, nullptr, nullptr};
const EngineTable kTable = {kEngineAbi, &kTrainer, &kGenerate, &kProfiler};

}  // namespace
}  // namespace trainhost::cuda

extern "C" __attribute__((visibility("default"))) const trainhost::cuda::EngineTable* trainhost_cuda_engine() {
  return &trainhost::cuda::kTable;
}
