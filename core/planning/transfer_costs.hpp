// What moving bytes costs beside the arithmetic of a step, as a share of it. One stated machine: products at
// 40 % of the device's peak (100 TFLOP/s where no device is named), 32 GB/s between device and host, an
// update on the host at 100 GB/s of its memory. For ranking alternatives; `search` has the full time model.
#pragma once
#include <string>

#include "core/model/presets.hpp"
#include "core/planning/change_candidates.hpp"

namespace trainhost::planning {

double optimizer_offload_cost(
    const Situation& s);  // gradients down and weights up an update, moments read and written there
double weight_offload_cost(const Situation& s);      // up for the forward and the backward pass of every
                                                     // micro-batch; for every token generated
double activation_offload_cost(const Situation& s);  // down and up, every micro-batch
double streaming_cost(const Situation& s);  // weights as above, gradients down, and the update on the host
double gathered_cost(
    const Situation& s);  // ZeRO 3: the weights' bytes once more over the link between devices

/// "about 20 % more time", "about 3.4 times the time".
std::string time_words(double share);

}  // namespace trainhost::planning
