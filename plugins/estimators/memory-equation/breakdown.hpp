// Report of the memory equation for a run: one entry per term, and notes: derived values
// (efficiency, number of devices, largest micro-batch, timeline, crossovers), what the equation omits, and
// errors of its source. The arithmetic is in equation.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/memory-equation/equation.hpp"

namespace trainhost::memory_equation {

/// Options of the plugin; the defaults are the values of the source.
struct Settings {
  std::optional<std::uint64_t> parameters = {};  // Psi; default: count of the model
  std::optional<bool> flash = {};                // default: plan.attention of the run
  Terms terms = Terms::kEquation;
  std::uint32_t fragmentation = kTenPerCent, temporary = kTenPerCent;
  Bytes chunk = 0;
};

/// Inputs of the equation for a run. true_psi: parameter count of the model.
Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi);

/// Entries on the device, claim approximation, peak in the backward pass. Throws usage_error for inference.
MemoryReport breakdown(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_psi);

/// In order of importance; the first summarises the rule in one line.
std::vector<std::string> notes(const ModelSpec& m, const RunSpec& r, const Inputs& in, const Parts& p,
                               std::uint64_t true_psi);

/// Activation bytes of all layers for LLaMA blocks (the source has GPT blocks): q, k, v at their widths,
/// gate, up and their product at width I. Without attention scores.
Bytes gated_block_activations(const ModelSpec& m, const Inputs& in);

}  // namespace trainhost::memory_equation
