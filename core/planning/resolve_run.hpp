// First stage of planning: find the memory budgets and make every automatic choice, so that everything after
// it plans exactly one run. Next stage: choose_estimators.hpp. README.md shows the whole path.
#pragma once
#include <string>
#include <vector>

#include "core/data/dataset.hpp"
#include "core/planning/budget.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// What is planned besides the run file.
struct PlanRequest {
  std::vector<std::string> estimators;  // "auto", "all" or ids; empty: memory.estimator of the run file
  std::string trainer;     // id of the trainer to plan for; "" = none (no installed plugin drives the device)
  bool profiled = false;   // train --profile: include the buffer for the timing records of one step
  bool elsewhere = false;  // the run is for another machine: ignore free host memory of this one
};

/// A run without open choices. `config.run` contains the budgets, so that a trainer can choose its mode by
/// them.
struct ResolvedRun {
  runfile::RunConfig config;
  Budgets budgets;
};

/// Chooses the rank that needs most memory, if a trainer trains the run in several processes and the caller
/// has set none. Reads free memory once, sets RunSpec::document_mask for records that are packed, and
/// replaces train.recompute = "auto" by a policy per layer: the least recomputation that fits, according to
/// the trainer's plan, or to the first estimator if there is no trainer. Throws usage_error for sizes over 63
/// bits and for what the plugins reject.
ResolvedRun resolve_run(const runfile::RunConfig& c, plugin::Registry& registry, const PlanRequest& request);

/// Sets the vocabulary of the built-in model to that of data.tokenizer, where the run names a tokenizer but
/// no model.
void adopt_vocabulary(runfile::RunConfig& c);

/// The settings with which core/data opens the dataset of a run: planning needs them to compute the bytes
/// that the dataset holds in memory, training to open it.
data::OpenOptions open_options(const runfile::RunConfig& c);

}  // namespace trainhost::planning
