// Report of the VRAM note for a run: one entry per line of the source, and notes with the true values where
// its inputs or its list differ from the model. The arithmetic is in note.hpp.
#pragma once
#include <cstdint>
#include <optional>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/vram-note/note.hpp"

namespace trainhost::vram_note {

/// Options of the plugin; each replaces a value of the model.
struct Settings {
  std::optional<std::uint64_t> parameters = {}, hidden = {}, vocab = {};
  std::optional<double> ratio = {};  // trained share; default: 1 (full), the adapters of [lora], or 0.02
};

/// Parameters of the run's LoRA adapters: rank*(rows + columns) of each target matrix, all layers, for a
/// dense model with gated MLPs. 0 if the run has no adapters.
std::uint64_t adapter_parameters(const ModelSpec& m, const RunSpec& r);

/// Inputs of the equations for a run. true_parameters: count of the model.
Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters);

/// Entries on the device, claim approximation, for training and inference.
MemoryReport breakdown(const ModelSpec& m, const RunSpec& r, const Settings& s,
                       std::uint64_t true_parameters);

}  // namespace trainhost::vram_note
