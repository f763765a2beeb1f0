// Ranks the parallel layouts of a run's model on N devices: turns the run file into a query for
// core/parallel, evaluates it on several threads, and returns rows whose settings `plan --set` accepts. Uses
// no device.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/parallel/layout_search.hpp"
#include "core/planning/search_result.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// The run-file keys that make a layout.
inline constexpr const char* kSearchedKeys[] = {
    "parallel.data",          "parallel.tensor",         "parallel.pipeline",     "parallel.context",
    "parallel.expert",        "parallel.interleave",     "parallel.sequence",     "parallel.zero",
    "train.micro_batch",      "train.recompute",         "train.recompute_every", "plan.offload_weights",
    "plan.offload_optimizer", "plan.offload_activations"};

struct SearchRequest {
  std::uint32_t devices = 0;       // 0: number of ranks in the run file
  std::uint64_t global_batch = 0;  // sequences per optimizer step; 0: as in the run file, at least one per
                                   // device
  std::size_t top = 10;            // number of layouts to list
  std::size_t threads = 0;         // 0: all cores
  bool every = false;              // evaluate every layout; no pruning
  std::set<std::string> fixed;     // keys that keep their value: "parallel.tensor", "train.recompute", ...
};

/// Throws usage_error where the run names no device, or the model family is not known.
SearchResult search_layouts(const runfile::RunConfig& c, const SearchRequest& request);

/// "parallel.tensor=8", ...: the settings that turn the searched run into this layout.
std::vector<std::string> layout_settings(const parallel::FoundLayout& f);

}  // namespace trainhost::planning
