// Lists changes that could make a run fit, each with an estimated cost. Does not plan: suggest_changes.cpp
// plans each one to find out whether it helps. Costs follow from stated assumptions (transfer_costs.hpp);
// they are not measured.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/planning/replan.hpp"

namespace trainhost::planning {

/// One value of a setting (or of a few settings that change together).
struct CandidateChange {
  Settings settings;
  std::string sentence;
  double cost = 0;                 // unit as in Change::cost
  std::string cost_text;           // "about 33 % more arithmetic"
  std::uint64_t other_device = 0;  // memory of the device that it names, which replaces the budget
  bool leaves_backend = false;     // needs another backend than the one that the user selected
};

/// The values of one setting, the mildest first.
struct CandidateSeries {
  Price price = Price::kFree;
  bool falling = true;  // memory never grows along the series: if the last value does not fit, none does
  std::vector<CandidateChange> changes;
  /// No change frees more bytes of the run: generous, because it leaves changes out without a plan.
  std::uint64_t frees_at_most = UINT64_MAX;
  /// Bytes of the states of the run that every change keeps on each device.
  std::uint64_t keeps = 0;
  /// ZeRO stage whose states every change shards over twice as many ranks as the one before; 0: none.
  std::uint32_t shards = 0;
};

/// The run that does not fit, and what the costs are computed from.
struct ChangeContext {
  const runfile::RunConfig& config;
  Tier compute_tier = Tier::kHost;
  std::string mode;  // mode of a trainer that has several; "" = none
  std::uint64_t budget_bytes = 0;
  std::uint64_t parameters = 0;        // used per token; 0 = not known
  std::uint64_t activation_bytes = 0;  // of the plan that does not fit
  std::uint64_t all_parameters = 0;  // including experts that a token does not use; 0 = same as `parameters`
  std::uint64_t trained_bytes = 0;   // gradients, optimizer state and workspace of the plan
  bool dense = false;                // the model is known to have no experts
  std::uint64_t devices = 1;         // of the run as the user wrote it: the number in "instead of N"
  std::uint64_t update_bytes = 0;    // optimizer state, workspace and gaps of the plan
  std::uint64_t kept_states = 0;     // weights, master weights and gradients of the plan
};

/// Number of devices of a run: data, context, tensor and pipeline ranks multiplied.
std::uint64_t devices_of(const RunSpec& r);
/// "8 devices instead of 1".
std::string describe_device_count(std::uint64_t n, std::uint64_t before);

std::vector<CandidateSeries> propose_changes(const ChangeContext& s);
/// The part of propose_changes() that needs other or more devices.
std::vector<CandidateSeries> propose_devices(const ChangeContext& s);

/// "train.micro_batch = 2, train.recompute = \"full\"": syntax of the run file.
std::string format_as_run_file(const Settings& settings);

}  // namespace trainhost::planning
