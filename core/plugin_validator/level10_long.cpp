// Level 10: hundreds of steps. With faults on the way (cancelled steps, failing allocations, weights that are
// no number) the run ends with the bits of one without; memory stays what the plan said, and nothing grows.
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
constexpr double kPatience = 120;  // seconds

/// A run that is disturbed before some of its steps, and takes each of them in the end.
class Disturbed {
 public:
  explicit Disturbed(Bench& b)
      : bench_(b), random_(b.seed()), instance_(std::make_unique<Instance>(b, b.sample())) {
    instance_->begin();
  }

  void step(int n) {
    const std::uint64_t drawn = random_() % 100;
    if (drawn < 20)
      cancel(n);
    else if (drawn < 30)
      spoil(n);
    else if (drawn < 40)
      starve(n);
    if (done_) return void(done_ = false);
    must_step(*instance_, batch(n), 1e-3, n);
  }
  AllWeights weights() { return weights_of(*instance_); }
  std::string faults() const {
    return fmt::format("{} cancelled steps, {} that were not finite, {} without memory", cancelled_, spoiled_,
                       starved_);
  }

 private:
  Batch batch(int n) { return make_batch(instance_->sample(), 1000 + static_cast<std::uint64_t>(n)); }

  void cancel(int n) {
    bench_.host().cancel_after(static_cast<int>(random_() % 3));
    const StepAnswer a = instance_->step(batch(n), 1e-3, n);
    bench_.host().cancel_from_now_on(false);
    expect(a.ok() || a.status == TH_E_CANCELLED,
           "step {} returned {} while the run was cancelled; TH_E_CANCELLED was expected", n + 1, a.text());
    done_ = a.ok(), cancelled_ += !done_;
  }

  void spoil(int n) {
    const AllWeights now = weights_of(*instance_);
    const std::string name = now.count("lm_head.weight") ? "lm_head.weight" : now.begin()->first;
    Weights bad = now.at(name);
    bad.values[0] = std::numeric_limits<float>::quiet_NaN();
    if (!load_piece(*instance_, name, bad, 0, 1).ok()) return;
    const StepAnswer a = instance_->step(batch(n), 1e-3, n);
    expect(a.status == TH_E_NONFINITE, "step {} with a weight that is no number returned {}", n + 1,
           a.text());
    const Answer mended = load_piece(*instance_, name, now.at(name), 0, 1);
    expect(mended.ok(), "load() of one element after TH_E_NONFINITE returned {}", mended.text());
    ++spoiled_;
  }

  void starve(int n) {
    const Checkpoint c = checkpoint_of(*instance_);
    bench_.host().fail_alloc(1);
    const StepAnswer a = instance_->step(batch(n), 1e-3, n);
    const bool asked = bench_.host().allocs() > 0;
    bench_.host().fail_alloc(0);
    starved_ += asked;
    if (a.ok()) return void(done_ = true);
    expect(a.status == TH_E_HOST_OOM || a.status == TH_E_DEVICE_OOM,
           "step {} returned {} when an allocation failed", n + 1, a.text());
    instance_ = std::make_unique<Instance>(bench_, bench_.sample());
    revive(*instance_, c);
  }

  Bench& bench_;
  std::mt19937_64 random_;
  std::unique_ptr<Instance> instance_;
  bool done_ = false;
  int cancelled_ = 0, spoiled_ = 0, starved_ = 0;
};

void faults_leave_no_trace(Bench& b) {
  Started started(b);
  b.need_device();
  Disturbed d(b);
  for (int n = 0; n < kLongRunSteps; ++n) d.step(n);
  Instance calm(b, b.sample());
  calm.begin();
  for (int n = 0; n < kLongRunSteps; ++n)
    must_step(calm, make_batch(calm.sample(), 1000 + static_cast<std::uint64_t>(n)), 1e-3, n);
  const std::string where = first_difference(weights_of(calm), d.weights());
  expect(where.empty(), "{} steps with {} did not end with the weights of {} steps without: {} differs",
         kLongRunSteps, d.faults(), kLongRunSteps, where);
  b.figure(fmt::format("{} steps with {}", kLongRunSteps, d.faults()));
}

