// What `sweep` shows: memory by component against one key of the run file, for each estimator, with the
// crossovers found. Filled by core/run/sweep; table, JSON, CSV and HTML read nothing else.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::report {

struct SweepPoint {
  double x = 0;               // the key's value; its place in the list where it is not a number
  std::string label;          // as it was written: "2048", "8GiB", "full"
  std::uint64_t total = 0;    // bytes a rank, all tiers
  std::uint64_t compute = 0;  // of the compute tier
  bool fits = true;
  std::string error;  // why this point is no run; then the figures are 0
  std::vector<std::pair<Component, std::uint64_t>> components;
  std::string how;  // what the run file leaves open, as it is here: "streamed, recompute every layer full"
};

struct SweepCurve {
  std::string estimator, kind;
  std::vector<SweepPoint> points;
};

/// Where one curve or component overtakes another: "activations pass weights + optimizer state at 3,412".
struct Crossover {
  std::string estimator, sentence;
  double x = 0;
};

struct SweepView {
  std::string model, run_line, key, unit;  // "data.seq_len", "tokens"
  std::uint64_t budget_bytes = 0;
  std::string budget_source;
  bool budget_known = false;
  std::vector<SweepCurve> curves;
  std::vector<Crossover> crossovers;
  std::vector<std::string> remarks;  // of the sweep as a whole; also the first of the notes
  std::vector<std::string> notes;
  std::string command;  // as it was typed; "" = not known
};

/// Is a point run in another way than the first one: other layers recomputed, another mode? Only then is it
/// worth a column.
bool how_differs(const SweepView& v);

struct Terminal;
std::string sweep_table(const SweepView& v, const Terminal& t);
std::string sweep_json(const SweepView& v);
std::string sweep_csv(const SweepView& v);
std::string sweep_html(const SweepView& v);

}  // namespace trainhost::report
