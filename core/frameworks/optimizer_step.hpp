// The step of an optimizer of torch.optim, torchao or bitsandbytes: state that its first call allocates,
// temporary tensors, and gradients that are freed.
#pragma once
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/frameworks/step_settings.hpp"

namespace trainhost::frameworks {

/// optimizer.step() and zero_grad(set_to_none=True).
class OptimizerStep {
 public:
  /// All arguments must outlive it. trained: the tensors that the optimizer updates.
  OptimizerStep(Tape& tape, const StepSettings& settings, const std::vector<Tensor>& trained)
      : t_(tape), s_(settings), trained_(trained) {}

  /// The step of all parameters, after the gradients of torchtune are divided by the number of tokens.
  void run();
  /// The step of one parameter, when its gradient is complete.
  void run(const Tensor& p) { run(std::span(&p, 1)); }

 private:
  void run(std::span<const Tensor> parameters);
  /// AdamW8bit of torchao, or AdamW8bit, PagedAdamW8bit and PagedAdamW of bitsandbytes: moments of one byte
  /// with a scale per 256 elements; those of fewer than 4,096 elements are not rounded. Paged moments, of
  /// 100,000 elements or more, are memory of the driver, which moves them to the host.
  void run_8bit_or_paged(std::span<const Tensor> parameters);
  /// The compiled step of torchao for one parameter: one kernel.
  void run_compiled_8bit(const Tensor& p);
  Tensor moment(const Tensor& p, Element type, const Shape& shape, Purpose purpose, const char* tensor);
  Tensor like(const Tensor& p, const Shape& shape, Purpose purpose, const char* tensor);

  Tape& t_;
  const StepSettings& s_;
  const std::vector<Tensor>& trained_;
  std::vector<Tensor> state_;
  bool has_tables_ = false;                                // of 8-bit moments of bitsandbytes
  std::set<const TensorBody*> updated_;                    // that have their state
  std::set<std::pair<std::int64_t, std::int64_t>> tuned_;  // sizes that the compiled step was tuned for
};

}  // namespace trainhost::frameworks
