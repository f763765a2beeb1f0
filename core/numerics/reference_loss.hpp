// The loss of a model in double, forward pass only, as plain loops over named tensors. Independent of the
// step program, the executor and every kernel: trainers are compared with it (compare_trainer.hpp).
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"

namespace trainhost::numerics {

/// Tensors by checkpoint name, row-major.
using Tensors = std::map<std::string, std::vector<double>>;

/// Token ids and targets of whole sequences of `seq` tokens; a target of -100 is not counted.
struct Batch {
  std::vector<std::int32_t> tokens, targets;
  std::uint32_t seq = 0;
  std::uint32_t sequences() const { return static_cast<std::uint32_t>(tokens.size() / seq); }
};

/// Logits [seq, vocab] of one sequence. `w` has the tensors of the model (core/model/tensors.hpp).
std::vector<double> logits(const ModelSpec& m, const Tensors& w, std::span<const std::int32_t> ids);

/// Mean of -log softmax(logits)[target] over the counted targets of the batch.
double mean_loss(const ModelSpec& m, const Tensors& w, const Batch& batch);

}  // namespace trainhost::numerics
