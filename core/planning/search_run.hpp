// The layouts of a run's model on N devices of one kind, ranked: turns a run file into a question for
// core/parallel, asks it on several threads, and makes rows whose settings plan can read back. Trains nothing
// and asks no device.
#pragma once
#include <set>
#include <string>

#include "core/parallel/layout_search.hpp"
#include "core/report/search_view.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// The keys of a run file that make a layout.
inline constexpr const char* kSearchedKeys[] = {
    "parallel.data",          "parallel.tensor",         "parallel.pipeline",     "parallel.context",
    "parallel.expert",        "parallel.interleave",     "parallel.sequence",     "parallel.zero",
    "train.micro_batch",      "train.recompute",         "train.recompute_every", "plan.offload_weights",
    "plan.offload_optimizer", "plan.offload_activations"};

struct SearchRequest {
  std::uint32_t devices = 0;       // 0: as many ranks as the run file says
  std::uint64_t global_batch = 0;  // sequences of an update; 0: what the run file says, at least one a device
  std::size_t top = 10;
  std::size_t threads = 0;  // 0: every core
  bool every = false;       // look at every layout: no pruning
  std::set<std::string>
      fixed;  // keys that keep the value they have in the run: "parallel.tensor", "train.recompute", ...
};

/// Throws usage_error where the run names no device, or the model's family is not known.
report::SearchView search_layouts(const runfile::RunConfig& c, const SearchRequest& request);

/// "parallel.tensor=8", ...: what turns the run that was searched into this layout.
std::vector<std::string> layout_settings(const parallel::Found& f);

}  // namespace trainhost::planning
