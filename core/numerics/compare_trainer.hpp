// Compares a trainer with the reference in double (reference_loss.hpp) on one sample run: losses, gradients,
// optimizer updates and logits of generation. `plugins check` and `verify` reach the trainer in different
// ways and judge it by these functions.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/numerics/sample_runs.hpp"

namespace trainhost::numerics {

struct StepResult {
  double loss = 0, grad_norm = 0;
};

/// One run of the trainer, created for a model and ready for steps. Functions throw what their implementation
/// throws.
class ComparedRun {
 public:
  virtual ~ComparedRun() = default;
  virtual void load(const Tensors& weights) = 0;
  virtual Tensors save() = 0;
  virtual StepResult step(const Batch& batch, double lr, std::uint64_t index) = 0;
  virtual double evaluate(const Batch& micro_batch) = 0;
  virtual bool can_generate() const = 0;
  virtual std::vector<float> next_logits(std::int32_t token, std::uint32_t position) = 0;
};

class ComparedTrainer {
 public:
  virtual ~ComparedTrainer() = default;
  /// nullptr, with the reason in refusal(), if the trainer does not support the run.
  virtual std::unique_ptr<ComparedRun> create(const ModelSpec& m, const RunSpec& run) = 0;
  virtual const std::string& refusal() const = 0;
};

/// The largest difference that was found. `error` is in units of the tolerance: above 1 the trainer is wrong.
/// NaN counts as infinite.
struct Difference {
  double error = 0;
  std::string where;  // "the loss of an evaluation is 3.412; the reference has 3.424"
  bool too_large() const { return error > 1; }
};

/// Each function stops at the first difference that is too large; `done` is false if the trainer refused.
struct Comparison {
  bool done = false;
  std::string refusal;  // the trainer's reason
  Difference largest;
};

/// Losses of an evaluation and of a training step.
Comparison compare_losses(ComparedTrainer& trainer, const SampleRun& sample, std::uint64_t seed);

/// The gradient, observed as the difference that SGD with learning rate 1 makes, with derivatives of the
/// reference along random directions of every tensor; and the reported gradient norm.
Comparison compare_gradients(ComparedTrainer& trainer, const SampleRun& sample, std::uint64_t seed);

/// Updates of SGD, SGD with momentum and AdamW, clipped and with weight decay, with their definitions in
/// double.
Comparison compare_updates(ComparedTrainer& trainer, const SampleRun& sample, std::uint64_t seed);

/// Logits of a text that is generated token by token. Refused by a trainer that cannot generate.
Comparison compare_generation(ComparedTrainer& trainer, const SampleRun& sample, std::uint64_t seed);

}  // namespace trainhost::numerics
