// One training run of a trainer that executes step programs: plan, arena, tensors, the walk, and every check
// of what the host hands in. The C tables over it: calls.hpp. It throws abi::StatusError and
// trainhost::Error, nothing else of its own; after any failure but a half-done change of weights the run is
// as it was before the call.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/executor/run_tensors.hpp"
#include "core/executor/walker.hpp"
#include "core/placement/memory_plan.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

/// Makes what runs the operations, once the arena is there. Both arguments outlive the backend.
using MakeBackend = std::function<std::unique_ptr<Backend>(const step::Program&, Storage&)>;

class Run {
 public:
  /// Takes the arena of the program under `traits` (from `own`, else from the host) and nothing more. host
  /// and own must outlive it. Throws what build_program() and ArenaStorage throw.
  Run(const th_host* host, const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits,
      const MakeBackend& make, Allocator* own = nullptr);

  void load(std::uint32_t scope, const th_tensor& t);
  void init(std::uint64_t seed);
  /// One update or one evaluation. A loss or norm that is not finite: TH_E_NONFINITE, and no weight has
  /// changed.
  void step(const th_step& in, th_step_out& out);
  void save(std::uint32_t scope, th_tensor_sink& sink);
  void next(std::int32_t token, std::uint32_t position, float* logits);
  /// One address space: nothing is ever transferred, so only compute_ns is filled.
  void counters(th_counters& c) const { c.compute_ns = compute_ns_; }
  const char* info(std::string_view key) const { return key == "kernel_set" ? kernel_set_.c_str() : nullptr; }
  double metric(std::string_view key);
  /// See th_profiler: `bytes` must be what record_bytes() says for this run.
  void start_profile(void* records, std::uint64_t bytes, th_moments* moments);
  void read_profile(th_op_sink& sink) const;
  void stop_profile();

  Backend& backend() { return *backend_; }
  const step::Program& program() const { return program_; }

 private:
  void check_ids(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t n) const;
  void check_step(const th_step& in) const;
  void check_whole() const;

  const th_host* host_;
  step::Program program_;
  placement::MemoryPlan plan_;
  ArenaStorage storage_;
  std::unique_ptr<Backend> backend_;
  Walker walker_;
  Tensors tensors_;
  std::string kernel_set_;
  std::uint64_t compute_ns_ = 0;
  std::uint32_t next_position_ = 0;  // of generation
  std::optional<OpLog> log_;         // while profiled
};

}  // namespace trainhost::executor
