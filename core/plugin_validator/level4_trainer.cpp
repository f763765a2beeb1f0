// Level 4 for trainers, without an instance: wrong arguments of probe, profile, plan and create, and their
// codes.
#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/watched_instance.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void trainer_null_is_refused(Bench& b) {
  Started started(b);
  const th_trainer t = b.subject().trainer();
  const Sample s = b.sample();
  const th_host* h = b.host().get();
  const auto refused = [&](const char* call, const char* what, const Answer& a) {
    expect(a.status == TH_E_ARG, "{} with a null {} returned {}; TH_E_ARG was expected", call, what,
           a.text());
  };
  refused("plan()", "model",
          b.report_call(s, {}, "plan()", [&](auto*, auto* r, auto* sink, auto* sum, auto* err) {
            return t.plan(h, nullptr, r, sink, sum, err);
          }));
  refused("plan()", "run",
          b.report_call(s, {}, "plan()", [&](auto* m, auto*, auto* sink, auto* sum, auto* err) {
            return t.plan(h, m, nullptr, sink, sum, err);
          }));
  refused("plan()", "sink",
          b.report_call(s, {}, "plan()", [&](auto* m, auto* r, auto*, auto* sum, auto* err) {
            return t.plan(h, m, r, nullptr, sum, err);
          }));
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  th_profile p{};
  p.struct_size = sizeof p;
  refused("profile()", "model", b.call([&](th_error* e) { return t.profile(h, nullptr, &r, &p, e); }));
  refused("profile()", "run", b.call([&](th_error* e) { return t.profile(h, &m, nullptr, &p, e); }));
}

void trainer_null_error_is_fine(Bench& b) {
  Started started(b);
  Sample s = b.sample();
  s.model.family = "no-such-family";
  s.model.hidden = 0;
  Twist t;
  t.no_error = true;
  b.plan(s, t);  // a crash is the breach
}

void trainer_says_why(Bench& b) {
  Started started(b);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.plan(w);
    if (a.ok()) return;
    expect(!a.message.empty(), "plan() refused {} with {} and no message", what, status_text(a.status));
    expect(a.error_code == a.status, "plan() refused {} with {}, but wrote {} into the error", what,
           status_text(a.status), status_text(a.error_code));
  };
  Sample wrong = b.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
  for_degenerate(b.sample(), judge);
}

void trainer_documented_codes(Bench& b) {
  Started started(b);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.plan(w);
    expect(documented(a.status), "plan() answered {} with {}, which no header has", what,
           status_text(a.status));
  };
  for_unknown_words(b.sample(), judge);
  for_degenerate(b.sample(), judge);
  Sample wrong = b.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
}

