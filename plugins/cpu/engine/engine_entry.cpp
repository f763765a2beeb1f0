// Exports the engine's table to the front end (plugins/common/engine_table.hpp): the functions of
// core/executor for runs with the CPU backend. Logs the kernels that were selected. Next: cpu_backend.cpp.
#include "core/executor/calls.hpp"
#include "core/executor/trainer_run.hpp"
#include "core/process/cpu_topology.hpp"
#include "plugins/common/engine_table.hpp"
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/engine/cpu_backend.hpp"
#include "plugins/cpu/engine/decoder.hpp"
#include "plugins/cpu/engine/openblas.hpp"

namespace trainhost::cpu {
namespace {

struct RunFactory {
  static std::unique_ptr<executor::Run> create(const th_host* host, std::int32_t, const ModelSpec& model,
                                               const RunSpec& run) {
    require_supported(run);
    openblas_single_threaded();
    const Bf16Kernels* bf16 = nullptr;
    bool stored = false;
    auto made = std::make_unique<executor::Run>(
        host, model, run, traits_of(model, run, host->thread_budget),
        [&](const step::Program& program, Storage& storage) {
          auto backend =
              std::make_unique<CpuBackend>(program, storage, select_kernels(), &select_bf16_kernels());
          if (spans_nodes(cpu_places("/", process_cpus()))) backend->divide_state();
          bf16 = backend->context().bf16, stored = backend->context().stores_bf16();
          return backend;
        });
    if (host->log) log_kernels(host, made->info("kernel_set"), bf16, stored);
    return made;
  }

  static void log_kernels(const th_host* host, const char* kernel_set, const Bf16Kernels* bf16, bool stored) {
    host->log(host, TH_LOG_DEBUG, kId, (std::string("kernels: ") + kernel_set).c_str());
    // Measured: docs/measurements.md, "Training speed".
    if (bf16 && !bf16->native)
      host->log(host, TH_LOG_WARN, kId,
                stored ? "precision = \"bf16\" is up to a fifth slower than fp32 on this CPU, which has no "
                         "fast bf16 instructions (AMX, or AVX512_BF16 of AMD); it halves the memory of the "
                         "activations"
                       : "precision = \"bf16\" is slower than fp32 on this CPU, which has no fast bf16 "
                         "instructions (AMX, or AVX512_BF16 of AMD), and saves no memory in this run");
    if (const std::string best = best_core_type(); !best.empty() && openblas_core() != best)
      host->log(
          host, TH_LOG_WARN, kId,
          ("OpenBLAS uses its " + openblas_core() + " kernels, although this CPU supports " + best).c_str());
  }
};

using Calls = executor::InstanceCalls<executor::Run, RunFactory>;
const plugins::EngineTable kTable = plugins::engine_table<Calls>(nullptr, &kDecodeTable);

}  // namespace
}  // namespace trainhost::cpu

extern "C" __attribute__((visibility("default"))) const trainhost::plugins::EngineTable*
trainhost_cpu_engine() {
  return &trainhost::cpu::kTable;
}
