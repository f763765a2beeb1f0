// `trainhost train`: plans a run, checks the budget, loads or initialises weights, trains, evaluates, writes
// checkpoints and the model, and compares predicted with measured memory. README.md lists the steps.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "core/base/collectives.hpp"
#include "core/base/error.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/lr_range.hpp"
#include "core/training/run_folder.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::training {

struct TrainOptions {
  Resume resume = Resume::kNo;
  bool overwrite = false;  // an earlier run in output.dir is replaced
  bool allow_fallback = true;
  std::FILE* events = nullptr;  // also receives every line of metrics.jsonl
  bool quiet = false;           // make no sample of generated text
  int verbosity = 0;
  std::string profile;           // file of the Chrome trace; "" = no profile
  bool memory_snapshot = false;  // PlanResult::snapshot, for --memory-snapshot
  std::string command_line;      // kept in the folder of the run
  // The processes of the run, of which this is one: run.parallel of the RunConfig says which. Null: one
  // process.
  Collectives* ranks = nullptr;
};

/// Returns kDone, or kStopped if a signal or a lost device ended the run and a checkpoint is intact, or no
/// step was computed. All other failures throw Error; a SharedError (ranks.hpp) is thrown on every process of
/// the run. `observer` receives what is printed for people.
Exit train(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
           RunObserver& observer);

/// `train --find-lr`: the run's first steps with the learning rates of `range`, from its initial weights, in
/// its precision and on its data. Writes nothing but the cache of tokenized text into the folder of the run.
/// Ends early when the loss has diverged or is not finite. Nullopt if a signal ended it. Of the options,
/// those that concern the folder, the events and the profile have no effect. Throws Error as train() does.
std::optional<LrRangeResult> find_lr(const runfile::RunConfig& c, plugin::Registry& registry,
                                     const TrainOptions& o, const LrRange& range, RunObserver& observer);

}  // namespace trainhost::training
