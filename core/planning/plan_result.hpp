// The result of planning one run: estimates, budgets, changes that make it fit, limits and a timeline.
// Data only. make_plan.hpp fills it; core/report prints it as a table, JSON, CSV or HTML.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"
#include "core/planning/memory_snapshot.hpp"
#include "core/runfile/file_key.hpp"

namespace trainhost::planning {

/// Whether a run fits, over every memory tier. The figures that are compared are per rank.
enum class Verdict : std::uint32_t {
  kFits,        // the limit of every tier that the run needs is known and holds
  kFitsDevice,  // the compute tier fits; the run needs host memory or disk space too, whose limit is not
                // known
  kNotKnown,    // the limit of the compute tier is not known, and no known limit is exceeded
  kDoesNotFit,  // at least one known limit is exceeded
};
constexpr std::string_view name(Verdict v) {
  constexpr std::string_view kNames[] = {"fits", "fits_device", "not_known", "does_not_fit"};
  return kNames[static_cast<std::uint32_t>(v)];
}
/// `fits`: no known limit is exceeded; `unjudged`: bytes in tiers whose limit is not known.
constexpr Verdict verdict_of(bool fits, bool compute_budget_known, std::uint64_t unjudged) {
  return !fits                   ? Verdict::kDoesNotFit
         : !compute_budget_known ? Verdict::kNotKnown
         : unjudged > 0          ? Verdict::kFitsDevice
                                 : Verdict::kFits;
}

/// One memory breakdown of one rank, compared with the budgets.
struct Estimate {
  MemoryReport report;
  std::uint64_t total_bytes = 0;    // all tiers
  std::uint64_t compute_bytes = 0;  // compute tier only; compared with the budget
  std::uint64_t host_bytes = 0;     // pinned and pageable host memory; 0 where the compute tier is the host
  std::uint64_t disk_bytes = 0;     // offloaded to disk, for which there is no budget; 0 as above
  bool fits = true;  // no known limit is exceeded; verdict_of() covers those that are not known
};

/// An estimator that could not be asked, with the reason.
struct FailedEstimator {
  std::string estimator, error;
};

/// What a change costs, from the cheapest to the most expensive. kResult: the trained model differs.
enum class Price : std::uint32_t { kFree, kTime, kHardware, kResult };
constexpr std::string_view name(Price p) {
  constexpr std::string_view kNames[] = {"free", "time", "hardware", "result"};
  return kNames[static_cast<std::uint32_t>(p)];
}

/// A change of the run that makes it fit, verified by planning the changed run.
struct Change {
  std::string settings;          // run-file syntax: "train.micro_batch = 2, train.grad_accum = 8"
  std::vector<std::string> set;  // the same settings for --set: "train.micro_batch=2"
  std::string sentence;          // "2 sequences per micro-batch instead of 8, 4 times as many accumulated"
  Price price = Price::kFree;    // primary sort key
  double cost = 0;               // secondary sort key. kTime: fraction of a step (0.33 = a third longer);
                                 // kHardware: number of devices; otherwise only an order
  std::string cost_text;         // "about 33 % more arithmetic"
  std::uint64_t compute_bytes = 0, host_bytes = 0;  // of the changed run; host: pinned and pageable
  std::string estimator;                            // id of the estimator that planned the changed run
  bool leaves_backend = false;  // needs another backend than the one that the user selected; sorted last
};

/// The largest (or, for devices, smallest) value of one quantity with which the run fits.
struct Limit {
  std::string what;         // "largest train.micro_batch"
  std::uint64_t value = 0;  // 0: no value fits
  std::string binds;        // component that exceeds memory one step beyond `value`:
                            // "activations: layers[].mlp gate and up, 12.3 GiB"
};

/// Live bytes of the compute tier in one phase of a step, by component.
struct StepPhase {
  std::string name;  // "forward, layer 3"
  std::uint64_t bytes = 0;
  std::vector<std::pair<Component, std::uint64_t>> components;
};

/// The same run in a framework, next to a plan for trainhost's own trainer.
struct FrameworkAnswer {
  std::string framework;  // "pytorch"
  Recompute recompute = Recompute::kNone;
  std::string settings;  // in which it differs besides, in run-file syntax: "lora.rank = 16, ..."; or ""
  std::string text;      // "pytorch, LoRA of rank 16, recompute full"
  Estimate estimate;     // of one device
  bool budget_known = false;
  std::uint64_t budget_bytes = 0;

  Verdict verdict() const { return verdict_of(estimate.fits, budget_known, 0); }
};

/// All byte counts are per rank.
struct PlanResult {
  ModelSpec model;
  std::string framework;  // plan.framework; "" = trainhost's own trainers
  ParameterCounts parameters;
  bool parameters_known = true;      // false: model family without a known list of tensors
  std::string backend;               // id of the trainer that the run is planned for; "" = none is installed
  std::string run_line;              // "f32, 8 sequences of 128 tokens, adamw, recompute none"
  std::vector<std::string> assumed;  // "data.seq_len = 2048": not given, usual for such a run
  std::optional<RecomputeLayers> recompute_layers;  // set for train.recompute = "auto": what was chosen
  std::string recompute_text;                       // the same as text: "layers 0-3 full, 4-11 selective"
  Tier compute_tier = Tier::kHost;
  std::string mode;          // mode of a trainer that has several: "resident"
  bool budget_known = true;  // false: fit was not judged; budget_source gives the reason
  std::uint64_t budget_bytes = 0;
  std::string budget_source;  // "free memory", "memory.budget", "h100-80gb"
  std::uint64_t host_budget_bytes = 0;
  std::string host_budget_source;   // "" where host memory has no budget of its own
  std::vector<Estimate> estimates;  // the first one decides whether the run fits
  std::string estimator_rule;  // what named the estimators: "--estimator", "memory.estimators.llama", "auto"
  std::vector<FailedEstimator> failed_estimators;
  std::vector<std::string> notes;       // about the whole plan; notes of one estimator are in its report
  std::uint64_t ranks = 1;              // number of devices of the run
  std::uint32_t rank = 0;               // whose memory it is, from 1; 0: of the one that needs most
  std::uint64_t active_parameters = 0;  // used per token; 0: all of them
  std::optional<std::uint64_t> trained_parameters;  // adapters (0 for inference); not set: all of them
  std::vector<FrameworkAnswer> framework_answers;
  std::string no_framework_answer;  // why there are none; "" = not asked for, or there are some
  std::vector<Change> changes;      // filled where the run does not fit; cheapest first
  bool looked_for_changes = false;  // `changes` has all that were found
  std::string changes_note;         // why fewer than three single changes are enough; or ""
  std::vector<Limit> limits;
  std::vector<StepPhase> timeline;          // of one step, in order; empty where no step program is known
  std::optional<MemorySnapshot> snapshot;   // for --memory-snapshot only
  std::vector<runfile::FileKey> file_keys;  // of --from
  std::string command;                      // command line of this process; "" = not known

  bool host_budget_known() const { return !host_budget_source.empty(); }
  /// Host memory that the estimate needs and whose limit is not known. Bytes.
  std::uint64_t unjudged_host(const Estimate& e) const { return host_budget_known() ? 0 : e.host_bytes; }
  Verdict verdict(const Estimate& e) const {
    return verdict_of(e.fits, budget_known, unjudged_host(e) + e.disk_bytes);
  }
};

}  // namespace trainhost::planning
