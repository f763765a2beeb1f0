// Level 4 for estimators: invalid arguments, unusual runs, and the form of errors. The same checks for
// plan(): level4_trainer.cpp.
#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void null_is_refused(WatchedPlugin& plugin) {
  Started started(plugin);
  const th_estimator e = plugin.library().estimator();
  const Sample s = plugin.sample();
  const th_host* h = plugin.host().get();
  const auto refused = [&](const char* what, const CallResult& a) {
    expect(a.status == TH_E_ARG, "estimate() with a null {} returned {}; TH_E_ARG was expected", what,
           a.text());
  };
  refused("model",
          plugin.report_call(s, {}, "estimate()", [&](auto*, auto* r, auto* sink, auto* sum, auto* err) {
            return e.estimate(h, nullptr, r, nullptr, sink, sum, err);
          }));
  refused("run",
          plugin.report_call(s, {}, "estimate()", [&](auto* m, auto*, auto* sink, auto* sum, auto* err) {
            return e.estimate(h, m, nullptr, nullptr, sink, sum, err);
          }));
  refused("sink", plugin.report_call(s, {}, "estimate()", [&](auto* m, auto* r, auto*, auto* sum, auto* err) {
    return e.estimate(h, m, r, nullptr, nullptr, sum, err);
  }));
}

void match_of_null_is_none(WatchedPlugin& plugin) {
  Started started(plugin);
  const th_estimator e = plugin.library().estimator();
  const Sample s = plugin.sample();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  CheckingHost::CallbacksAllowed allowed(plugin.host());
  const int no_model = e.match(nullptr, &r), no_run = e.match(&m, nullptr);
  expect(no_model == 0, "match() without a model returned {}; 0 was expected", no_model);
  expect(no_run == 0, "match() without a run returned {}; 0 was expected", no_run);
  th_model nameless = m;
  nameless.family = nullptr;
  const int score = e.match(&nameless, &r);
  expect(score >= 0 && score <= 1000,
         "match() of a model without a family returned {}; 0 to 1000 was expected", score);
}

void null_error_is_fine(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  s.model.hidden = 0;
  CallVariation t;
  t.no_error = true;
  plugin.estimate(s, t);  // a crash is the breach
}

void says_why(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample wrong = plugin.sample();
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.estimate(w);
    if (a.ok()) return;
    expect(!a.message.empty(), "estimate() refused {} with {} and no message", what, status_text(a.status));
    expect(a.error_code == a.status, "estimate() refused {} with {}, but wrote {} into the error", what,
           status_text(a.status), status_text(a.error_code));
  };
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
  for_each_degenerate_model(plugin.sample(), judge);
}

void documented_codes(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.estimate(w);
    expect(documented(a.status), "estimate() answered {} with {}, which is not a documented code", what,
           status_text(a.status));
  };
  for_each_unknown_value(plugin.sample(), judge);
  for_each_degenerate_model(plugin.sample(), judge);
  Sample wrong = plugin.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
}

void foreign_family_is_unsupported(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  write_config(s.model);
  if (plugin.match(s) > 0) throw CheckSkipped("its match() accepts any family");
  const ReportResult a = plugin.estimate(s);
  expect(a.ok() || a.status == TH_E_UNSUPPORTED || !documented(a.status),
         "estimate() of a family that its match() does not accept returned {}; TH_E_UNSUPPORTED was expected",
         a.text());
}

