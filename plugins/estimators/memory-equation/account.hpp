// The memory equation applied to a run: its parts as leaves with their formulas, and in notes what it
// derives, what it leaves out and where its source slips. The arithmetic is in equation.hpp; nothing here
// asks a host.
#pragma once
#include <cstdint>
#include <optional>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/memory-equation/equation.hpp"

namespace trainhost::memory_equation {

/// The plugin's options, absent ones as the source has them.
struct Settings {
  std::optional<std::uint64_t> parameters = {};  // Psi; else the model's own count
  std::optional<bool> flash = {};                // else as the run's plan.attention
  Terms terms = Terms::kEquation;
  std::uint32_t fragmentation = kTenPerCent, temporary = kTenPerCent;
  Bytes chunk = 0;
};

/// The equation's inputs for a run. `true_psi`: the model's own count.
Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi);

/// Leaves on the device, claim approximation, peak in the backward pass. Throws usage_error for an inference
/// run.
MemoryReport account(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi);

}  // namespace trainhost::memory_equation
