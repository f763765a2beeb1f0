// A model as training_step() runs it: its weights, and the forward pass of one micro-batch. Models:
// decoder*.hpp; backward pass and optimizer: training_step.hpp.
#pragma once
#include <memory>
#include <vector>

#include "core/frameworks/sharding/fsdp.hpp"
#include "core/frameworks/sharding/zero3.hpp"

namespace trainhost::frameworks {

class StepModel {
 public:
  virtual ~StepModel() = default;
  /// The forward pass of one micro-batch; f32 scalar.
  virtual Tensor loss() = 0;
  /// The function of the training loop that ran the backward pass returns.
  virtual void after_backward() {}
  /// What the optimizer updates.
  const std::vector<Tensor>& trained() const { return trained_; }
  /// None on one device.
  ShardedUnits* fsdp() { return fsdp_.get(); }
  /// Only with stage 3 of ZeRO.
  Zero3* zero3() { return zero3_.get(); }

 protected:
  std::unique_ptr<ShardedUnits> fsdp_;
  std::unique_ptr<Zero3> zero3_;
  std::vector<Tensor> trained_;
};

/// A model of which training_step() may run one pipeline stage.
class StageModel : public StepModel {
 public:
  /// The loss: in the last stage.
  struct Pass {
    Tensor output, loss;
  };
  /// input: of the stage; none for the first.
  virtual Pass pass(const Tensor& input) = 0;
  /// Activations between two stages.
  virtual Shape boundary() const = 0;
  virtual Element boundary_type() const = 0;
};

}  // namespace trainhost::frameworks
