// The result of `search`: parallel layouts of a model on N devices, ranked by step time, and the Pareto
// front of memory and time. Data only. search_layouts.hpp fills it; core/report prints it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/runfile/file_key.hpp"

namespace trainhost::planning {

struct RankedLayout {
  std::uint32_t data = 1, tensor = 1, pipeline = 1, interleave = 1, context = 1, expert = 1, zero = 0;
  bool sequence = false;
  std::uint32_t micro_batch = 1, accumulate = 1, recompute_every = 1;
  std::string recompute;                                            // none | selective | full
  std::string offload;                                              // "" or "optimizer to cpu"
  std::uint64_t device_bytes = 0, host_bytes = 0;                   // of the pipeline stage with the most
  double step_seconds = 0, tokens_per_second = 0, utilization = 0;  // utilization: model FLOP/s over peak
  bool simulated = false;          // step_seconds are those of the simulated step program
  double closed_form_seconds = 0;  // by which the layout was found; step_seconds unless simulated
  std::vector<std::pair<std::string, double>>
      seconds;  // not overlapped seconds by cause ("compute", "bubble", ...); their sum is step_seconds
  std::vector<std::string> settings;  // for --set: "parallel.tensor=8", ...
};

struct SearchResult {
  std::string model, device, run_line;
  std::uint32_t devices = 1;
  std::optional<std::uint64_t>
      host_budget_bytes;  // per device; nullopt: not known, and layouts are not limited
  std::uint64_t budget_bytes = 0, global_batch = 0, seq_len = 0;
  std::uint64_t layouts = 0;         // in the search space
  std::uint64_t fitting = 0;         // of them, those that fit
  std::uint64_t evaluated = 0;       // of them, those that pruning did not skip
  std::uint64_t simulated = 0;       // of the fastest and of the Pareto front by the closed form
  double seconds = 0;                // duration of the search
  std::vector<RankedLayout> best;    // fastest first
  std::vector<RankedLayout> pareto;  // least memory first; each one faster than all before it
  std::vector<std::string> assumptions, notes;
  std::vector<runfile::FileKey> file_keys;  // of --from
  std::string command;                      // command line of this process; "" = not known
};

}  // namespace trainhost::planning
