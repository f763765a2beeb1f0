// Level 4 for estimators: wrong arguments, unusual runs, and what the answers must look like. Where the same
// holds for a trainer's plan(), level4_trainer.cpp has its twin.
#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void null_is_refused(Bench& b) {
  Started started(b);
  const th_estimator e = b.subject().estimator();
  const Sample s = b.sample();
  const th_host* h = b.host().get();
  const auto refused = [&](const char* what, const Answer& a) {
    expect(a.status == TH_E_ARG, "estimate() with a null {} returned {}; TH_E_ARG was expected", what,
           a.text());
  };
  refused("model", b.report_call(s, {}, "estimate()", [&](auto*, auto* r, auto* sink, auto* sum, auto* err) {
    return e.estimate(h, nullptr, r, nullptr, sink, sum, err);
  }));
  refused("run", b.report_call(s, {}, "estimate()", [&](auto* m, auto*, auto* sink, auto* sum, auto* err) {
    return e.estimate(h, m, nullptr, nullptr, sink, sum, err);
  }));
  refused("sink", b.report_call(s, {}, "estimate()", [&](auto* m, auto* r, auto*, auto* sum, auto* err) {
    return e.estimate(h, m, r, nullptr, nullptr, sum, err);
  }));
}

void match_of_null_is_none(Bench& b) {
  Started started(b);
  const th_estimator e = b.subject().estimator();
  const Sample s = b.sample();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  CheckingHost::Legal legal(b.host());
  const int no_model = e.match(nullptr, &r), no_run = e.match(&m, nullptr);
  expect(no_model == 0, "match() without a model returned {}; 0 was expected", no_model);
  expect(no_run == 0, "match() without a run returned {}; 0 was expected", no_run);
  th_model nameless = m;
  nameless.family = nullptr;
  const int score = e.match(&nameless, &r);
  expect(score >= 0 && score <= 1000,
         "match() of a model without a family returned {}; 0 to 1000 was expected", score);
}

void null_error_is_fine(Bench& b) {
  Started started(b);
  Sample s = b.sample();
  s.model.family = "no-such-family";
  s.model.hidden = 0;
  Twist t;
  t.no_error = true;
  b.estimate(s, t);  // a crash is the breach
}

void says_why(Bench& b) {
  Started started(b);
  Sample wrong = b.sample();
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.estimate(w);
    if (a.ok()) return;
    expect(!a.message.empty(), "estimate() refused {} with {} and no message", what, status_text(a.status));
    expect(a.error_code == a.status, "estimate() refused {} with {}, but wrote {} into the error", what,
           status_text(a.status), status_text(a.error_code));
  };
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
  for_degenerate(b.sample(), judge);
}

void documented_codes(Bench& b) {
  Started started(b);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.estimate(w);
    expect(documented(a.status), "estimate() answered {} with {}, which no header has", what,
           status_text(a.status));
  };
  for_unknown_words(b.sample(), judge);
  for_degenerate(b.sample(), judge);
  Sample wrong = b.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
}

void foreign_family_is_unsupported(Bench& b) {
  Started started(b);
  Sample s = b.sample();
  s.model.family = "no-such-family";
  write_config(s.model);
  if (b.match(s) > 0) throw NotHere("its match() takes any family");
  const ReportAnswer a = b.estimate(s);
  expect(a.ok() || a.status == TH_E_UNSUPPORTED || !documented(a.status),
         "estimate() of a family that its match() does not take returned {}; TH_E_UNSUPPORTED was expected",
         a.text());
}

