// CheckpointWithoutOutput of Megatron Core: a region that runs without autograd and whose outputs are freed
// when what reads them has run. A hook of that consumer's output computes the region again, with autograd,
// and copies the outputs back into their storages; the region's own backward pass follows when its turn
// comes.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

class OutputCheckpoint {
 public:
  using Region = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

  /// Runs `region` and keeps `inputs`.
  OutputCheckpoint(Tape& tape, const std::vector<Tensor>& inputs, Region region);
  /// Of the region, with history. A caller moves or drops them before discard().
  const std::vector<Tensor>& outputs() const { return outputs_; }
  /// Frees the memory of the outputs. They are recomputed when the gradient of `consumer` is known; none
  /// where nothing needs a gradient.
  void discard(const Tensor& consumer);

 private:
  struct State;
  Tape& t_;
  std::vector<Tensor> outputs_;
  std::shared_ptr<State> state_;
};

}  // namespace trainhost::frameworks
