// From trainhost's words to Calculon's: a model, a run and the [plugin.calculon] table become an Application,
// an Execution and the embedding terms. Refuses what Calculon has no word for and no stand-in either.
// Computes no memory.
#pragma once
#include <optional>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/estimators/calculon/closed_form.hpp"
#include "plugins/estimators/common/options.hpp"

namespace trainhost::calculon {

/// [plugin.calculon]. What is not given follows from the run: comm from parallel.sequence, multiquery from
/// one KV head.
struct Options {
  bool embedding = true;  // the note's terms for the token embedding and the LM head
  bool fused_activation = false, seq_par_ag_redo = false;
  std::optional<Comm> comm;
  Overlap overlap = Overlap::kNone;
  std::optional<bool> multiquery;
};

/// Throws as rules::Options does: key, value and the nearest word.
Options read_options(const rules::Options& given);

struct Mapped {
  Application application;
  Execution execution;
  Embedding embedding;  // matrices 0: none counted
};

/// Whether the model has the dimensions that the form needs.
bool has_dimensions(const ModelSpec& m);

/// The model with its dimensions as core/model reads them from config.json, where it knows the family; else
/// as it is.
ModelSpec completed(const ModelSpec& m);

/// Throws usage_error for a weight type that is none of f32, bf16, fp16, fp8, and for options that contradict
/// the run.
Mapped map(const ModelSpec& m, const RunSpec& r, const Options& o);

}  // namespace trainhost::calculon
