// A trainer's parameters as numbers: what save() gave, as floats by name, changed and handed back by load().
// For checks about what training computes; nothing here judges.
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

/// The weights of an instance that is ready. Throws Broken where save() gives no checkpoint, NotHere where
/// its tensors are of another type than the run's f32.
AllWeights weights_of(Instance& i);

/// The same names and shapes with values made from `seed`, large enough that every tensor matters to the
/// loss: norms near 1, biases near 0, matrices of standard deviation 0.15.
AllWeights made_weights(const AllWeights& like, std::uint64_t seed);

/// load() of elements [first, first + count) of a tensor.
Answer load_piece(Instance& i, const std::string& name, const Weights& w, std::uint64_t first,
                  std::uint64_t count);
/// load() of all of it. Throws Broken when it is refused.
void load_tensor(Instance& i, const std::string& name, const Weights& w);
void load_weights(Instance& i, const AllWeights& all);

/// The first tensor whose bits differ, "" when none does.
std::string first_difference(const AllWeights& a, const AllWeights& b);

/// Everything that a checkpoint holds: weights and, where the optimizer has them, moments.
struct Checkpoint {
  std::map<std::uint32_t, std::vector<SeenPiece>> scopes;
};
Checkpoint checkpoint_of(Instance& i);
/// create(), load() of the checkpoint, init(). Throws Broken.
void revive(Instance& i, const Checkpoint& c);

/// The sample trained by plain gradient descent: no decay, no clipping, so that an update is -lr x gradient.
Sample plain_descent(Sample s);
/// Throws NotHere where the trainer does not do such runs.
void need_run(Bench& b, const Sample& s, const char* what);

/// An update that must succeed. Throws Broken.
th_step_out must_step(Instance& i, const Batch& batch, double lr, std::uint64_t index);
/// The loss of one micro-batch, which must be given. Throws Broken.
double must_evaluate(Instance& i, const Batch& batch);

}  // namespace trainhost::plugin_validator
