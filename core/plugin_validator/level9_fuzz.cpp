// Level 9: random models, runs and structs. The plugin must return a report or a documented error, the same
// one each time, and must be able to train what it plans. Every case has a number, which with the seed
// determines it; it is announced before it begins, so that a crash names it.
#include <cmath>

#include "core/base/text.hpp"
#include "core/plugin_validator/fuzz.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kCases = 100, kTrainings = 16;

void announce(WatchedPlugin& plugin, const Sample& s, std::uint64_t case_seed) {
  if (plugin.environment().announce_case) plugin.environment().announce_case(describe_case(s, case_seed));
}

/// A code after which the host tries the next candidate or a smaller run.
bool is_usable_code(th_status s) {
  return is_valid_rejection(s) || s == TH_E_UNAVAILABLE || s == TH_E_HOST_OOM || s == TH_E_DEVICE_OOM;
}

void check_random_requests(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_case(plugin, kCases, [&](std::uint64_t n) {
    const Sample s = draw_sample(plugin.sample(), n);
    announce(plugin, s, n);
    // An estimator is asked as a host does: match() first, whatever it answers.
    if (!plugin.is_trainer()) {
      const int score = plugin.match(s);
      expect(score >= 0 && score <= 1000, "match() of {} returned {}; 0 to 1000 was expected",
             describe_case(s, n), score);
    }
    const ReportResult a = plugin.report(s);
    // TH_E_INTERNAL and TH_E_STATE are not acceptable answers to a request, however odd.
    expect(a.ok() || is_usable_code(a.status),
           "{} returned {}; a report, TH_E_ARG or TH_E_UNSUPPORTED was expected", describe_case(s, n),
           a.text());
    expect(a.ok() || !a.message.empty(), "{} was rejected with {} and no message", describe_case(s, n),
           a.text());
    if (!a.ok()) return;
    expect(!a.report.nodes.empty(), "{} returned TH_OK and no node", describe_case(s, n));
    // A size beyond 63 bits is an overflow; a request of that size must be rejected.
    for (const ReceivedNode& node : a.report.nodes)
      expect(node.mem.bytes >> 63 == 0, "{} has a node of {} bytes, which is beyond 2^63",
             describe_case(s, n), node.mem.bytes);
  });
}

void check_random_requests_repeat(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_case(plugin, kCases, [&](std::uint64_t n) {
    const Sample s = draw_sample(plugin.sample(), n);
    announce(plugin, s, n);
    const ReportResult a = plugin.report(s), again = plugin.report(s);
    expect(a.status == again.status, "{} returned {} and then {}; the same was expected", describe_case(s, n),
           a.text(), again.text());
    expect(report_text(a.report) == report_text(again.report),
           "{} returned two different reports; the same was expected", describe_case(s, n));
  });
}

void check_random_longer_structs(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  const std::string expected = report_text(plugin.report(s).report);
  for_each_case(plugin, kCases, [&](std::uint64_t n) {
    CallVariation t;
    // 8 to 3200 bytes longer; the multiplication spreads consecutive numbers over the range.
    t.later_minor_bytes = static_cast<std::uint32_t>(8 * (1 + (n * 2654435761u >> 7) % 400));
    // All bits set, none set, or a pattern: whatever a later minor may store there.
    t.later_minor_fill = n % 3 == 0 ? 0xff : n % 3 == 1 ? 0 : 0x5a;
    const std::string what = fmt::format("case {} (model and run {} bytes longer, every byte {:#04x})", n,
                                         t.later_minor_bytes, t.later_minor_fill);
    if (plugin.environment().announce_case) plugin.environment().announce_case(what);
    const ReportResult a = plugin.report(s, t);
    expect(a.ok(), "{} returned {}; fields of a later minor must be ignored", what, a.text());
    expect(report_text(a.report) == expected, "{} returned a different report; the same was expected", what);
  });
}

