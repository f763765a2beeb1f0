// Level 5 for the memory of trainers: usage equals the plan, is reported to the host completely, and is
// freed. Two measurements: the ledger counts what the plugin takes through the host, and the heap of the
// process shows what it takes elsewhere.
#include <set>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::uint64_t kUnreportedBytes =
    1 << 20;  // heap bytes outside the ledger that are allowed for bookkeeping

/// A model of some MiB, so that tensors are larger than bookkeeping.
Sample larger(WatchedPlugin& plugin) {
  Sample s = plugin.sample();
  s.model.vocab = 512, s.model.hidden = 128, s.model.head_dim = 32, s.model.intermediate = 256;
  s.run.micro_batch = 4, s.run.seq_len = 32;
  write_config(s.model);
  return s;
}

// Everything that a run does: each part may allocate buffers of its own.
void train_evaluate_save(WatchedPlugin& plugin, WatchedInstance& i) {
  for (std::uint64_t n = 0; n < 2; ++n) {
    const StepCallResult a = i.step(make_batch(i.sample(), plugin.seed() + n), 1e-3, n);
    expect(a.ok(), "step() returned {}", a.text());
  }
  i.evaluate(make_batch(i.sample(), plugin.seed(), i.sample().run.micro_batch));
  i.save();
}

void check_memory_equals_plan(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const Sample s = larger(plugin);
  const ReportResult plan = plugin.report(s);
  expect(plan.ok(), "plan() returned {}", plan.text());
  const ReceivedReport& r = plan.report;
  // From here on, so that planning and probing do not count.
  plugin.host().ledger().reset_peaks();
  const auto held = [&](Tier t) { return plugin.host().ledger().in_use(t); };
  // By tier, TH_TIER_DEVICE to TH_TIER_HOST; other bytes of the process are subtracted.
  const std::uint64_t before[] = {0, held(Tier::kDevice), held(Tier::kPinned), held(Tier::kHost)};
  WatchedInstance i(plugin, s);
  i.create_and_init();
  train_evaluate_save(plugin, i);
  // Exact only if the plan says so: in its summary, or in every entry.
  bool exact = r.summary.claim != TH_APPROXIMATION && r.summary.claim != TH_UPPER_BOUND;
  for (const ReceivedNode& n : r.nodes)
    exact = exact && (r.summary.claim == TH_EXACT || n.mem.claim == TH_EXACT);
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_HOST; ++tier) {
    const std::uint64_t planned = r.summary.tier_peak[tier],
                        taken = plugin.host().ledger().peak(static_cast<Tier>(tier)) - before[tier];
    if (planned == 0 && taken == 0) continue;
    // A plan without a figure for a tier says that nothing is in it.
    if (planned == 0)
      throw CheckFailed(
          fmt::format("it allocated {} bytes of tier {}; its plan has no peak for that tier", taken, tier));
    if (exact)
      expect(taken == planned, "it allocated at most {} bytes of tier {}; its plan has exactly {}", taken,
             tier, planned);
    else if (r.summary.claim == TH_UPPER_BOUND)
      expect(taken <= planned, "it allocated {} bytes of tier {}; its plan has at most {}", taken, tier,
             planned);
  }
}

void check_plan_allocates_nothing(WatchedPlugin& plugin) {
  Started started(plugin);
  // reset_peaks() sets the peaks to what is in use, so the difference is what plan() took.
  plugin.host().ledger().reset_peaks();
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  plugin.report(plugin.sample());
  const std::uint64_t taken = plugin.host().ledger().peak_total() - before;
  expect(taken == 0, "plan() allocated {} bytes of the host's memory; none were expected", taken);
}

void check_destroy_frees_memory(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  WatchedInstance i(plugin, larger(plugin));
  i.create_and_init();
  train_evaluate_save(plugin, i);
  i.destroy();
  // From before the instance: a plugin may keep memory from start() to stop().
  const std::uint64_t held = plugin.host().ledger().in_use_total() - before;
  expect(held == 0, "{} bytes were still allocated after destroy(); none were expected", held);
}

