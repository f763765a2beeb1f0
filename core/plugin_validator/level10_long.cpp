// Level 10: hundreds of steps. A run with faults (cancelled steps, failing allocations, NaN weights) ends
// with the same bits as one without; memory stays within the plan and does not grow. Faults are drawn from
// the seed, so the same run can be repeated.
#include <limits>
#include <memory>
#include <random>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kLongRunSteps = 200, kWarmSteps = 200, kFlatSteps = 400;
constexpr double kExtraSeconds = 120;  // seconds

/// A run in which some steps are disturbed first and then repeated until they succeed.
class DisturbedRun {
 public:
  explicit DisturbedRun(WatchedPlugin& plugin)
      : plugin_(plugin),
        random_(plugin.seed()),
        instance_(std::make_unique<WatchedInstance>(plugin, plugin.sample())) {
    instance_->create_and_init();
  }

  void step(int n) {
    // 20 % cancelled, 10 % with NaN, 10 % without memory, 60 % undisturbed.
    const std::uint64_t drawn = random_() % 100;
    if (drawn < 20)
      cancel_step(n);
    else if (drawn < 30)
      step_with_nan(n);
    else if (drawn < 40)
      step_without_memory(n);
    // The disturbed step can succeed all the same (cancelled too late, no allocation): then it is not
    // repeated.
    if (done_) return void(done_ = false);
    // The same batch and number as in the undisturbed run.
    step_or_throw(*instance_, batch(n), 1e-3, n);
  }
  AllWeights weights() { return weights_of(*instance_); }
  std::string faults() const {
    return fmt::format("{} cancelled steps, {} with a NaN weight, {} with a failed allocation", cancelled_,
                       nan_steps_, failed_allocations_);
  }

 private:
  // Depends on the step alone, so that a repetition uses the same data.
  Batch batch(int n) { return make_batch(instance_->sample(), 1000 + static_cast<std::uint64_t>(n)); }

  void cancel_step(int n) {
    // cancelled() is true at its first, second or third call.
    plugin_.host().cancel_after(static_cast<int>(random_() % 3));
    const StepCallResult a = instance_->step(batch(n), 1e-3, n);
    plugin_.host().cancel_from_now_on(false);
    expect(a.ok() || a.status == TH_E_CANCELLED,
           "step {} returned {} while the run was cancelled; TH_E_CANCELLED was expected", n + 1, a.text());
    done_ = a.ok(), cancelled_ += !done_;
  }

  void step_with_nan(int n) {
    const AllWeights now = weights_of(*instance_);
    // The head takes part in each loss; other tensors may have rows that a batch does not use.
    const std::string name = now.count("lm_head.weight") ? "lm_head.weight" : now.begin()->first;
    Weights bad = now.at(name);
    bad.values[0] = std::numeric_limits<float>::quiet_NaN();
    // A trainer may refuse such values in load(); then there is no fault to inject.
    if (!load_piece(*instance_, name, bad, 0, 1).ok()) return;
    const StepCallResult a = instance_->step(batch(n), 1e-3, n);
    expect(a.status == TH_E_NONFINITE, "step {} with a NaN weight returned {}", n + 1, a.text());
    // One element is restored; all others must be unchanged.
    const CallResult restored = load_piece(*instance_, name, now.at(name), 0, 1);
    expect(restored.ok(), "load() of one element after TH_E_NONFINITE returned {}", restored.text());
    ++nan_steps_;
  }

  void step_without_memory(int n) {
    // The state from before: after a failed allocation the instance is replaced, as a host resumes.
    const Checkpoint c = checkpoint_of(*instance_);
    plugin_.host().fail_alloc(1);
    const StepCallResult a = instance_->step(batch(n), 1e-3, n);
    const bool asked = plugin_.host().allocs() > 0;
    plugin_.host().fail_alloc(0);
    failed_allocations_ += asked;
    if (a.ok()) return void(done_ = true);
    expect(a.status == TH_E_HOST_OOM || a.status == TH_E_DEVICE_OOM,
           "step {} returned {} when an allocation failed", n + 1, a.text());
    instance_ = std::make_unique<WatchedInstance>(plugin_, plugin_.sample());
    restore(*instance_, c);
  }

  WatchedPlugin& plugin_;
  std::mt19937_64 random_;
  std::unique_ptr<WatchedInstance> instance_;
  bool done_ = false;
  int cancelled_ = 0, nan_steps_ = 0, failed_allocations_ = 0;
};

void check_run_with_faults(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  DisturbedRun d(plugin);
  for (int n = 0; n < kLongRunSteps; ++n) d.step(n);
  WatchedInstance undisturbed(plugin, plugin.sample());
  undisturbed.create_and_init();
  for (int n = 0; n < kLongRunSteps; ++n)
    step_or_throw(undisturbed, make_batch(undisturbed.sample(), 1000 + static_cast<std::uint64_t>(n)), 1e-3,
                  n);
  const std::string where = first_difference(weights_of(undisturbed), d.weights());
  expect(where.empty(), "{} steps with {} did not end with the weights of {} undisturbed steps: {} differs",
         kLongRunSteps, d.faults(), kLongRunSteps, where);
  plugin.note_measurement(fmt::format("{} steps with {}", kLongRunSteps, d.faults()));
}

