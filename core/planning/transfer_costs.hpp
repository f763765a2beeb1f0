// Estimated cost of moving bytes, as a fraction of the arithmetic of a step; used to rank suggested changes.
// Assumed machine: 40 % of the device's peak FLOP/s (100 TFLOP/s where no device is named), 32 GB/s between
// device and host, 100 GB/s of host memory for an update on the host. `search` has the full time model.
#pragma once
#include <string>

#include "core/model/presets.hpp"
#include "core/planning/propose_changes.hpp"

namespace trainhost::planning {

/// Gradients to the host, weights back, moments read and written there; once per step.
double optimizer_offload_cost(const ChangeContext& s);
/// Weights to the device for the forward and the backward pass of every micro-batch, or per generated token.
double weight_offload_cost(const ChangeContext& s);
/// Activations to the host and back, for every micro-batch.
double activation_offload_cost(const ChangeContext& s);
/// weight_offload_cost, plus gradients to the host and the update there.
double streaming_cost(const ChangeContext& s);
/// ZeRO 3: one more transfer of the weights over the link between devices.
double zero3_gather_cost(const ChangeContext& s);

/// "about 12 % more time", "a step takes about 3.4 times as long".
std::string describe_extra_time(double share);

}  // namespace trainhost::planning
