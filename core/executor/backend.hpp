// Interface of the component that runs the operations of a step program; one object per run. Order of
// operations, arena, tensors, argument checks and C tables are handled by the rest of this module.
// kernel_backend.hpp implements it for a class of kernels; plugins/cpu implements it directly.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/executor/storage.hpp"
#include "core/step/program.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

/// Inputs of an operation besides its operands. Constant within one micro-batch.
struct StepState {
  const std::int32_t* tokens = nullptr;  // of this micro-batch
  const std::int32_t* targets = nullptr;
  // Index in its sequence of the first token of each token's document; null: a sequence is one document.
  const std::int32_t* starts = nullptr;
  std::uint64_t rows = 0;   // tokens of this micro-batch; fewer than planned only in evaluation
  bool first_micro = true;  // gradients with kFirstWrite are overwritten
  float loss_scale = 1.0f;  // 1 / counted targets of the update
  double lr = 0.0;
  std::uint64_t step_index = 0;  // of the update, from 0
  std::uint32_t position = 0;    // of generate
  std::uint64_t micro = 0;       // micro-batch of the update, from 0

  /// True if the operation must overwrite its gradient instead of adding to it.
  bool overwrite(const step::Op& op) const {
    return (op.flags & step::kFreshGrad) || ((op.flags & step::kFirstWrite) && first_micro);
  }
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Runs one operation, or consecutive operations of one kind if together() is true for it. The addresses of
  /// operands come from the run's Storage.
  virtual void run(std::span<const step::Op> ops, const StepState& step) = 0;
  /// True if consecutive operations of this kind are passed to run() in one call.
  virtual bool together(step::OpKind) const { return false; }

  /// Calls piece(i) for every i in [0, count), in any order, on the backend's threads. Used to initialise
  /// weights.
  virtual void for_each(std::uint32_t count, const std::function<void(std::uint32_t)>& piece) {
    for (std::uint32_t i = 0; i < count; ++i) piece(i);
  }
  /// Everything that the bits of a result depend on: versions, instruction set, libraries.
  virtual std::string kernel_set() const = 0;
  /// FLOP/s of a large matrix product on this machine, measured by this call; 0 = unknown.
  virtual double peak_flops() { return 0.0; }
  /// Sum of the squares of the gradients of a layer in the last update, before clipping; layer -1: of those
  /// outside the layers. Negative = unknown.
  virtual double layer_grad_squares(std::int32_t) const { return -1.0; }
};

}  // namespace trainhost::executor