void peak_stays_planned(Bench& b) {
  Started started(b);
  b.need_device();
  const Sample s = b.sample();
  const ReportAnswer plan = b.plan(s);
  expect(plan.ok(), "plan() returned {}", plan.text());
  plugin::Ledger& ledger = b.host().ledger();
  std::uint64_t before[TH_TIER_SLOTS] = {};
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_HOST; ++t) before[t] = ledger.now(static_cast<Tier>(t));
  ledger.restart_peaks();
  Instance i(b, s);
  i.begin();
  for (int n = 0; n < kLongRunSteps; ++n) {
    must_step(i, make_batch(s, b.seed() + n), 1e-3, n);
    if (n % 25 == 24) must_evaluate(i, make_batch(s, b.seed(), s.run.micro_batch)), checkpoint_of(i);
  }
  std::string figures;
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_HOST; ++t) {
    const std::uint64_t planned = plan.report.summary.tier_peak[t],
                        taken = ledger.peak(static_cast<Tier>(t)) - before[t];
    if (planned == 0 && taken == 0) continue;
    if (planned == 0 || plan.report.summary.claim == TH_APPROXIMATION)
      continue;  // it claims nothing, or about so much
    expect(taken <= planned,
           "in {} steps with evaluations and saves it took {} bytes of tier {}; its plan says {}",
           kLongRunSteps, taken, t, planned);
    figures +=
        fmt::format("{}tier {}: {} bytes taken, {} planned", figures.empty() ? "" : "; ", t, taken, planned);
  }
  b.figure(figures);
}

void nothing_grows(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  std::uint64_t heap = 0, resident = 0;
  for (int n = 0; n < kFlatSteps; ++n) {
    must_step(i, batch, 1e-4, n);
    if (n + 1 == kWarmSteps) heap = heap_bytes(), resident = resident_bytes();
  }
  const std::uint64_t heap_after = heap_bytes(), resident_after = resident_bytes();
  expect(heap_after <= heap + (16 << 10), "{} steps made the heap {} bytes larger; none were expected",
         kFlatSteps - kWarmSteps, heap_after - heap);
  expect(resident_after <= resident + (2 << 20),
         "{} steps made the process {} bytes larger; none were expected", kFlatSteps - kWarmSteps,
         resident_after - resident);
}

void estimates_grow_nothing(Bench& b) {
  Started started(b);
  const th_estimator e = b.subject().estimator();
  static th_mem_sink sink{sizeof sink, 0, nullptr,
                          [](th_mem_sink*, const th_mem*) { return th_status{TH_OK}; },
                          [](th_mem_sink*, const char*) { return th_status{TH_OK}; }};
  constexpr int kEstimates = 3000;
  std::uint64_t heap = 0;
  for (int n = 0; n < kEstimates; ++n) {
    Sample s = b.sample();
    s.run.micro_batch = 1 + n % 16, s.run.accumulate = 1 + n % 3;
    const th_model m = s.c_model();
    const th_run r = s.c_run();
    th_mem_summary sum{};
    th_error error{};
    sum.struct_size = sizeof sum, error.struct_size = sizeof error;
    CheckingHost::Legal legal(b.host());
    e.match(&m, &r);
    const th_status status = e.estimate(b.host().get(), &m, &r, nullptr, &sink, &sum, &error);
    expect(status == TH_OK, "estimate() number {} returned {}", n + 1, status_text(status));
    if (n + 1 == kEstimates / 4) heap = heap_bytes();
  }
  const std::uint64_t after = heap_bytes();
  expect(after <= heap + (16 << 10),
         "{} estimates of 48 runs made the heap {} bytes larger; none were expected", kEstimates * 3 / 4,
         after - heap);
}

}  // namespace

std::vector<Check> long_run_checks() {
  return {
      {"T-100",
       10,
       "A run with faults ends with the bits of one without",
       "200 steps, a third of them disturbed: cancelled in the middle, weights that are no number and mended "
       "again, "
       "allocations that fail. Each step is taken in the end, and the weights must be those of a run that "
       "nothing happened "
       "to.",
       {"T-053", "T-059", "T-072", "T-061", "T-074"},
       faults_leave_no_trace,
       false,
       kPatience},
      {"T-101",
       10,
       "Over a long run it takes no more than it planned",
       "200 steps with evaluations and saves between them: the measured peak of every tier stays at or below "
       "the plan's.",
       {"T-040", "T-044", "T-022"},
       peak_stays_planned,
       false,
       kPatience},
      {"T-102",
       10,
       "Hundreds of steps make nothing grow",
       "A kilobyte a step is a gigabyte after a week. Heap and resident memory after 400 steps are those "
       "after 200.",
       {"T-044", "T-043", "T-101", "T-083"},
       nothing_grows,
       true,
       kPatience},
      {"E-100",
       10,
       "Thousands of estimates make nothing grow",
       "A search asks about every layout in turn: what a cache keeps of each question is a leak when nobody "
       "asks again.",
       {"E-015", "C-098"},
       estimates_grow_nothing,
       true,
       kPatience},
  };
}

}  // namespace trainhost::plugin_validator