// Tiny runs, so that 16 of them take seconds.
void check_random_training_runs(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  for_each_case(plugin, kTrainings, [&](std::uint64_t n) {
    const Sample s = draw_training_run(plugin.sample(), n);
    announce(plugin, s, n);
    const ReportResult plan = plugin.report(s);
    // A trainer may refuse a drawn run, but must not fail later with one that it accepted.
    if (!plan.ok()) {
      expect(is_usable_code(plan.status), "plan() of {} returned {}; TH_E_UNSUPPORTED was expected",
             describe_case(s, n), plan.text());
      return;
    }
    {
      WatchedInstance i(plugin, s);
      CallResult a = i.create();
      if (a.ok()) a = i.init(7);
      expect(a.ok(), "plan() accepted {}, but create() or init() returned {}", describe_case(s, n), a.text());
      for (std::uint64_t step = 0; step < 2; ++step) {
        Batch batch = make_batch(s, n + step);
        batch.targets[0] = 0;  // at least one counts, also in sequences of one token
        const StepCallResult answer = i.step(batch, 1e-3, step);
        expect(answer.ok(), "step() of {} returned {}", describe_case(s, n), answer.text());
        // 2 ln(V) + 10: fresh weights of any usual initialization are far below.
        const double most = 10 + 2 * std::log(static_cast<double>(s.model.vocab));
        expect(answer.out.loss >= 0 && answer.out.loss < most,
               "step() of {} returned the loss {}; 0 to {:.0f} was expected", describe_case(s, n),
               answer.out.loss, most);
      }
      const SaveResult saved = i.save();
      expect(saved.ok(), "save() of {} returned {}", describe_case(s, n), saved.text());
      // Throws for missing or repeated elements.
      assembled(saved.pieces);
    }
    const std::uint64_t held = plugin.host().ledger().in_use_total() - before;
    expect(held == 0, "{} bytes stayed allocated after {}", held, describe_case(s, n));
  });
}

/// The checks of reports, for one kind. `first` is the number of the first id; `codes` and `sizes` are
/// prerequisites, so that failures of lower levels are not reported again.
/// Ids are permanent, hence the numbers per kind.
std::vector<Check> report_cases(const std::string& kind, int first, std::vector<std::string> codes,
                                const std::string& sizes) {
  const auto id = [&](int n) { return fmt::format("{}-{:03}", kind, first + n); };
  codes.insert(codes.end(), {"C-070", "C-075"});
  return {
      {id(0), 9, "It answers any model and run",
       "Searches and typing errors produce every kind of request: zero heads, 2^32 layers, truncated "
       "config.json, unknown families. The plugin must return a report or an error with a reason; never a "
       "crash, a hang or TH_E_INTERNAL. `--fuzz SECONDS` runs longer; `--seed` repeats a case. Fix: handle "
       "the case "
       "that the message names; reject what is not covered with TH_E_UNSUPPORTED.",
       codes, check_random_requests},
      {id(1),
       9,
       "It answers the same request identically",
       "Caches and comparisons of two runs rely on it: the same model and run give the same code and the "
       "same report. Fix: compute the report from the arguments alone.",
       {id(0), "C-077"},
       check_random_requests_repeat},
      {id(2),
       9,
       "Longer structs of any later minor are read only as far as known",
       "Hosts of later minors pass longer structs whose new fields are set. Fix: copy at most the size of "
       "the struct "
       "that you were built with, and ignore bytes beyond the known fields.",
       {sizes, "C-070", "C-077"},
       check_random_longer_structs},
  };
}

}  // namespace

std::vector<Check> fuzz_checks() {
  std::vector<Check> all = report_cases("E", 30, {"E-004", "E-005", "E-006", "E-007", "E-011"}, "E-009");
  for (Check& c : report_cases("T", 91, {"T-003", "T-004", "T-006"}, "T-009")) all.push_back(std::move(c));
  all.push_back(
      {"T-090",
       9,
       "It trains every run that it plans",
       "Models with one head, sequences of one token, vocabularies of odd sizes: if plan() accepts a run, "
       "two steps and a save must succeed with a plausible loss. Fix: reject the run in plan(), or handle "
       "the shape that the message names.",
       {"T-023", "T-027", "T-042", "T-091"},
       check_random_training_runs});
  return all;
}

}  // namespace trainhost::plugin_validator
