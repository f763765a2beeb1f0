// What `plan` shows: a model, its estimates and the budget, ready to be printed or written as JSON.
// Filled by core/run; the two renderings (memory_table, plan_json) read nothing else.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::report {

struct Estimate {
  MemoryReport report;
  std::uint64_t total_bytes = 0;    // per rank, all tiers
  std::uint64_t compute_bytes = 0;  // of the compute tier: what the budget limits
  std::uint64_t host_bytes = 0;     // pinned and host memory of a run whose compute tier is a device
  bool fits = true;
};

/// What a change is paid with, from what anybody would do first to what one does last.
enum class Price : std::uint32_t { kFree, kTime, kHardware, kResult };
std::string_view name(Price p);  // "free", "time", "hardware", "result"

/// A change of the run that would make it fit, proved by planning it again.
struct Change {
  std::string settings;          // as in a run file: "train.micro_batch = 2, train.grad_accum = 8"
  std::vector<std::string> set;  // the same for --set: "train.micro_batch=2"
  std::string sentence;          // "2 sequences at a time instead of 8, 4 times as many accumulated"
  Price price = Price::kFree;    // ranked by it, then by cost
  double cost = 0;         // kTime: of a step, 0.33 = a third longer; kHardware: devices; else an order alone
  std::string cost_words;  // "about 33 % more arithmetic"
  std::uint64_t compute_bytes = 0;
  std::string estimator;        // that planned it
  bool leaves_backend = false;  // not for the backend that was chosen by name: ranked behind all that are
};
/// The most of one thing that fits: the largest micro-batch, the longest sequence, the fewest devices.
struct Limit {
  std::string what;         // "largest train.micro_batch"
  std::uint64_t value = 0;  // 0: none fits
  std::string
      binds;  // "activations: layers[].mlp gate and up, 12.3 GiB": what takes the room at the next value
};
/// One moment of a step: bytes alive by component, of the compute tier.
struct Moment {
  std::string name;  // "forward, layer 3"
  std::uint64_t bytes = 0;
  std::vector<std::pair<Component, std::uint64_t>> components;
};

struct PlanView {
  ModelSpec model;
  ParameterCounts parameters;
  bool parameters_known = true;  // false: a family whose tensors we do not know
  std::string backend;           // id of the trainer planned for; "" = none installed
  std::string run_line;          // "f32, B 8 x S 128, accumulate 1, AdamW, recompute none"
  std::optional<RecomputeLayers>
      recompute_layers;         // chosen by the host; none where the run says what to recompute
  std::string recompute_words;  // of that choice: "layers 0-3 full, layers 4-11 selective"
  Tier compute_tier = Tier::kHost;
  std::string mode;          // of a trainer that has several: "resident"
  bool budget_known = true;  // false: the source says why nothing could be judged
  std::uint64_t budget_bytes = 0;
  std::string budget_source;  // "free memory", "memory.budget", "h100-80gb"
  std::uint64_t host_budget_bytes = 0;
  std::string host_budget_source;       // "" where host memory is not judged by itself
  std::vector<Estimate> estimates;      // the first one decides
  std::vector<std::string> notes;       // of the plan as a whole
  std::uint64_t ranks = 1;              // every figure is of one of them
  std::uint64_t active_parameters = 0;  // 0: as the total
  std::optional<std::uint64_t>
      trained_parameters;       // adapters, or none in an inference run; not set: all of them
  std::vector<Change> changes;  // where it does not fit, cheapest first
  std::string changes_note;     // why fewer than three single changes make it fit; "" where enough do
  std::vector<Limit> limits;
  std::vector<Moment> timeline;  // of one step, in order; empty where no program is known
  std::string command;           // as it was typed; "" = not known
};

/// The table, for people.
struct Terminal;
std::string memory_table(const PlanView& v, const Terminal& t);

/// What was chosen for train.recompute = "auto", in words and as counts of layers. v has a choice.
std::string recompute_json(const PlanView& v);

/// Every leaf with its formula and the numbers in it, largest first: plan --explain.
std::string explain_table(const PlanView& v, const Terminal& t);
/// One line a leaf: estimator, tier, component, name, kind, bytes, bytes_at_peak, formula.
std::string plan_csv(const PlanView& v);
/// A page that stands alone.
std::string plan_html(const PlanView& v);

/// The trainhost.plan/1 object as JSON text; indent < 0: one line.
std::string plan_json(const PlanView& v, int indent = 2);

}  // namespace trainhost::report
