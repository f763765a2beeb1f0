// What a trainer adds to the skeleton: something that runs operations of a step program. One object is one
// run. The order of operations, the arena, tensors, checks and the C tables are the skeleton's; an
// implementation sees one operation after the other and plans nothing. Authors of kernels need not write one:
// kernel_backend.hpp is one.
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

/// What operations need to know of the step besides their operands. Constant within one micro-batch.
struct StepState {
  const std::int32_t* tokens = nullptr;  // of this micro-batch
  const std::int32_t* targets = nullptr;
  std::uint64_t rows = 0;   // tokens of this micro-batch; fewer than planned only in evaluation
  bool first_micro = true;  // gradients with kFirstWrite are overwritten
  float loss_scale = 1.0f;  // 1 / counted targets of the update
  double lr = 0.0;
  std::uint64_t step_index = 0;  // of the update, from 0
  std::uint32_t position = 0;    // of generate

  /// Must this gradient be overwritten, instead of added to?
  bool overwrite(const step::Op& op) const { return (op.flags & step::kFirstWrite) && first_micro; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// Runs one operation, or neighbours of one kind for which together() holds. Operands lie where storage()
  /// says.
  virtual void run(std::span<const step::Op> ops, const StepState& step) = 0;
  /// Are operations of this kind run together with their neighbours?
  virtual bool together(step::OpKind) const { return false; }

  /// Calls piece(i) for every i in [0, count), in any order, on any of the backend's threads: weights are
  /// filled so.
  virtual void for_each(std::uint32_t count, const std::function<void(std::uint32_t)>& piece) {
    for (std::uint32_t i = 0; i < count; ++i) piece(i);
  }
  /// What the bits of a result depend on: versions, instruction set, libraries.
  virtual std::string kernel_set() const = 0;
  /// Flop/s of the machine's own matrix product, measured now; 0 = not known.
  virtual double peak_flops() { return 0.0; }
};

}  // namespace trainhost::executor