void check_peak_of_long_run(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const Sample s = plugin.sample();
  const ReportResult plan = plugin.report(s);
  expect(plan.ok(), "plan() returned {}", plan.text());
  plugin::Ledger& ledger = plugin.host().ledger();
  // Memory from before the instance is not part of its plan.
  std::uint64_t before[TH_TIER_SLOTS] = {};
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_HOST; ++t)
    before[t] = ledger.in_use(static_cast<Tier>(t));
  ledger.reset_peaks();
  WatchedInstance i(plugin, s);
  i.create_and_init();
  for (int n = 0; n < kLongRunSteps; ++n) {
    step_or_throw(i, make_batch(s, plugin.seed() + n), 1e-3, n);
    // Evaluations and saves at regular intervals: their buffers count too.
    if (n % 25 == 24) evaluate_or_throw(i, make_batch(s, plugin.seed(), s.run.micro_batch)), checkpoint_of(i);
  }
  std::string figures;
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_HOST; ++t) {
    const std::uint64_t planned = plan.report.summary.tier_peak[t],
                        taken = ledger.peak(static_cast<Tier>(t)) - before[t];
    if (planned == 0 && taken == 0) continue;
    if (planned == 0 || plan.report.summary.claim == TH_APPROXIMATION)
      continue;  // it claims nothing, or about so much
    expect(taken <= planned,
           "in {} steps with evaluations and saves it allocated {} bytes of tier {}; its plan has {}",
           kLongRunSteps, taken, t, planned);
    figures += fmt::format("{}tier {}: {} bytes allocated, {} planned", figures.empty() ? "" : "; ", t, taken,
                           planned);
  }
  plugin.note_measurement(figures);
}

void check_memory_of_long_run(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  std::uint64_t heap = 0, resident = 0;
  for (int n = 0; n < kFlatSteps; ++n) {
    step_or_throw(i, batch, 1e-4, n);
    // The first half fills caches; the second must not grow.
    if (n + 1 == kWarmSteps) heap = heap_bytes(), resident = resident_bytes();
  }
  const std::uint64_t heap_after = heap_bytes(), resident_after = resident_bytes();
  // 16 KiB over 200 steps: less than 100 bytes per step.
  expect(heap_after <= heap + (16 << 10), "{} steps increased the heap by {} bytes; none were expected",
         kFlatSteps - kWarmSteps, heap_after - heap);
  expect(resident_after <= resident + (2 << 20),
         "{} steps increased the resident memory by {} bytes; none were expected", kFlatSteps - kWarmSteps,
         resident_after - resident);
}

void check_memory_of_estimates(WatchedPlugin& plugin) {
  Started started(plugin);
  constexpr int kEstimates = 3000;
  std::uint64_t heap = 0;
  for (int n = 0; n < kEstimates; ++n) {
    Sample s = plugin.sample();
    // 48 different runs (16 x 3), so that a cache by run would show.
    s.run.micro_batch = 1 + n % 16, s.run.accumulate = 1 + n % 3;
    plugin.match(s);
    const th_status status = plugin.report_and_discard(s);
    expect(status == TH_OK, "estimate() number {} returned {}", n + 1, status_text(status));
    if (n + 1 == kEstimates / 4) heap = heap_bytes();
  }
  const std::uint64_t after = heap_bytes();
  expect(after <= heap + (16 << 10),
         "{} estimates of 48 runs increased the heap by {} bytes; none were expected", kEstimates * 3 / 4,
         after - heap);
}

}  // namespace

std::vector<Check> long_run_checks() {
  return {
      {"T-100",
       10,
       "A run with faults equals an undisturbed run bit by bit",
       "200 steps, a third of them disturbed: cancelled midway, with a NaN weight that is restored "
       "afterwards, or with a failing allocation. Each step is repeated until it succeeds; the final "
       "weights must equal those of an undisturbed run. Fix: keep the state of a step in buffers that the "
       "next step overwrites, and change weights and moments only after the last call of cancelled() and "
       "the check for finite values.",
       {"T-053", "T-059", "T-072", "T-061", "T-074"},
       check_run_with_faults,
       false,
       kExtraSeconds},
      {"T-101",
       10,
       "A long run stays within its plan",
       "200 steps with evaluations and saves: the measured peak of every memory tier must not exceed the "
       "plan. Fix: allocate everything in create(), and report every buffer in plan().",
       {"T-040", "T-044", "T-022"},
       check_peak_of_long_run,
       false,
       kExtraSeconds},
      {"T-102",
       10,
       "Hundreds of steps do not increase memory use",
       "One kilobyte per step is a gigabyte after a week. Heap and resident memory after 400 steps must "
       "equal those after 200. Fix: free what a step allocates before it returns, or allocate it in "
       "create().",
       {"T-044", "T-043", "T-101", "T-083"},
       check_memory_of_long_run,
       true,
       kExtraSeconds},
      {"E-100",
       10,
       "Thousands of estimates do not increase memory use",
       "A search asks about every parallel layout once. A cache that keeps an item per question grows "
       "without limit. Fix: limit the size of the cache, or remove it.",
       {"E-015", "C-098"},
       check_memory_of_estimates,
       true,
       kExtraSeconds},
  };
}

}  // namespace trainhost::plugin_validator
