// Runs a step program section by section: one update, one evaluation, or one generated token. Handles
// sections and scalars; the operations are executed by the backend. Allocates nothing after construction,
// except the text of an error.
#pragma once
#include <cstdint>
#include <functional>

#include "core/executor/backend.hpp"
#include "core/executor/host_arguments.hpp"
#include "core/executor/operation_timer.hpp"
#include "core/executor/rank_operations.hpp"

namespace trainhost::executor {

class Walker {
 public:
  /// `program`, `storage` and `backend` must outlive it, and `ranks`, the communicator of a run on several
  /// ranks. Fills the rotary tables of the program.
  Walker(const step::Program& program, Storage& storage, Backend& backend, Collectives* ranks = nullptr);

  /// One optimizer update. `cancelled` is called between operations until the gradients are complete; with
  /// several ranks before each micro-batch, and all of them stop if one is to. The loss and the norm are
  /// those of all ranks. If the result is not kDone, no weight and no moment has changed. If it is
  /// kNonFinite, the gradients are computed a second time to find the first tensor that is not finite
  /// (UpdateResult::cause).
  Outcome update(const UpdateInput& in, const std::function<bool()>& cancelled, UpdateResult& out);

  /// Mean loss over the counted targets of `sequences` <= micro_batch sequences. Changes no weight.
  Outcome evaluate(const std::int32_t* tokens, const std::int32_t* targets, const std::int32_t* starts,
                   std::uint32_t sequences, const std::function<bool()>& cancelled, UpdateResult& out);

  /// Logits [vocab] of the token after `token` at `position`.
  void next_logits(std::int32_t token, std::uint32_t position, float* logits);

  /// True if the backend threw while changing weights: some are old, some new.
  bool half_updated() const { return half_updated_; }

  RankOperations& ranks() { return ranks_; }
  const RankOperations& ranks() const { return ranks_; }

  /// Times the operations of update() from now on; nullptr: stops. `timer` must outlive that.
  void watch(OperationTimer* timer) { timer_ = timer; }

 private:
  bool run(step::Section section, const std::function<bool()>& cancelled, OperationTimer* timer = nullptr);
  bool skips(const step::Op& op) const;
  bool all_ranks_go_on(const std::function<bool()>& cancelled);
  StepState state_of_micro(const UpdateInput& in, std::uint64_t micro, std::uint64_t counted) const;
  std::string find_nonfinite(const UpdateInput& in, const std::function<bool()>& cancelled,
                             std::uint64_t counted);
  void fill_rope_tables();
  /// Copies the logits of a token, f32 or bf16.
  void copy_logits(step::BufferId from, float* to);
  double* scalars() { return storage_.f64(scalars_); }

  const step::Program& program_;
  Storage& storage_;
  Backend& backend_;
  RankOperations ranks_;
  const step::BufferId scalars_;
  StepState step_;
  OperationTimer* timer_ = nullptr;
  bool half_updated_ = false;
};

}  // namespace trainhost::executor