void unknown_words_are_refused(Bench& b) {
  Started started(b);
  for_unknown_words(b.sample(), [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.plan(w);
    expect(refused_well(a.status) || !documented(a.status),
           "plan() of a run with {} returned {}; TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void no_model_is_no_plan(Bench& b) {
  Started started(b);
  for_degenerate(b.sample(), [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.plan(w);
    expect(refused_well(a.status) || !documented(a.status),
           "plan() answered {} with {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void planned_only_is_unsupported(Bench& b) {
  Started started(b);
  const auto judge = [&](const char* what, auto change) {
    Sample s = b.sample();
    change(s.run);
    const ReportAnswer a = b.plan(s);
    if (a.ok()) return;  // it can
    expect(a.status == TH_E_UNSUPPORTED, "plan() of {} returned {}; TH_OK or TH_E_UNSUPPORTED was expected",
           what, a.text());
  };
  judge("a LoRA run", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 4, r.lora_targets = 1; });
  judge("a run with the Lion optimizer", [](RunSpec& r) { r.optimizer = Optimizer::kLion; });
  judge("a run on two tensor-parallel ranks", [](RunSpec& r) { r.parallel.tensor = 2; });
}

void trainer_sink_is_obeyed(Bench& b) {
  Started started(b);
  Twist t;
  t.refuse_from = 1;
  const ReportAnswer a = b.plan(b.sample(), t);
  expect(a.status == t.refuse_with,
         "the sink refused the first node with {} and plan() returned {}; the sink's code was expected",
         status_text(t.refuse_with), status_text(a.status));
  expect(a.calls_after_refusal <= 1,
         "plan() went on for {} more calls after the sink had refused; it was expected to stop",
         a.calls_after_refusal - 1);
}

void trainer_later_minor_is_fine(Bench& b) {
  Started started(b);
  const ReportAnswer now = b.plan(b.sample());
  Twist t;
  t.later_minor_bytes = 64;
  const ReportAnswer later = b.plan(b.sample(), t);
  expect(now.status == later.status && now.report.nodes.size() == later.report.nodes.size(),
         "plan() with structs 64 bytes longer, as a later minor has them, returned {}; {} was expected",
         later.text(), now.text());
}

void no_such_device(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  for (std::int32_t device : {-1, 9999}) {
    const Answer a = i.create(device);
    expect(!a.ok(), "create() on device {} returned TH_OK; there is none", device);
    expect(a.status == TH_E_ARG || a.status == TH_E_UNAVAILABLE,
           "create() on device {} returned {}; TH_E_ARG or TH_E_UNAVAILABLE was expected", device, a.text());
  }
}

void failed_create_leaves_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  Sample s = b.sample();
  s.model.family = "no-such-family";
  s.model.layers = 0;
  const std::uint64_t before = b.host().ledger().now_total();
  Instance i(b, s);
  const Answer a = i.create();
  expect(!a.ok(), "create() of a model with 0 layers returned TH_OK");
  expect(i.raw() == nullptr, "create() failed with {} and gave an instance all the same; null was expected",
         a.text());
  const std::uint64_t held = b.host().ledger().now_total() - before;
  expect(held == 0, "create() failed with {} and left {} bytes taken; none were expected", a.text(), held);
}

}  // namespace

std::vector<Check> trainer_argument_checks() {
  return {
      {"T-001",
       4,
       "plan() and profile() refuse a null model, run or sink",
       "A host with a bug learns of it by a code, not by a crash that takes the user's other work along.",
       {"C-049", "C-029"},
       trainer_null_is_refused},
      {"T-002",
       4,
       "plan() takes a null error",
       "A caller that does not want the text passes null; the code alone must come back.",
       {"C-049", "C-029"},
       trainer_null_error_is_fine},
      {"T-003",
       4,
       "A refusal says why, and the error carries the code",
       "`--backend=auto` shows this message as the reason for falling back.",
       {"C-049", "C-029"},
       trainer_says_why},
      {"T-004",
       4,
       "plan() returns documented codes alone",
       "Codes say what the caller can do. One that no header has can only be treated as a bug.",
       {"C-049", "C-029"},
       trainer_documented_codes},
      {"T-005",
       4,
       "Words that the interface does not have are refused",
       "A later host may know more optimizers and types. A trainer that takes an unknown one for its "
       "favourite trains "
       "something else than it was asked to.",
       {"C-049", "C-029"},
       unknown_words_are_refused},
      {"T-006",
       4,
       "Dimensions that make no model are refused as such",
       "0 layers or 0 heads come from half-written configs. A division by zero, or an internal error, hides "
       "the cause.",
       {"C-049", "C-029"},
       no_model_is_no_plan},
      {"T-007",
       4,
       "What it cannot train is TH_E_UNSUPPORTED",
       "LoRA, other optimizers and more ranks are valid runs. With TH_E_UNSUPPORTED the host tries the next "
       "backend.",
       {"C-049", "C-029"},
       planned_only_is_unsupported},
      {"T-008",
       4,
       "plan() stops when the sink refuses",
       "The sink's code must come back, soon: the host refuses when the user cancels or when memory is "
       "short.",
       {"C-049", "C-029"},
       trainer_sink_is_obeyed},
      {"T-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor hand over longer structs. A plugin that compares struct_size for equality "
       "stops working "
       "with the next release.",
       {"C-049", "C-029"},
       trainer_later_minor_is_fine},
      {"T-010",
       4,
       "create() refuses a device that is not there",
       "Silently taking another device trains on the one that somebody else is using.",
       {"C-049", "C-029"},
       no_such_device},
      {"T-011",
       4,
       "A failed create() leaves nothing behind",
       "The host goes on to another backend in the same process: memory that stays taken is missing there.",
       {"C-049", "C-029"},
       failed_create_leaves_nothing},
  };
}

}  // namespace trainhost::plugin_validator
