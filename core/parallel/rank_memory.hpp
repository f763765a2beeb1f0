// The memory of a decoder under any layout, in closed form: one rank of every pipeline stage, by component,
// tier and moment. One description (rank_breakdown.hpp) feeds two readers: numbers alone, for search, and
// leaves with their formulas, for plan. Never places a buffer: weights, gradients and optimizer state are
// counted exactly, activations by the list of tensors that a usual implementation keeps
// (activation_table.hpp), and the whole is called an approximation.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::parallel {

inline constexpr std::size_t kComponents = 13, kTiers = 5;  // indexed by Component and Tier; [0] unused
static_assert(kComponents == static_cast<std::size_t>(Component::kRuntime) + 1,
              "a component without its column");
static_assert(kTiers == static_cast<std::size_t>(Tier::kDisk) + 1, "a tier without its row");

/// Bytes of one rank at its worst moment.
struct Numbers {
  std::array<std::array<std::uint64_t, kComponents>, kTiers> bytes{};  // [tier][component]
  Phase peak_at = kBackward;                                           // of the device tier
  std::uint64_t tier(Tier t) const;
  std::uint64_t total() const;
};

/// Throws usage_error naming the key and its value where architecture and layout do not go together: heads
/// that tensor does not divide, experts that expert does not divide, fewer layers than pipeline x interleave,
/// experts asked of a dense model.
void validate(const model::Architecture& a, const RunSpec& r);

/// Stages 0 .. pipeline - 1. `r` is valid for `a`; sizes saturate at kMaxBytes rather than throw (search
/// compares them).
Numbers stage_numbers(const model::Architecture& a, const RunSpec& r, std::uint32_t stage);
/// The stage that needs most of the device.
std::uint32_t worst_stage(const model::Architecture& a, const RunSpec& r);

/// The same as leaves with formulas and numbers filled in, of that stage. The leaves' sums equal
/// stage_numbers(). Throws Error (too large) where a size leaves 63 bits.
MemoryReport stage_report(const model::Architecture& a, const RunSpec& r, std::uint32_t stage);

/// The worst stage's report, with one line a stage (of the first 256) in its notes where there are several.
MemoryReport report(const model::Architecture& a, const RunSpec& r);

/// Trained parameters: all of them, or the adapters' under [lora].
std::uint64_t trained_parameters(const model::Architecture& a, const RunSpec& r);

}  // namespace trainhost::parallel
