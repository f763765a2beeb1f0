// Tiny models and runs that together use every operation and every option of the trained families, with
// generated weights and batches.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/numerics/reference_loss.hpp"

namespace trainhost::numerics {

/// ModelSpec::name of every sample.
inline constexpr const char* kSampleName = "reference sample";

/// A model with the run in which it is compared: f32, SGD without decay and clipping, several micro-batches.
struct SampleRun {
  std::string what;  // "qwen2, tied, window from layer 1": for messages
  ModelSpec model;   // without config_json
  RunSpec run;
};

/// All samples. Each option is on in one of them and off in another: biases of q/k/v, o and the MLP, q/k
/// norm, grouped heads, head width times heads unlike hidden, tied head, window, window from a layer on, rope
/// scalings, recompute policies.
const std::vector<SampleRun>& sample_runs();

/// Random values, exact in f32. No tensor has a value at which its absence would not show: biases are around
/// 0 and norms around 1 with a standard deviation of 0.3, matrices keep the variance of their input.
Tensors generate_weights(const ModelSpec& m, std::uint64_t seed);

/// Random ids; every fifth target of the first sequence is not counted, so that the sequences of a step have
/// unequal weights.
Batch generate_batch(const ModelSpec& m, const RunSpec& run, std::uint32_t sequences, std::uint64_t seed);

}  // namespace trainhost::numerics
