// Converts a model, a run and the [plugin.calculon] table to Calculon's Application, Execution and the
// embedding terms. Rejects settings that Calculon cannot express. Computes no memory.
#pragma once
#include <optional>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/calculon/closed_form.hpp"
#include "plugins/estimators/common/options.hpp"

namespace trainhost::calculon {

/// The table [plugin.calculon]. Defaults follow from the run: comm from parallel.sequence, multiquery from
/// kv_heads == 1.
struct Options {
  bool embedding = true;  // the note's terms for the token embedding and the LM head
  bool fused_activation = false, seq_par_ag_redo = false;
  std::optional<Comm> comm;
  Overlap overlap = Overlap::kNone;
  std::optional<bool> multiquery;
};

/// Throws like rules::Options: key, value and nearest word.
Options read_options(const rules::Options& given);

struct Mapped {
  Application application;
  Execution execution;
  Embedding embedding;  // matrices 0: none counted
};

/// Whether the model has the dimensions that Calculon needs.
bool has_dimensions(const ModelSpec& m);

/// `m` with the dimensions that core/model reads from config.json if it knows the family; else `m` unchanged.
ModelSpec completed(const ModelSpec& m);

/// Throws usage_error for a weight type other than f32, bf16, fp16, fp8, and for options that contradict the
/// run.
Mapped map(const ModelSpec& m, const RunSpec& r, const Options& o);

}  // namespace trainhost::calculon
