// Level 9: drawn models, runs and structs. Whatever is asked, a plugin answers: a report or a documented
// refusal, the same one each time, and what it says that it can train it trains.
#include <cmath>

#include "core/base/text.hpp"
#include "core/plugin_validator/fuzz.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kCases = 100, kTrainings = 16;

void announce(Bench& b, const Sample& s, std::uint64_t case_seed) {
  if (b.around().at_case) b.around().at_case(described(s, case_seed));
}

/// A code that tells the host to go on or to shrink the run.
bool plain_refusal(th_status s) {
  return refused_well(s) || s == TH_E_UNAVAILABLE || s == TH_E_HOST_OOM || s == TH_E_DEVICE_OOM;
}

void answers_anything(Bench& b) {
  Started started(b);
  each_case(b, kCases, [&](std::uint64_t n) {
    const Sample s = drawn_sample(b.sample(), n);
    announce(b, s, n);
    if (!b.is_trainer()) {
      const int score = b.match(s);
      expect(score >= 0 && score <= 1000, "match() of {} returned {}; 0 to 1000 was expected",
             described(s, n), score);
    }
    const ReportAnswer a = b.report(s);
    expect(a.ok() || plain_refusal(a.status),
           "{} was answered with {}; a report, TH_E_ARG or TH_E_UNSUPPORTED was expected", described(s, n),
           a.text());
    expect(a.ok() || !a.message.empty(), "{} was refused with {} and no message", described(s, n), a.text());
    if (!a.ok()) return;
    expect(!a.report.nodes.empty(), "{} was answered with TH_OK and no node", described(s, n));
    for (const SeenNode& node : a.report.nodes)
      expect(node.mem.bytes >> 63 == 0, "{} has a node of {} bytes, which is beyond 2^63", described(s, n),
             node.mem.bytes);
  });
}

void answers_alike(Bench& b) {
  Started started(b);
  each_case(b, kCases, [&](std::uint64_t n) {
    const Sample s = drawn_sample(b.sample(), n);
    announce(b, s, n);
    const ReportAnswer a = b.report(s), again = b.report(s);
    expect(a.status == again.status, "{} was answered with {} and then with {}; the same was expected",
           described(s, n), a.text(), again.text());
    expect(printed(a.report) == printed(again.report), "{} gave two different reports; the same was expected",
           described(s, n));
  });
}

void longer_structs(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  const std::string expected = printed(b.report(s).report);
  each_case(b, kCases, [&](std::uint64_t n) {
    Twist t;
    t.later_minor_bytes = static_cast<std::uint32_t>(8 * (1 + (n * 2654435761u >> 7) % 400));
    t.later_minor_fill = n % 3 == 0 ? 0xff : n % 3 == 1 ? 0 : 0x5a;
    const std::string what = fmt::format("case {} (model and run {} bytes longer, every byte {:#04x})", n,
                                         t.later_minor_bytes, t.later_minor_fill);
    if (b.around().at_case) b.around().at_case(what);
    const ReportAnswer a = b.report(s, t);
    expect(a.ok(), "{} was answered with {}; fields of a later minor are none of its business", what,
           a.text());
    expect(printed(a.report) == expected, "{} gave another report; the same was expected", what);
  });
}

void trains_what_it_plans(Bench& b) {
  Started started(b);
  b.need_device();
  const std::uint64_t before = b.host().ledger().now_total();
  each_case(b, kTrainings, [&](std::uint64_t n) {
    const Sample s = drawn_training(b.sample(), n);
    announce(b, s, n);
    const ReportAnswer plan = b.plan(s);
    if (!plan.ok()) {
      expect(plain_refusal(plan.status), "plan() of {} returned {}; TH_E_UNSUPPORTED was expected",
             described(s, n), plan.text());
      return;
    }
    {
      Instance i(b, s);
      Answer a = i.create();
      if (a.ok()) a = i.init(7);
      expect(a.ok(), "it plans {} and then returns {}", described(s, n), a.text());
      for (std::uint64_t step = 0; step < 2; ++step) {
        Batch batch = make_batch(s, n + step);
        batch.targets[0] = 0;  // at least one counts, also in sequences of one token
        const StepAnswer answer = i.step(batch, 1e-3, step);
        expect(answer.ok(), "step() of {} returned {}", described(s, n), answer.text());
        const double most = 10 + 2 * std::log(static_cast<double>(s.model.vocab));
        expect(answer.out.loss >= 0 && answer.out.loss < most,
               "step() of {} gave the loss {}; 0 to {:.0f} was expected", described(s, n), answer.out.loss,
               most);
      }
      const SaveAnswer saved = i.save();
      expect(saved.ok(), "save() of {} returned {}", described(s, n), saved.text());
      assembled(saved.pieces);
    }
    const std::uint64_t held = b.host().ledger().now_total() - before;
    expect(held == 0, "{} bytes stayed taken after {}", held, described(s, n));
  });
}

/// Those that are about reports, for one kind: `first` is their first id, the others need what keeps them
/// from saying what lower levels said.
std::vector<Check> report_cases(const std::string& kind, int first, std::vector<std::string> codes,
                                const std::string& sizes) {
  const auto id = [&](int n) { return fmt::format("{}-{:03}", kind, first + n); };
  codes.insert(codes.end(), {"C-070", "C-075"});
  return {
      {id(0), 9, "It answers whatever model and run it is asked about",
       "Searches and typing errors ask for everything: zero heads, 2^32 layers, half a config.json, families "
       "of tomorrow. A "
       "report or a refusal that says why; never a crash, a hang or TH_E_INTERNAL. `--fuzz SECONDS` goes on "
       "for longer, "
       "`--seed` repeats a case.",
       codes, answers_anything},
      {id(1),
       9,
       "It answers the same question alike",
       "Caches, and people who compare two runs, rely on it: the same model and run give the same code and "
       "the same report.",
       {id(0), "C-077"},
       answers_alike},
      {id(2),
       9,
       "Structs of any later minor are read as far as it knows them",
       "Hosts of later minors send longer structs whose new fields are set. struct_size is no length to "
       "copy, and what lies "
       "beyond the known fields is none of the plugin's business.",
       {sizes, "C-070", "C-077"},
       longer_structs},
  };
}

}  // namespace

std::vector<Check> fuzz_checks() {
  std::vector<Check> all = report_cases("E", 30, {"E-004", "E-005", "E-006", "E-007", "E-011"}, "E-009");
  for (Check& c : report_cases("T", 91, {"T-003", "T-004", "T-006"}, "T-009")) all.push_back(std::move(c));
  all.push_back(
      {"T-090",
       9,
       "What it plans, it trains",
       "Models with one head, sequences of one token, vocabularies of odd sizes: where plan() says yes, two "
       "updates and a save follow, with a loss that is one.",
       {"T-023", "T-027", "T-042", "T-091"},
       trains_what_it_plans});
  return all;
}

}  // namespace trainhost::plugin_validator
