// Memory of a decoder under any parallelism in closed form: one rank of each pipeline stage, by component and
// tier, at the peak. rank_breakdown.hpp lists the entries; stage_numbers() sums them (search), stage_report()
// makes a report with formulas (plan). Weights, gradients and optimizer state are exact, activations follow
// activation_table.hpp; the total is an approximation. Places no buffers.
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

/// Bytes of one rank at its peak.
struct Numbers {
  std::array<std::array<std::uint64_t, kComponents>, kTiers> bytes{};  // [tier][component]
  Phase peak_at = kBackward;                                           // of the device tier
  std::uint64_t tier(Tier t) const;
  std::uint64_t total() const;
};

/// Throws usage_error with run-file key and value if the architecture does not allow the parallelism: heads
/// not divisible by tensor, experts not divisible by expert, fewer layers than pipeline x virtual_stages,
/// expert > 1 for a dense model.
void validate(const model::Architecture& a, const RunSpec& r);

/// stage: 0 .. pipeline - 1. `r` is valid for `a`. Sizes saturate at kMaxBytes instead of throwing, for
/// search.
Numbers stage_numbers(const model::Architecture& a, const RunSpec& r, std::uint32_t stage);
/// The stage that needs most device memory.
std::uint32_t worst_stage(const model::Architecture& a, const RunSpec& r);

/// The memory breakdown of a stage as entries with formulas; sums equal stage_numbers(). Throws Error (too
/// large) above 63 bits.
MemoryReport stage_report(const model::Architecture& a, const RunSpec& r, std::uint32_t stage);

/// stage_report() of the stage that needs most; with several stages one note per stage (the first 256).
MemoryReport report(const model::Architecture& a, const RunSpec& r);

/// Trained parameters: all, or those of the adapters with [lora].
std::uint64_t trained_parameters(const model::Architecture& a, const RunSpec& r);

}  // namespace trainhost::parallel
