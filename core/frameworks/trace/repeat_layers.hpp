// A trace of a model with many equal layers, or of layers of a few kinds in turn, from that of a model with
// few of them. Used by training_step() to save time; it changes no result.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

/// Units of the small model: the first, two whose events repeat, and the last.
inline constexpr std::uint32_t kRepeatedFrom = 4;

/// Equal units of `period` consecutive layers. `leading` layers before them belong to the first unit, and
/// those behind the last whole unit to the last one.
struct LayerUnits {
  std::uint32_t period = 1, layers = 0, leading = 0;
  std::uint32_t count() const { return (layers - leading) / period; }
  std::uint32_t unit_of(std::uint32_t layer) const { return (std::max(layer, leading) - leading) / period; }
  /// Layers of the small model.
  std::uint32_t few() const { return layers - (count() - kRepeatedFrom) * period; }
};

TraceMark end_of(const Trace& t);

/// For each storage that the step from `first` on allocates: whether the step keeps it for the whole run, so
/// that the next step has the same events without it. nullopt where the step keeps something that the next
/// one replaces, or frees something that is older than the step.
std::optional<std::vector<bool>> kept_by_step(const Trace& t, const TraceMark& first);

/// What each layer of the small model saves, [0]: outside of the layers, for all layers. False where units 1
/// and 2 differ.
bool repeat_saved_bytes(std::vector<std::uint64_t>& bytes, const LayerUnits& units);

/// The repetition of a small trace. The events of units 1 and 2 are the same but for the number of the layer,
/// so every other unit between the first and the last has them too.
class LayerRepetition {
 public:
  /// Checks this event by event; nullptr where they differ. executed: for each event of `small`, the layer
  /// that runs; -1 outside of the layers. `small` outlives the result.
  static std::unique_ptr<LayerRepetition> find(const Trace& small, std::span<const std::int32_t> executed,
                                               const LayerUnits& units);
  LayerRepetition() = default;
  LayerRepetition(const LayerRepetition&) = delete;
  LayerRepetition& operator=(const LayerRepetition&) = delete;
  virtual ~LayerRepetition() = default;

  /// The trace of the same step with all layers.
  virtual Trace write() = 0;
  /// The most bytes of storages, rounded up to `block`, that exist at one time in the trace that write()
  /// returns, without writing it. With `copied` that of the trace with a second step, which has the events
  /// from `copied` on without the storages in `kept`.
  virtual std::uint64_t peak_bytes(std::uint64_t block, const std::optional<TraceMark>& copied,
                                   const std::vector<bool>& kept) const = 0;
};

}  // namespace trainhost::frameworks
