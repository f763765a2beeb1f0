// Norms of the gradients of each layer, for TensorBoard. Of several processes each has the gradients of its
// part alone, so all of them measure, at the same steps, and add the squares.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/plugin.hpp"
#include "core/training/ranks.hpp"

namespace trainhost::training {

/// A tag, "loss/train", and its value. TensorBoard shows the tags before a slash as one group.
using Scalars = std::vector<std::pair<std::string, double>>;

class LayerNorms {
 public:
  /// Norms are measured in the first, the last and every n-th step.
  static constexpr std::uint64_t kEvery = 10;

  explicit LayerNorms(std::uint32_t layers) : layers_(layers) {}

  /// "grad_norm/layer_07" and so on, and "grad_norm/outside_layers", of the step that has ended; empty where
  /// they are not due or the trainer does not know them. A collective operation: every process calls it after
  /// every step.
  Scalars measure(std::uint64_t step, std::uint64_t steps, plugin::Session& session, Ranks& ranks);

 private:
  std::uint32_t layers_;
  bool known_ = true;  // until a trainer has said that it does not know them
};

}  // namespace trainhost::training