void check_memory_is_reported(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // Pools, streams and caches of libraries stay for the life of the process.
  {  // the first instance may create pools of libraries
    WatchedInstance i(plugin, larger(plugin));
    i.create_and_init();
    train_evaluate_save(plugin, i);
  }
  const std::uint64_t before = heap_bytes();
  const std::uint64_t ledger_before = plugin.host().ledger().in_use_total();
  WatchedInstance i(plugin, larger(plugin));
  i.create_and_init();
  i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  const std::uint64_t grown = heap_bytes() > before ? heap_bytes() - before : 0;
  const std::uint64_t known = plugin.host().ledger().in_use_total() - ledger_before;
  // Only growth that the ledger does not know is a fault; the ledger's own blocks are on the same heap.
  expect(grown <= known + kUnreportedBytes,
         "the heap grew by {} bytes while the host allocated {}; allocate tensor memory with alloc() or "
         "report it with took()",
         grown, known);
}

void check_steps_allocate_nothing(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  std::uint64_t held = 0;
  for (std::uint64_t n = 0; n < 12; ++n) {
    i.step(batch, 1e-3, n);
    // After the second step: the first may allocate what later ones reuse.
    if (n == 1) held = plugin.host().ledger().in_use_total();
  }
  const std::uint64_t after = plugin.host().ledger().in_use_total();
  expect(after <= held, "10 steps increased the allocated memory by {} bytes; none were expected",
         after - held);
}

void check_counters_never_decrease(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  if (!i.table().counters) throw CheckSkipped("it has no counters()");
  i.create_and_init();
  th_counters before{}, now{};
  for (std::uint64_t n = 0; n < 4; ++n) {
    i.step(make_batch(i.sample(), plugin.seed()), 1e-3, n);
    const CallResult a = i.counters(now);
    expect(a.ok(), "counters() returned {}", a.text());
    const auto grows = [&](std::uint64_t was, std::uint64_t is, const char* name) {
      expect(is >= was, "the counter {} decreased from {} to {} at step {}", name, was, is, n + 1);
    };
    grows(before.h2d_bytes, now.h2d_bytes, "h2d_bytes"), grows(before.d2h_bytes, now.d2h_bytes, "d2h_bytes");
    grows(before.h2d_count, now.h2d_count, "h2d_count"), grows(before.d2h_count, now.d2h_count, "d2h_count");
    grows(before.sync_count, now.sync_count, "sync_count"), grows(before.launches, now.launches, "launches");
    grows(before.compute_ns, now.compute_ns, "compute_ns"),
        grows(before.stream_bytes, now.stream_bytes, "stream_bytes");
    // Every reading is compared with the previous one, not with the first: a counter may be reset in between.
    before = now;
  }
}

}  // namespace

std::vector<Check> trainer_memory_checks() {
  return {
      {"T-044",
       5,
       "A step does not increase memory use",
       "A run whose steps each keep a little memory runs out of memory after hours. Fix: allocate "
       "everything in create().",
       {"T-022"},
       check_steps_allocate_nothing},
      {"T-040",
       5,
       "It uses exactly the memory that it planned",
       "A run that fits according to its plan must fit. The peak that the ledger counted is compared with "
       "the plan: equal if the plan is exact, at most equal if it is an upper bound. Fix: add the buffer "
       "that is missing in plan(), or claim an upper bound.",
       {"T-011", "T-022", "T-044", "C-076"},
       check_memory_equals_plan},
      {"T-041",
       5,
       "Planning allocates no memory of the run",
       "Plans are made for models a thousand times larger than this machine. Fix: compute sizes in plan() "
       "without allocating buffers of that size.",
       {"C-070"},
       check_plan_allocates_nothing},
      {"T-042",
       5,
       "destroy() frees everything",
       "Sweeps and searches train many runs in one process. Fix: call release() in destroy() for every "
       "block of the instance, also for a run that failed.",
       {"T-011", "T-022"},
       check_destroy_frees_memory},
      {"T-043",
       5,
       "All tensor memory is reported to the host",
       "The ledger does not see memory from malloc(): the system kills the run, although its plan fits. "
       "Fix: allocate with the host's alloc(), or report the memory with took().",
       {"T-042"},
       check_memory_is_reported},
      {"T-045",
       5,
       "Counters never decrease",
       "They are sums since create(). `verify` subtracts two readings; a decrease becomes a huge number. "
       "Fix: add to 64-bit counters that only create() sets to 0.",
       {"T-022"},
       check_counters_never_decrease},
  };
}

}  // namespace trainhost::plugin_validator
