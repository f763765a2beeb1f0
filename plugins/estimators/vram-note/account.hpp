// The VRAM note applied to a run: its lines as leaves with their formulas, and in notes what is true of the
// model where the note's inputs or its list are not. The arithmetic is in note.hpp; nothing here asks a host.
#pragma once
#include <cstdint>
#include <optional>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/vram-note/note.hpp"

namespace trainhost::vram_note {

/// The plugin's options: what the source states of its example, where that is not the model's own.
struct Settings {
  std::optional<std::uint64_t> parameters = {}, hidden = {}, vocab = {};
  std::optional<double> ratio =
      {};  // trainable share; else all of a full run, the adapters' of a described [lora], else 2 %
};

/// Numbers in low-rank adapters of the run's rank on its targets: rank*(rows + columns) of each matrix, all
/// layers, of a dense gated model. 0 where the run describes none.
std::uint64_t adapter_parameters(const ModelSpec& m, const RunSpec& r);

/// The note's inputs for a run. `true_parameters`: the model's own count.
Inputs inputs_of(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters);

/// Leaves on the device, claim approximation. Training and inference both.
MemoryReport account(const ModelSpec& m, const RunSpec& r, const Settings& s, std::uint64_t true_parameters);

}  // namespace trainhost::vram_note
