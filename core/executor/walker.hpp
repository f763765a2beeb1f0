// Walks a step program: one update, one evaluation, one generated token. Knows sections and scalars, not
// shapes; what an operation does is the backend's. Allocates nothing after construction. Works on any
// Storage.
#pragma once
#include <cstdint>
#include <functional>

#include "core/executor/backend.hpp"
#include "core/executor/operation_timer.hpp"
#include "core/executor/update_result.hpp"

namespace trainhost::executor {

class Walker {
 public:
  /// `program`, `storage` and `backend` must outlive it. Fills the tables that the program reads (rotary
  /// angles).
  Walker(const step::Program& program, Storage& storage, Backend& backend);

  /// One optimizer update. `cancelled` is asked between operations until the gradients are complete. Not
  /// kDone: no weight and no moment has changed.
  Outcome update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out);

  /// Mean loss over the counted targets of `sequences` <= micro_batch sequences. Changes no weight.
  Outcome evaluate(const std::int32_t* tokens, const std::int32_t* targets, std::uint32_t sequences,
                   const std::function<bool()>& cancelled, UpdateResult& out);

  /// Logits [vocab] of the token after `token` at `position`.
  void next_logits(std::int32_t token, std::uint32_t position, float* logits);

  /// Did a backend throw while it changed weights? Then they are neither the old ones nor the new ones.
  bool half_updated() const { return half_updated_; }

  /// Times the operations of update() from now on; nullptr: no more. `log` must outlive that.
  void watch(OpLog* log) { log_ = log; }

 private:
  bool run(step::Section section, const std::function<bool()>& cancelled, OpLog* log = nullptr);
  void fill_rope_tables();
  double* scalars() { return storage_.f64(scalars_); }

  const step::Program& program_;
  Storage& storage_;
  Backend& backend_;
  const step::BufferId scalars_;
  StepState step_;
  OpLog* log_ = nullptr;
  bool half_updated_ = false;
};

/// Targets that are counted (not -100).
std::uint64_t counted_targets(const std::int32_t* targets, std::uint64_t n);

}  // namespace trainhost::executor
