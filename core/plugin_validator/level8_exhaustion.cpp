// Level 8: memory runs out at every place where a plugin asks the host for it, once each: a clean code with a
// message, and nothing left taken.
#include <functional>
#include <string_view>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kMostAllocs = 400;  // a plugin that asks more often is tried at the first ones

bool out_of_memory(th_status s) { return s == TH_E_HOST_OOM || s == TH_E_DEVICE_OOM; }

/// Runs f with the n-th allocation failing, for n = 1, 2, ... until f makes fewer than n; `then` after each,
/// with none failing.
void each_allocation(Bench& b, const std::function<void(int)>& f, const std::function<void(int)>& then = {}) {
  for (int n = 1; n <= kMostAllocs; ++n) {
    b.host().fail_alloc(n);
    f(n);
    const bool reached = b.host().allocs() >= n;
    b.host().fail_alloc(0);
    if (!reached) return;
    if (then) then(n);
  }
}

void starts_without_memory(Bench& b) {
  each_allocation(b, [&](int n) {
    const Answer a = b.start();
    if (a.status == TH_E_UNAVAILABLE)
      throw NotHere("its start() says that it cannot be used here: " + a.message);
    if (a.ok()) {
      const ReportAnswer r = b.report(b.sample());
      expect(r.ok() || out_of_memory(r.status),
             "a report returned {} when allocation {} failed; TH_E_HOST_OOM was expected", r.text(), n);
      expect(r.ok() || !r.message.empty(), "a report returned {} without a message when allocation {} failed",
             r.text(), n);
      b.stop();
    } else {
      expect(out_of_memory(a.status),
             "start() returned {} when allocation {} failed; TH_E_HOST_OOM was expected", a.text(), n);
      expect(!a.message.empty(), "start() returned {} without a message when allocation {} failed", a.text(),
             n);
    }
    const std::uint64_t held = b.host().ledger().now_total();
    expect(held == 0, "{} bytes stayed taken after allocation {} failed; none were expected", held, n);
  });
}

struct Ending {
  const char* call = "";
  Answer answer;  // of the first call that failed
};

/// A short life up to the first call that fails.
Ending short_life(Bench& b, Instance& i) {
  Answer a = i.create();
  if (!a.ok()) return {"create()", a};
  a = i.init(7);
  if (!a.ok()) return {"init()", a};
  a = i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
  if (!a.ok()) return {"step()", a};
  a = i.evaluate(make_batch(i.sample(), b.seed(), i.sample().run.micro_batch));
  if (!a.ok()) return {"step() that evaluates", a};
  a = i.save();
  return {a.ok() ? "" : "save()", a};
}

void clean_codes(Bench& b) {
  Started started(b);
  b.need_device();
  each_allocation(b, [&](int n) {
    Instance i(b, b.sample());
    const Ending e = short_life(b, i);
    if (e.answer.ok()) return;
    expect(out_of_memory(e.answer.status),
           "{} returned {} when allocation {} failed; TH_E_HOST_OOM was expected", e.call, e.answer.text(),
           n);
    expect(!e.answer.message.empty(), "{} returned {} without a message when allocation {} failed", e.call,
           e.answer.text(), n);
  });
}

void nothing_stays(Bench& b) {
  Started started(b);
  b.need_device();
  const std::uint64_t before = b.host().ledger().now_total();
  each_allocation(b, [&](int n) {
    Ending e;
    {
      Instance i(b, b.sample());
      e = short_life(b, i);
      expect(e.answer.ok() || e.call != std::string_view("create()") || !i.alive(),
             "create() returned {} and an instance when allocation {} failed", e.answer.text(), n);
    }
    const std::uint64_t held = b.host().ledger().now_total() - before;
    expect(held == 0, "{} bytes stayed taken after allocation {} failed in {}; none were expected", held, n,
           e.answer.ok() ? "a life" : e.call);
  });
}

void next_one_is_fine(Bench& b) {
  Started started(b);
  b.need_device();
  const auto life = [&] {
    Instance i(b, b.sample());
    i.begin();
    must_step(i, make_batch(i.sample(), b.seed()), 1e-2, 0);
    return weights_of(i);
  };
  const AllWeights expected = life();
  const auto fails = [&](int) {
    Instance i(b, b.sample());
    short_life(b, i);
  };
  each_allocation(b, fails, [&](int n) {
    std::string where;
    try {
      where = first_difference(expected, life());
    } catch (const Broken& e) {
      throw Broken(fmt::format("after allocation {} had failed in another instance, {}", n, e.what()));
    }
    expect(where.empty(), "after allocation {} had failed in another instance, {} came out different", n,
           where);
  });
}

}  // namespace

std::vector<Check> exhaustion_checks() {
  return {
      {"C-120",
       8,
       "start() and reports survive every failing allocation",
       "host->alloc() may give NULL at any time. Each of them is made to fail once: TH_E_HOST_OOM with a "
       "message, or an "
       "answer without that memory, and nothing stays taken.",
       {"C-053", "C-070"},
       starts_without_memory},
      {"T-080",
       8,
       "Every failing allocation gives TH_E_HOST_OOM or TH_E_DEVICE_OOM",
       "The code tells the host to shrink the run; any other sends the user looking for a bug. Each "
       "allocation of a short "
       "life is made to fail once.",
       {"T-022", "T-003", "T-073"},
       clean_codes},
      {"T-081",
       8,
       "Whatever allocation fails, nothing stays taken",
       "A search creates until it fits: what a refused try leaves behind makes the next one fail too.",
       {"T-042", "T-073"},
       nothing_stays},
      {"T-082",
       8,
       "After a failed allocation the next instance is as good as new",
       "A flag or a pointer that the failure left in a static variable shows in the next run.",
       {"T-080", "T-081", "T-057"},
       next_one_is_fine},
  };
}

}  // namespace trainhost::plugin_validator
