// The parameters of a trainer as floats by name: read by save(), changed, written by load(). For checks of
// what training computes; does not judge.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {

/// One whole tensor.
struct Weights {
  std::uint32_t rank = 1;
  std::uint64_t dim[2] = {0, 0};
  std::vector<float> values;  // row-major
};
using AllWeights = std::map<std::string, Weights>;

/// The weights of an initialised instance. Throws CheckFailed if save() sends no valid checkpoint,
/// CheckSkipped if its tensors are not f32.
AllWeights weights_of(WatchedInstance& i);

/// Random values with the same names and shapes, large enough that every tensor affects the loss: norms
/// near 1, biases near 0, matrices with standard deviation 0.15.
AllWeights random_weights(const AllWeights& like, std::uint64_t seed);

/// load() of elements [first, first + count) of a tensor.
CallResult load_piece(WatchedInstance& i, const std::string& name, const Weights& w, std::uint64_t first,
                      std::uint64_t count);
/// load() of the whole tensor. Throws CheckFailed if it fails.
void load_tensor(WatchedInstance& i, const std::string& name, const Weights& w);
void load_weights(WatchedInstance& i, const AllWeights& all);

/// The name of the first tensor whose bits differ; "" if none does.
std::string first_difference(const AllWeights& a, const AllWeights& b);

/// The content of a checkpoint: weights and, if the optimizer has them, moments.
struct Checkpoint {
  std::map<std::uint32_t, std::vector<ReceivedPiece>> scopes;
};
Checkpoint checkpoint_of(WatchedInstance& i);
/// create(), load() of the checkpoint, init(). Throws CheckFailed.
void restore(WatchedInstance& i, const Checkpoint& c);

/// The sample with SGD without weight decay and clipping, so that an update is -lr x gradient.
Sample sgd_sample(Sample s);
/// Throws CheckSkipped if the trainer does not support the run.
void require_run(WatchedPlugin& plugin, const Sample& s, const char* what);

/// A training step. Throws CheckFailed if it fails.
th_step_out step_or_throw(WatchedInstance& i, const Batch& batch, double lr, std::uint64_t index);
/// The loss of one micro-batch. Throws CheckFailed if the evaluation fails.
double evaluate_or_throw(WatchedInstance& i, const Batch& batch);

}  // namespace trainhost::plugin_validator