void no_model_is_no_estimate(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_degenerate_model(plugin.sample(), [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.estimate(w);
    expect(a.ok() || !documented(a.status) || is_valid_refusal(a.status),
           "estimate() answered {} with {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void sink_is_obeyed(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult whole = plugin.estimate(plugin.sample());
  expect(whole.ok(), "estimate() of an ordinary run returned {}", whole.text());
  CallVariation t;
  t.refuse_from = 1;
  const ReportResult a = plugin.estimate(plugin.sample(), t);
  expect(a.status == t.refuse_with,
         "the sink refused the first node with {} and estimate() returned {}; the sink's code was expected",
         status_text(t.refuse_with), status_text(a.status));
  expect(a.calls_after_refusal <= 1,
         "estimate() made {} more calls after the sink had refused; none were expected",
         a.calls_after_refusal - 1);
}

void later_minor_is_fine(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult now = plugin.estimate(plugin.sample());
  CallVariation t;
  t.later_minor_bytes = 64;
  const ReportResult later = plugin.estimate(plugin.sample(), t);
  expect(now.status == later.status && now.report.nodes.size() == later.report.nodes.size(),
         "estimate() with structs 64 bytes longer, as a later minor has them, returned {}; {} was expected",
         later.text(), now.text());
}

/// Sets every option that the manifest lists to an invalid value.
void options_are_read(WatchedPlugin& plugin) {
  if (plugin.manifest().options.empty()) throw CheckSkipped("its manifest lists no options");
  for (const std::string& key : plugin.manifest().options) {
    plugin.host().clear_options();
    plugin.host().set_option(key, "no such value\x01");
    const CallResult begun = plugin.start();
    if (begun.status == TH_E_UNAVAILABLE)
      throw CheckSkipped("its start() returned TH_E_UNAVAILABLE: " + begun.message);
    CallResult a = begun;
    if (begun.ok()) {
      a = plugin.report(plugin.sample());
      plugin.stop();
    }
    plugin.host().clear_options();
    expect(!a.ok(), "it accepted the value 'no such value' of its option {}; an error was expected",
           escaped(key));
    expect(is_valid_refusal(a.status) || !documented(a.status),
           "it refused an invalid value of its option {} with {}; TH_E_ARG was expected", escaped(key),
           a.text());
  }
}

}  // namespace

std::vector<Check> estimator_argument_checks() {
  return {
      {"E-001",
       4,
       "estimate() refuses a null model, run or sink",
       "A host with a bug gets an error code instead of a crash that loses the user's other work.",
       {"C-049", "C-029"},
       null_is_refused},
      {"E-002",
       4,
       "match() returns a score for any argument",
       "match() is called with every model, including incomplete ones, and cannot report an error. Return 0 "
       "if it cannot answer.",
       {"C-049", "C-029"},
       match_of_null_is_none},
      {"E-003",
       4,
       "estimate() accepts a null error",
       "A caller that does not want the error text passes null. The return code must still be correct.",
       {"C-049", "C-029"},
       null_error_is_fine},
      {"E-004",
       4,
       "A refusal has a message, and the error holds the code",
       "The message is the only explanation that the user gets. Write one sentence that names the value that "
       "is not supported.",
       {"C-049", "C-029"},
       says_why},
      {"E-005",
       4,
       "estimate() returns only documented codes",
       "The host chooses its next action by the code. It can treat an undocumented code only as a bug.",
       {"C-049", "C-029"},
       documented_codes},
      {"E-006",
       4,
       "An unknown family is refused with TH_E_UNSUPPORTED",
       "After TH_E_UNSUPPORTED the host tries the next candidate. After any other code it stops and reports "
       "the run as failed.",
       {"C-049", "C-029"},
       foreign_family_is_unsupported},
      {"E-007",
       4,
       "Invalid dimensions are refused with TH_E_ARG or TH_E_UNSUPPORTED",
       "0 layers or 0 heads come from incomplete configs. A division by zero or an internal error hides the "
       "cause.",
       {"C-049", "C-029"},
       no_model_is_no_estimate},
      {"E-008",
       4,
       "estimate() stops when the sink refuses",
       "The host's sink refuses when the user cancels or memory is short. Return the code of the sink "
       "without sending more nodes.",
       {"C-049", "C-029"},
       sink_is_obeyed},
      {"E-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor pass longer structs. A plugin that compares struct_size for equality stops "
       "working with the next release; test for 'at least' with TH_HAS.",
       {"C-049", "C-029"},
       later_minor_is_fine},
      {"C-060",
       4,
       "An invalid option value is rejected",
       "If an option that the manifest lists has a value that the plugin does not understand, start(), "
       "plan() or estimate() must fail and name the option. Otherwise a typing error in a run file has no "
       "effect and goes unnoticed.",
       {"C-049", "C-029"},
       options_are_read},
  };
}

}  // namespace trainhost::plugin_validator
