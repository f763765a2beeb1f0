// torch.optim's step(): state that its first call allocates, temporary tensors, and gradients that are freed.
#pragma once
#include <vector>

#include "core/frameworks/training_step.hpp"

namespace trainhost::frameworks {

class OptimizerStep {
 public:
  /// All arguments must outlive it. trained: the tensors that the optimizer updates.
  OptimizerStep(Tape& tape, const StepSettings& settings, const std::vector<Tensor>& trained)
      : t_(tape), s_(settings), trained_(trained) {}

  /// optimizer.step() and zero_grad(set_to_none=True).
  void run();

 private:
  Tensor like(const Tensor& p, const Shape& shape, Purpose purpose, const char* tensor);

  Tape& t_;
  const StepSettings& s_;
  const std::vector<Tensor>& trained_;
  std::vector<Tensor> state_;
};

}  // namespace trainhost::frameworks
