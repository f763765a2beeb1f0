// Level 5 for a trainer's memory: what it takes is what it planned, all of it through the host, and all of it
// comes back.
#include <set>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::uint64_t kUnseen = 1 << 20;  // heap beside the ledger that bookkeeping may take

/// Large enough that tensors outweigh bookkeeping: some MiB.
Sample larger(Bench& b) {
  Sample s = b.sample();
  s.model.vocab = 512, s.model.hidden = 128, s.model.head_dim = 32, s.model.intermediate = 256;
  s.run.micro_batch = 4, s.run.seq_len = 32;
  write_config(s.model);
  return s;
}

void drive(Bench& b, Instance& i) {
  for (std::uint64_t n = 0; n < 2; ++n) {
    const StepAnswer a = i.step(make_batch(i.sample(), b.seed() + n), 1e-3, n);
    expect(a.ok(), "step() returned {}", a.text());
  }
  i.evaluate(make_batch(i.sample(), b.seed(), i.sample().run.micro_batch));
  i.save();
}

void plan_is_what_it_takes(Bench& b) {
  Started started(b);
  b.need_device();
  const Sample s = larger(b);
  const ReportAnswer plan = b.plan(s);
  expect(plan.ok(), "plan() returned {}", plan.text());
  const SeenReport& r = plan.report;
  b.host().ledger().restart_peaks();
  const auto held = [&](Tier t) { return b.host().ledger().now(t); };
  const std::uint64_t before[] = {0, held(Tier::kDevice), held(Tier::kPinned), held(Tier::kHost)};
  Instance i(b, s);
  i.begin();
  drive(b, i);
  bool exact = r.summary.claim != TH_APPROXIMATION && r.summary.claim != TH_UPPER_BOUND;
  for (const SeenNode& n : r.nodes) exact = exact && (r.summary.claim == TH_EXACT || n.mem.claim == TH_EXACT);
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_HOST; ++tier) {
    const std::uint64_t planned = r.summary.tier_peak[tier],
                        taken = b.host().ledger().peak(static_cast<Tier>(tier)) - before[tier];
    if (planned == 0 && taken == 0) continue;
    if (planned == 0)
      throw Broken(fmt::format("it took {} bytes of tier {}; its plan gives no peak for it", taken, tier));
    if (exact)
      expect(taken == planned, "it took {} bytes of tier {} at most; its plan says exactly {}", taken, tier,
             planned);
    else if (r.summary.claim == TH_UPPER_BOUND)
      expect(taken <= planned, "it took {} bytes of tier {}; its plan says {} at most", taken, tier, planned);
  }
}

void planning_takes_nothing(Bench& b) {
  Started started(b);
  b.host().ledger().restart_peaks();
  const std::uint64_t before = b.host().ledger().now_total();
  b.plan(b.sample());
  const std::uint64_t taken = b.host().ledger().peak_total() - before;
  expect(taken == 0, "plan() took {} bytes of the host's memory; none were expected", taken);
}

void gives_all_back(Bench& b) {
  Started started(b);
  b.need_device();
  const std::uint64_t before = b.host().ledger().now_total();
  Instance i(b, larger(b));
  i.begin();
  drive(b, i);
  i.destroy();
  const std::uint64_t held = b.host().ledger().now_total() - before;
  expect(held == 0, "{} bytes were still taken after destroy(); none were expected", held);
}

void nothing_behind_the_hosts_back(Bench& b) {
  Started started(b);
  b.need_device();
  {  // the first instance may set up pools of libraries
    Instance i(b, larger(b));
    i.begin();
    drive(b, i);
  }
  const std::uint64_t before = heap_bytes();
  const std::uint64_t ledger_before = b.host().ledger().now_total();
  Instance i(b, larger(b));
  i.begin();
  i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
  const std::uint64_t grown = heap_bytes() > before ? heap_bytes() - before : 0;
  const std::uint64_t known = b.host().ledger().now_total() - ledger_before;
  expect(grown <= known + kUnseen,
         "the heap grew by {} bytes while the host gave out {}; tensor memory is to be taken with "
         "alloc() or reported with took()",
         grown, known);
}

void no_growth_by_step(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  std::uint64_t held = 0;
  for (std::uint64_t n = 0; n < 12; ++n) {
    i.step(batch, 1e-3, n);
    if (n == 1) held = b.host().ledger().now_total();
  }
  const std::uint64_t after = b.host().ledger().now_total();
  expect(after <= held, "10 steps made what is taken grow by {} bytes; none were expected", after - held);
}

void counters_never_fall(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  if (!i.table().counters) throw NotHere("it has no counters()");
  i.begin();
  th_counters before{}, now{};
  for (std::uint64_t n = 0; n < 4; ++n) {
    i.step(make_batch(i.sample(), b.seed()), 1e-3, n);
    const Answer a = i.counters(now);
    expect(a.ok(), "counters() returned {}", a.text());
    const auto grows = [&](std::uint64_t was, std::uint64_t is, const char* name) {
      expect(is >= was, "the counter {} fell from {} to {} at step {}", name, was, is, n + 1);
    };
    grows(before.h2d_bytes, now.h2d_bytes, "h2d_bytes"), grows(before.d2h_bytes, now.d2h_bytes, "d2h_bytes");
    grows(before.h2d_count, now.h2d_count, "h2d_count"), grows(before.d2h_count, now.d2h_count, "d2h_count");
    grows(before.sync_count, now.sync_count, "sync_count"), grows(before.launches, now.launches, "launches");
    grows(before.compute_ns, now.compute_ns, "compute_ns"),
        grows(before.stream_bytes, now.stream_bytes, "stream_bytes");
    before = now;
  }
}

}  // namespace

std::vector<Check> trainer_memory_checks() {
  return {
      {"T-044",
       5,
       "A step takes nothing that stays",
       "Everything is taken in create(): a step that keeps a little is out of memory after a night.",
       {"T-022"},
       no_growth_by_step},
      {"T-040",
       5,
       "What it takes is what it planned",
       "The prediction is the point: a run that fits by its plan must fit. What the ledger counted at the "
       "peak is held "
       "against the plan, to the byte where the plan claims to be exact.",
       {"T-011", "T-022", "T-044", "C-076"},
       plan_is_what_it_takes},
      {"T-041",
       5,
       "Planning takes no memory of the run",
       "Plans are made for models a thousand times the size of this machine.",
       {"C-070"},
       planning_takes_nothing},
      {"T-042",
       5,
       "destroy() gives everything back",
       "Sweeps and searches train many runs in one process.",
       {"T-011", "T-022"},
       gives_all_back},
      {"T-043",
       5,
       "It takes no tensor memory behind the host's back",
       "Memory from malloc() is in no ledger: the run is killed by the system instead of being refused by "
       "the plan. Take "
       "it with the host's alloc(), or report it with took().",
       {"T-042"},
       nothing_behind_the_hosts_back},
      {"T-045",
       5,
       "Counters never fall",
       "They are sums since create(). `verify` subtracts two readings and takes a fall for 18 exabytes.",
       {"T-022"},
       counters_never_fall},
  };
}

}  // namespace trainhost::plugin_validator
