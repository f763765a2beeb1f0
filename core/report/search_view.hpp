// What `search` shows: the best layouts of a model for N devices, ranked by time, and the Pareto front of
// memory against it. Filled by core/run/search; table, JSON, CSV and HTML read nothing else.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::report {

struct LayoutRow {
  std::uint32_t data = 1, tensor = 1, pipeline = 1, interleave = 1, context = 1, expert = 1, zero = 0;
  bool sequence = false;
  std::uint32_t micro_batch = 1, accumulate = 1, recompute_every = 1;
  std::string recompute;                                            // none | selective | full
  std::string offload;                                              // "" or "optimizer to cpu"
  std::uint64_t device_bytes = 0, host_bytes = 0;                   // of the worst stage
  double step_seconds = 0, tokens_per_second = 0, utilization = 0;  // utilization: model flops over peak
  std::vector<std::pair<std::string, double>>
      seconds;                        // "compute", "bubble", ... exposed, summing to the step
  std::vector<std::string> settings;  // "--set parallel.tensor=8", ... : this layout as a run
};

struct SearchView {
  std::string model, device, run_line;
  std::uint32_t devices = 1;
  std::uint64_t budget_bytes = 0, global_batch = 0, seq_len = 0;
  std::uint64_t layouts = 0, fitting = 0, evaluated = 0;  // in the space; that fit; looked at after pruning
  double seconds = 0;                                     // the search itself
  std::vector<LayoutRow> best;                            // fastest first
  std::vector<LayoutRow> pareto;  // least memory first; each faster than all before it
  std::vector<std::string> assumptions, notes;
  std::string command;  // as it was typed; "" = not known
};

struct Terminal;
std::string search_table(const SearchView& v, const Terminal& t);
std::string search_json(const SearchView& v);
std::string search_csv(const SearchView& v);
std::string search_html(const SearchView& v);

}  // namespace trainhost::report
