// The time of a layout by simulation of trainhost's own step program (core/step/step_simulation.hpp) at the
// rates of a device preset (core/parallel/step_time.hpp). The closed form ranks millions of layouts; this
// times those that are listed.
#pragma once
#include <optional>

#include "core/parallel/step_time.hpp"
#include "core/step/step_simulation.hpp"

namespace trainhost::planning {

/// Rates of the operations and links of a rank of `r`: products and attention at the shares of the peak rate
/// that programs reach, memory traffic at the memory bandwidth, rings of the TP ranks (neighbours) and of the
/// DP ranks. A rank computes, exchanges parts of products with TP ranks, and gradients and weights with DP
/// ranks at the same time. Gradients of a layer, and weights, are exchanged in one message.
step::StepRates rates_of(const parallel::Machine& m, const RunSpec& r);

/// One step of the run that `r` describes, with the parts of the closed form; data_rank and tensor_rank of
/// `r` are not used. nullopt: trainhost has no step program for the family or for a setting of the layout,
/// such as pipeline parallelism.
std::optional<step::SimulatedStep> simulate_layout(const ModelSpec& model, const RunSpec& r,
                                                   const parallel::Machine& m);

}  // namespace trainhost::planning
