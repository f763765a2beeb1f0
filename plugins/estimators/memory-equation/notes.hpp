// Notes of the memory equation: summary, derived values (efficiency, number of devices, largest micro-batch,
// timeline, crossovers), properties of the run that the equation omits, and errors of its source.
#pragma once
#include <string>
#include <vector>

#include "plugins/estimators/memory-equation/breakdown.hpp"

namespace trainhost::memory_equation {

/// In order of importance; the first summarises the rule in one line.
std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p,
                               std::uint64_t true_psi);

/// Activation bytes of all layers for LLaMA blocks (the source has GPT blocks): q, k, v at their widths,
/// gate, up and their product at width I. Without attention scores.
Bytes gated_block_activations(const ModelSpec& m, const Inputs& in);

}  // namespace trainhost::memory_equation
