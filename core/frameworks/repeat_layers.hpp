// A trace of a model with many equal layers, from that of a model with four of them. Used by training_step()
// to save time; it changes no result.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "core/frameworks/trace.hpp"

namespace trainhost::frameworks {

/// Layers of the small model: the first, two whose events repeat, and the last.
inline constexpr std::uint32_t kRepeatedFrom = 4;

/// The trace of the same step with `layers` layers: the events of layers 1 and 2 of the small model are the
/// same but for the number of the layer, so every other layer between the first and the last has them too.
/// This is checked event by event; nullopt where they differ. executed: for each event of `small`, the layer
/// that runs; -1 outside of the layers.
std::optional<Trace> repeat_layers(const Trace& small, std::span<const std::int32_t> executed,
                                   std::uint32_t layers);

}  // namespace trainhost::frameworks
