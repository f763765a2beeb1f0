// The changes that somebody whose run does not fit would think of, each with what it costs. Proposes only:
// whether one helps is found by planning it (advice.cpp). Costs are estimates from stated assumptions
// (README.md), never measured.
#pragma once
#include <string>
#include <vector>

#include "core/planning/replan.hpp"
#include "core/report/plan_view.hpp"

namespace trainhost::planning {

/// One setting of a knob.
struct Rung {
  Settings settings;
  std::string sentence;
  double cost = 0;  // as in report::Change
  std::string cost_words;
  bool other_device = false;    // names a device, whose memory is then the budget
  bool leaves_backend = false;  // the run's backend was chosen by name, and this is for another
};

/// One knob, its mildest rung first.
struct Family {
  report::Price price = report::Price::kFree;
  bool falling =
      true;  // each rung needs no more memory than the one before: where the last does not fit, none does
  std::vector<Rung> rungs;
};

/// What the candidates are chosen and priced by.
struct Situation {
  const runfile::RunConfig& config;
  Tier compute_tier = Tier::kHost;
  std::string mode;  // of a trainer that has several; "" = none
  std::uint64_t budget_bytes = 0;
  std::uint64_t parameters = 0;        // that a token uses; 0 = not known
  std::uint64_t activation_bytes = 0;  // of the plan that does not fit
  std::uint64_t all_parameters = 0;    // also those that a token does not use; 0 = as many as it uses
  std::uint64_t devices = 1;           // of the run as it was asked: what "instead of" compares with
};

/// Devices of a run: data, context, tensor and pipeline ranks.
std::uint64_t devices_of(const RunSpec& r);
/// "8 devices instead of 1".
std::string devices_words(std::uint64_t n, std::uint64_t before);

std::vector<Family> candidates(const Situation& s);

/// "train.micro_batch = 2, train.recompute = \"full\"": as a run file has it.
std::string as_run_file(const Settings& settings);

}  // namespace trainhost::planning
