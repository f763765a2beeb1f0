// Live tensor bytes of the compute tier between the phases of a step, and by layer during one operation.
// Without alignment padding and gaps.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {

/// Tensor bytes whose contents are kept across a phase boundary of the step. Gradients count from the first
/// operation of the micro section on (of one micro-batch in host memory: from their first contribution);
/// before the first micro-batch of an update they have no contents.
struct PhaseLiveBytes {
  std::uint64_t before_forward = 0;        // weights, moments, tables
  std::uint64_t before_later_forward = 0;  // from the second micro-batch on: also gradients
  std::uint64_t after_forward = 0;         // also activations; before the head, which belongs to backward
  std::uint64_t after_backward = 0;
  std::uint64_t after_update = 0;
};
/// All zero for a program that does not train.
PhaseLiveBytes live_bytes_by_phase(const Program& p, const std::vector<Lifetime>& lifetimes);

struct LayerShare {
  std::int32_t layer;  // -1: belongs to no layer
  Component component;
  std::uint64_t bytes;
};
/// Live tensor bytes during an operation, sorted by layer, then component. They sum to live_bytes() there.
std::vector<LayerShare> live_by_layer(const Program& p, const std::vector<Lifetime>& lifetimes,
                                      std::uint32_t op);

/// Live tensor bytes during each of `ops`, which ascend, indexed by Component.
inline constexpr std::size_t kLiveComponents = static_cast<std::size_t>(Component::kRuntime) + 1;
std::vector<std::array<std::uint64_t, kLiveComponents>> live_by_component(
    const Program& p, const std::vector<Lifetime>& lifetimes, std::span<const std::uint32_t> ops);

}  // namespace trainhost::placement