void no_model_is_no_estimate(Bench& b) {
  Started started(b);
  for_degenerate(b.sample(), [&](const Sample& w, const std::string& what) {
    const ReportAnswer a = b.estimate(w);
    expect(a.ok() || !documented(a.status) || refused_well(a.status),
           "estimate() answered {} with {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void sink_is_obeyed(Bench& b) {
  Started started(b);
  const ReportAnswer whole = b.estimate(b.sample());
  expect(whole.ok(), "estimate() of an ordinary run returned {}", whole.text());
  Twist t;
  t.refuse_from = 1;
  const ReportAnswer a = b.estimate(b.sample(), t);
  expect(a.status == t.refuse_with,
         "the sink refused the first node with {} and estimate() returned {}; the sink's code "
         "was expected",
         status_text(t.refuse_with), status_text(a.status));
  expect(a.calls_after_refusal <= 1,
         "estimate() went on for {} more calls after the sink had refused; it was expected to "
         "stop",
         a.calls_after_refusal - 1);
}

void later_minor_is_fine(Bench& b) {
  Started started(b);
  const ReportAnswer now = b.estimate(b.sample());
  Twist t;
  t.later_minor_bytes = 64;
  const ReportAnswer later = b.estimate(b.sample(), t);
  expect(now.status == later.status && now.report.nodes.size() == later.report.nodes.size(),
         "estimate() with structs 64 bytes longer, as a later minor has them, returned {}; {} was expected",
         later.text(), now.text());
}

/// Every option that the manifest lists, with a value that means nothing.
void options_are_read(Bench& b) {
  if (b.manifest().options.empty()) throw NotHere("its manifest lists no options");
  for (const std::string& key : b.manifest().options) {
    b.host().clear_options();
    b.host().set_option(key, "no such value\x01");
    const Answer begun = b.start();
    if (begun.status == TH_E_UNAVAILABLE)
      throw NotHere("its start() says that it cannot be used here: " + begun.message);
    Answer a = begun;
    if (begun.ok()) {
      a = b.report(b.sample());
      b.stop();
    }
    b.host().clear_options();
    expect(!a.ok(), "it took the value 'no such value' for its option {}; a refusal was expected",
           escaped(key));
    expect(refused_well(a.status) || !documented(a.status),
           "it refused a wrong value of its option {} with {}; TH_E_ARG was expected", escaped(key),
           a.text());
  }
}

}  // namespace

std::vector<Check> estimator_argument_checks() {
  return {
      {"E-001",
       4,
       "estimate() refuses a null model, run or sink",
       "A host with a bug learns of it by a code, not by a crash that takes the user's other work along.",
       {"C-049", "C-029"},
       null_is_refused},
      {"E-002",
       4,
       "match() answers whatever it is given",
       "match() is asked about every model there is, half-filled ones included, and has no way to say that "
       "it cannot "
       "answer: 0 is the answer then.",
       {"C-049", "C-029"},
       match_of_null_is_none},
      {"E-003",
       4,
       "estimate() takes a null error",
       "A caller that does not want the text passes null; the code alone must come back.",
       {"C-049", "C-029"},
       null_error_is_fine},
      {"E-004",
       4,
       "A refusal says why, and the error carries the code",
       "The message is the user's only clue. One sentence: what does not fit, to what value.",
       {"C-049", "C-029"},
       says_why},
      {"E-005",
       4,
       "estimate() returns documented codes alone",
       "Codes say what the caller can do. One that no header has can only be treated as a bug.",
       {"C-049", "C-029"},
       documented_codes},
      {"E-006",
       4,
       "A family that is not its own is TH_E_UNSUPPORTED",
       "With that code the host tries the next candidate; with any other it stops and blames the run.",
       {"C-049", "C-029"},
       foreign_family_is_unsupported},
      {"E-007",
       4,
       "Dimensions that make no model are refused as such",
       "0 layers or 0 heads come from half-written configs. A division by zero, or an internal error, hides "
       "the cause.",
       {"C-049", "C-029"},
       no_model_is_no_estimate},
      {"E-008",
       4,
       "estimate() stops when the sink refuses",
       "The host refuses when the user cancels or when memory is short. The sink's code must come back, "
       "soon.",
       {"C-049", "C-029"},
       sink_is_obeyed},
      {"E-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor hand over longer structs. A plugin that compares struct_size for equality "
       "stops working "
       "with the next release.",
       {"C-049", "C-029"},
       later_minor_is_fine},
      {"C-060",
       4,
       "A wrong value of an option is refused",
       "A key that the plugin's manifest lists and whose value means nothing to it must be an error that "
       "names it: "
       "otherwise a typing mistake in a run file changes nothing and nobody notices.",
       {"C-049", "C-029"},
       options_are_read},
  };
}

}  // namespace trainhost::plugin_validator
