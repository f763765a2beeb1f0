// The result of a sweep: memory by component against the values of one run-file key, per estimator.
// Data only. sweep.hpp fills it; core/report prints it as a table, JSON, CSV or HTML.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/types.hpp"
#include "core/planning/plan_result.hpp"
#include "core/runfile/file_key.hpp"

namespace trainhost::planning {

struct SweepPoint {
  double x = 0;               // value of the key; its index in the list where it is not a number
  std::string label;          // the value as written: "2048", "8GiB", "full"
  std::uint64_t total = 0;    // bytes per rank, all tiers
  std::uint64_t compute = 0;  // bytes per rank, compute tier
  bool fits = true;
  std::string error;  // why the value makes no valid run; byte counts are then 0
  std::vector<std::pair<Component, std::uint64_t>> components;
  // Settings chosen automatically at this point: "streamed, recompute every layer full".
  std::string how = {};
  std::uint64_t host_bytes = 0;  // pinned and pageable host memory beside a device; bytes per rank
  Verdict verdict = Verdict::kFits;
};

/// The points of one estimator.
struct SweepCurve {
  std::string estimator;
  Claim claim = Claim::kExact;
  std::vector<SweepPoint> points;
};

/// A value at which one curve or component overtakes another.
struct Crossover {
  std::string estimator, sentence;  // "activations exceed weights + optimizer state from 3,412 on"
  double x = 0;
};

struct SweepResult {
  std::string model, run_line, key, unit;  // key "data.seq_len", unit "tokens"
  std::uint64_t budget_bytes = 0;
  std::string budget_source;
  bool budget_known = false;
  std::vector<SweepCurve> curves;
  std::vector<Crossover> crossovers;
  std::vector<std::string> remarks;  // about the whole sweep; also the first entries of `notes`
  std::vector<std::string> notes;
  std::vector<runfile::FileKey> file_keys;  // of --from
  std::string command;                      // command line of this process; "" = not known
};

}  // namespace trainhost::planning
