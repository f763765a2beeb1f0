// One run of a trainer that executes step programs: plan, arena, tensors and the walk through the program.
// calls.hpp exposes it as C functions. Every argument from the host is checked (host_arguments.hpp) before it
// reaches a kernel. Throws abi::StatusError and trainhost::Error. After an error the run is unchanged, unless
// it occurred while weights were being changed.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/executor/host_ranks.hpp"
#include "core/executor/run_tensors.hpp"
#include "core/executor/walker.hpp"
#include "core/placement/memory_plan.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

/// Creates the backend after the arena has been allocated. Both arguments outlive the backend.
using MakeBackend = std::function<std::unique_ptr<Backend>(const step::Program&, Storage&)>;

class Run {
 public:
  /// Allocates the arena of the program (from `own`, else from the host) and nothing else. host and own must
  /// outlive it. Errors: those of build_program() and ArenaStorage.
  Run(const th_host* host, const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits,
      const MakeBackend& make, Allocator* own = nullptr);

  void load(std::uint32_t scope, const th_tensor& t);
  void init(std::uint64_t seed);
  /// One update or one evaluation. Error TH_E_NONFINITE for a loss or norm that is not finite; then no weight
  /// has changed.
  void step(const th_step& in, th_step_out& out);
  void save(std::uint32_t scope, th_tensor_sink& sink);
  void next(std::int32_t token, std::uint32_t position, float* logits);
  /// One address space: there are no transfers, except to other ranks.
  void counters(th_counters& c) const {
    c.compute_ns = compute_ns_;
    const RankTraffic& t = walker_.ranks().traffic();
    c.communication_bytes = t.bytes, c.communication_wait_ns = t.waited_ns;
  }
  const char* info(std::string_view key) const { return key == "kernel_set" ? kernel_set_.c_str() : nullptr; }
  double metric(std::string_view key);
  /// See th_profiler: `bytes` must be at least record_bytes() of this run.
  void start_profile(void* records, std::uint64_t bytes, th_moments* moments);
  void read_profile(th_op_sink& sink) const;
  void stop_profile();

  Backend& backend() { return *backend_; }
  const step::Program& program() const { return program_; }

 private:
  void require_complete_update() const;

  const th_host* host_;
  step::Program program_;
  placement::MemoryPlan plan_;
  ArenaStorage storage_;
  std::unique_ptr<HostRanks> ranks_;  // null in a run of one process
  std::unique_ptr<Backend> backend_;
  Walker walker_;
  Tensors tensors_;
  std::string kernel_set_;
  std::uint64_t compute_ns_ = 0;
  std::uint32_t next_position_ = 0;      // of generation
  std::optional<OperationTimer> timer_;  // while profiled
};

}  // namespace trainhost::executor
