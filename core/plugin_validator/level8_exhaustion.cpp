// Level 8: each host allocation fails once. The plugin must return an out-of-memory code with a message and
// leave nothing allocated. Only allocations through the host's alloc() can be made to fail here; a failing
// malloc() is not simulated.
#include <functional>
#include <string_view>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kMostAllocs = 400;  // of a plugin with more allocations only the first ones are tested

bool out_of_memory(th_status s) { return s == TH_E_HOST_OOM || s == TH_E_DEVICE_OOM; }

/// Runs f with the n-th allocation failing, for n = 1, 2, ... until f makes fewer than n; `then` after each,
/// with none failing. So every allocation of f fails exactly once, without knowing their number before.
/// with none failing.
void fail_each_allocation(WatchedPlugin& plugin, const std::function<void(int)>& f,
                          const std::function<void(int)>& then = {}) {
  for (int n = 1; n <= kMostAllocs; ++n) {
    plugin.host().fail_alloc(n);
    f(n);
    // After the last allocation f runs undisturbed: nothing more to test.
    const bool reached = plugin.host().allocs() >= n;
    plugin.host().fail_alloc(0);
    if (!reached) return;
    if (then) then(n);
  }
}

void check_start_without_memory(WatchedPlugin& plugin) {
  fail_each_allocation(plugin, [&](int n) {
    const CallResult a = plugin.start();
    if (a.status == TH_E_UNAVAILABLE)
      throw CheckSkipped("its start() returned TH_E_UNAVAILABLE: " + a.message);
    // Success is fine: a plugin may do without the memory.
    if (a.ok()) {
      const ReportResult r = plugin.report(plugin.sample());
      expect(r.ok() || out_of_memory(r.status),
             "a report returned {} when allocation {} failed; TH_E_HOST_OOM was expected", r.text(), n);
      expect(r.ok() || !r.message.empty(), "a report returned {} without a message when allocation {} failed",
             r.text(), n);
      plugin.stop();
    } else {
      expect(out_of_memory(a.status),
             "start() returned {} when allocation {} failed; TH_E_HOST_OOM was expected", a.text(), n);
      expect(!a.message.empty(), "start() returned {} without a message when allocation {} failed", a.text(),
             n);
    }
    const std::uint64_t held = plugin.host().ledger().in_use_total();
    expect(held == 0, "{} bytes stayed allocated after allocation {} failed; none were expected", held, n);
  });
}

/// Only the first failure counts: calls after it would meet states that the interface does not define.
struct FailedCall {
  const char* call = "";
  CallResult answer;  // of the first call that failed
};

/// Runs create(), init(), step(), an evaluation and save() up to the first call that fails.
FailedCall run_until_failure(WatchedPlugin& plugin, WatchedInstance& i) {
  CallResult a = i.create();
  if (!a.ok()) return {"create()", a};
  a = i.init(7);
  if (!a.ok()) return {"init()", a};
  a = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  if (!a.ok()) return {"step()", a};
  a = i.evaluate(make_batch(i.sample(), plugin.seed(), i.sample().run.micro_batch));
  if (!a.ok()) return {"an evaluation by step()", a};
  a = i.save();
  return {a.ok() ? "" : "save()", a};
}

void check_codes_without_memory(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // The instance is destroyed at the end of each round, also after a failure.
  fail_each_allocation(plugin, [&](int n) {
    WatchedInstance i(plugin, plugin.sample());
    const FailedCall e = run_until_failure(plugin, i);
    if (e.answer.ok()) return;
    expect(out_of_memory(e.answer.status),
           "{} returned {} when allocation {} failed; TH_E_HOST_OOM was expected", e.call, e.answer.text(),
           n);
    expect(!e.answer.message.empty(), "{} returned {} without a message when allocation {} failed", e.call,
           e.answer.text(), n);
  });
}

void check_failed_allocation_frees_memory(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  fail_each_allocation(plugin, [&](int n) {
    FailedCall e;
    {
      WatchedInstance i(plugin, plugin.sample());
      e = run_until_failure(plugin, i);
      // A failed create() owns nothing, so it must not return an instance.
      expect(e.answer.ok() || e.call != std::string_view("create()") || !i.created(),
             "create() returned {} and an instance when allocation {} failed", e.answer.text(), n);
    }
    // After the destructor of the instance: destroy() may free what create() had taken.
    const std::uint64_t held = plugin.host().ledger().in_use_total() - before;
    expect(held == 0, "{} bytes stayed allocated after allocation {} failed in {}; none were expected", held,
           n, e.answer.ok() ? "create() to save()" : e.call);
  });
}

void check_instance_after_failed_allocation(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // A whole life without faults, whose weights are known from before.
  const auto weights_after_one_step = [&] {
    WatchedInstance i(plugin, plugin.sample());
    i.create_and_init();
    step_or_throw(i, make_batch(i.sample(), plugin.seed()), 1e-2, 0);
    return weights_of(i);
  };
  const AllWeights expected = weights_after_one_step();
  const auto fails = [&](int) {
    WatchedInstance i(plugin, plugin.sample());
    run_until_failure(plugin, i);
  };
  fail_each_allocation(plugin, fails, [&](int n) {
    std::string where;
    try {
      where = first_difference(expected, weights_after_one_step());
    } catch (const CheckFailed& e) {
      // The number of the allocation is in the message, so that the author can set a breakpoint.
      throw CheckFailed(fmt::format("after allocation {} had failed in another instance, {}", n, e.what()));
    }
    expect(where.empty(), "after allocation {} had failed in another instance, {} differs", n, where);
  });
}

}  // namespace

std::vector<Check> exhaustion_checks() {
  return {
      {"C-120",
       8,
       "start() and reports survive every failing allocation",
       "host->alloc() may return NULL at any time. The check makes each allocation fail once: the plugin "
       "must return TH_E_HOST_OOM with a message, or succeed without that memory, and must leave nothing "
       "allocated. Fix: test the result of every alloc(), free what the call has allocated, and return "
       "TH_E_HOST_OOM.",
       {"C-053", "C-070"},
       check_start_without_memory},
      {"T-080",
       8,
       "Every failing allocation gives TH_E_HOST_OOM or TH_E_DEVICE_OOM",
       "The code tells the host to reduce the run; any other code makes the user look for a bug. The "
       "check makes each allocation from create() to save() fail once. Fix: test the result of every "
       "allocation, and return the code of its memory tier.",
       {"T-022", "T-003", "T-073"},
       check_codes_without_memory},
      {"T-081",
       8,
       "No allocation failure leaks memory",
       "A search calls create() until a run fits. Memory that a failed attempt leaks makes the next "
       "attempt fail too. Fix: free in create() what was allocated before the failure; set pointers to "
       "null, so that destroy() can be shared.",
       {"T-042", "T-073"},
       check_failed_allocation_frees_memory},
      {"T-082",
       8,
       "After a failed allocation the next instance works normally",
       "A flag or pointer that the failure left in a static variable affects the next run. Fix: set "
       "static variables only after create() has succeeded, or remove them.",
       {"T-080", "T-081", "T-057"},
       check_instance_after_failed_allocation},
  };
}

}  // namespace trainhost::plugin_validator
