// The sentences beside the memory equation's leaves: why it differs, what it derives for the user
// (efficiency, devices, the largest micro-batch, the timeline, crossovers), what the run has that the
// equation has not, and its source's slips.
#pragma once
#include <string>
#include <vector>

#include "plugins/estimators/memory-equation/account.hpp"

namespace trainhost::memory_equation {

/// In order; the first says in one line why the estimate differs from a count of the run's own tensors.
std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p,
                               std::uint64_t true_psi);

/// What a LLaMA block keeps where the source counts a GPT block: q, k, v at their widths, gate, up and their
/// product at width I. Bytes of all layers, scores left out.
Bytes gated_block_activations(const ModelSpec& m, const Inputs& in);

}  // namespace trainhost::memory_equation
