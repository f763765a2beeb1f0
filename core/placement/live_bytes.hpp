// What a plan says about four moments of a step (before the forward pass, after it, after the backward pass,
// after the update) and, layer by layer, about one operation. Tensor bytes: what alignment and holes cost is
// no part of it.
#pragma once
#include <cstdint>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

/// Tensor bytes whose contents are kept across the moment. Gradients count from the first operation of the
/// micro section, since their place is taken from then on; before the first micro-batch of an update they
/// hold nothing.
struct StepMoments {
  std::uint64_t before_forward = 0;        // weights, moments, tables: what stays for the whole run
  std::uint64_t before_later_forward = 0;  // of every micro-batch but the first: gradients too
  std::uint64_t after_forward = 0;  // the most that the backward pass finds; with a loss head that makes
                                    // gradients at once, this is before the head
  std::uint64_t after_backward = 0;
  std::uint64_t after_update = 0;
};
/// All zero for a program that does not train.
StepMoments step_moments(const Program& p, const std::vector<Lifetime>& lifetimes);

struct LayerShare {
  std::int32_t layer;  // -1: of none
  Component component;
  std::uint64_t bytes;
};
/// Tensor bytes of the compute tier alive during an operation, by layer and component, in that order. They
/// sum to live_bytes() there.
std::vector<LayerShare> live_by_layer(const Program& p, const std::vector<Lifetime>& lifetimes,
                                      std::uint32_t op);

}  // namespace trainhost::placement
