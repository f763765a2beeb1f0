// Walks a step program: one update, one evaluation, one generated token. Knows sections and scalars, not shapes; the
// operations are in ops_*.cpp. Allocates nothing after construction. Works on any Storage.
#pragma once
#include <cstdint>
#include <functional>

#include "plugins/cpu/engine/exec.hpp"
#include "plugins/cpu/engine/op_log.hpp"

namespace trainhost::cpu {

struct UpdateInput {
  const std::int32_t *tokens, *targets;  // accumulate * micro_batch * seq each
  double lr;
  std::uint64_t step_index;
};
struct UpdateResult {
  double loss = 0.0, grad_norm = 0.0;
  std::uint64_t counted = 0;
};
enum class Outcome { kDone, kCancelled, kNonFinite };

class Executor {
 public:
  /// `program`, `storage` and `pool` must outlive it. Fills the tables that the program reads (rotary angles).
  /// bf16: how products are computed when the run's arithmetic is bf16; not used otherwise.
  Executor(const plan::Program& program, Storage& storage, Pool& pool, const Kernels& kernels, const Bf16Kernels* bf16 = nullptr);

  /// One optimizer update. `cancelled` is asked between operations until the gradients are complete. Not kDone: no
  /// weight and no moment has changed.
  Outcome update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out);

  /// Mean loss over the counted targets of `sequences` <= micro_batch sequences. Changes no weight.
  Outcome evaluate(const std::int32_t* tokens, const std::int32_t* targets, std::uint32_t sequences,
                   const std::function<bool()>& cancelled, UpdateResult& out);

  /// Logits [vocab] of the token after `token` at `position`.
  void next_logits(std::int32_t token, std::uint32_t position, float* logits);

  /// Times the operations of update() from now on; nullptr: no more. `log` must outlive that.
  void watch(OpLog* log) { log_ = log; }

  Exec& exec() { return exec_; }

 private:
  bool run(plan::Section section, const std::function<bool()>& cancelled, OpLog* log = nullptr);
  void fill_rope_tables();
  double* scalars();

  Exec exec_;
  plan::BufferId scalars_ = plan::kNoBuffer;
  OpLog* log_ = nullptr;
};

/// Targets that are counted (not -100).
std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n);

}  // namespace trainhost::cpu
