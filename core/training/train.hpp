// The main job: plan, check the budget, load or initialise, step, evaluate, checkpoint, write the model, and
// hold the prediction against the measurement.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/run_observer.hpp"

namespace trainhost::training {

struct TrainOptions {
  bool resume = false;
  bool allow_fallback = true;
  bool json = false;   // events on stdout too
  bool quiet = false;  // the observer prints nothing: make no text for it
  int verbosity = 0;
  std::string profile;  // file of the Chrome trace; "" = no profile
};

/// Returns kDone, or kStopped when a signal ended it with a good checkpoint. Everything else throws Error.
/// `observer` gets everything for people; it must outlive the call.
Exit train(const runfile::RunConfig& c, plugin::Registry& registry, const TrainOptions& o,
           RunObserver& observer);

}  // namespace trainhost::training
