// Rotary position frequencies: theta^(-2i/D) with the scalings that the trained families use.
// Half-split convention of Hugging Face weights: pair (i, i + D/2) turns by position * inv_freq[i].
#pragma once
#include <vector>

#include "core/model/model_spec.hpp"

namespace trainhost {

/// inv_freq[D/2] in double. Source: RoFormer eq. 15; "linear" divides by factor; "llama3" keeps wavelengths
/// below original/high, divides those above original/low by factor, and blends between.
std::vector<double> rope_inv_freq(const ModelSpec& m);

}  // namespace trainhost
