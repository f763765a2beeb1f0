// Level 4 without an instance: invalid arguments, unusual runs, and the form of errors. Most checks hold for
// estimate() and plan() alike: they call WatchedPlugin::report() and have one id per kind of plugin. Where
// the interface leaves a choice, every documented answer passes: a check must not demand more than the SDK
// does.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

// A name that no family has and no reader accepts.
Sample sample_of_unknown_family(WatchedPlugin& plugin) {
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  return s;
}

void expect_argument_error(const char* call, const char* argument, const CallResult& a) {
  expect(a.status == TH_E_ARG, "{} with a null {} returned {}; TH_E_ARG was expected", call, argument,
         a.text());
}

// One argument is null at a time: with several, a test of any of them would do.
void check_null_arguments(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  const auto report_without = [&](const char* argument, auto change) {
    expect_argument_error(plugin.report_function(), argument,
                          plugin.report_call(s, {}, [&](ReportArguments a) {
                            change(a);
                            return plugin.call_report_function(a);
                          }));
  };
  report_without("model", [](ReportArguments& a) { a.model = nullptr; });
  report_without("run", [](ReportArguments& a) { a.run = nullptr; });
  report_without("sink", [](ReportArguments& a) { a.sink = nullptr; });
  if (!plugin.is_trainer()) return;
  const th_trainer t = plugin.library().trainer();
  const th_host* h = plugin.host().get();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  // profile() is a function of trainers only; estimators get the result.
  th_profile p{};
  p.struct_size = sizeof p;
  expect_argument_error("profile()", "model",
                        plugin.call([&](th_error* e) { return t.profile(h, nullptr, &r, &p, e); }));
  expect_argument_error("profile()", "run",
                        plugin.call([&](th_error* e) { return t.profile(h, &m, nullptr, &p, e); }));
}

void check_null_error(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = sample_of_unknown_family(plugin);
  // Two reasons for an error; writing its text to null would crash.
  s.model.hidden = 0;
  CallVariation v;
  v.no_error = true;
  plugin.report(s, v);  // fails by a crash
}

void check_error_messages(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const Sample& s, const std::string& what) {
    const ReportResult a = plugin.report(s);
    // Accepting the run is fine here; the check is about the form of an error.
    if (a.ok()) return;
    expect(!a.message.empty(), "{} rejected {} with {} and no message", plugin.report_function(), what,
           status_text(a.status));
    // Both values reach the host by different paths, and it may print either.
    expect(a.error_code == a.status, "{} rejected {} with {}, but wrote {} into the error",
           plugin.report_function(), what, status_text(a.status), status_text(a.error_code));
  };
  judge(sample_of_unknown_family(plugin), "an unknown family");
  for_each_degenerate_model(plugin.sample(), judge);
}

void check_documented_codes(WatchedPlugin& plugin) {
  Started started(plugin);
  // TH_OK is documented too: what a plugin accepts is its own choice here.
  const auto judge = [&](const Sample& s, const std::string& what) {
    const ReportResult a = plugin.report(s);
    expect(documented(a.status), "{} returned {} for {}, which is not a documented code",
           plugin.report_function(), status_text(a.status), what);
  };
  // Undocumented codes are looked for where an error is likely.
  for_each_unknown_value(plugin.sample(), judge);
  for_each_degenerate_model(plugin.sample(), judge);
  judge(sample_of_unknown_family(plugin), "an unknown family");
}

/// An estimator may accept a zero dimension that it does not read; a trainer cannot train it.
void check_invalid_dimensions(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_degenerate_model(plugin.sample(), [&](const Sample& s, const std::string& what) {
    const ReportResult a = plugin.report(s);
    // An undocumented code passes, because E-005 or T-004 reports it: one fault, one failed check.
    expect((a.ok() && !plugin.is_trainer()) || !documented(a.status) || is_valid_rejection(a.status),
           "{} returned {} for {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", plugin.report_function(),
           a.text(), what);
  });
}

void check_failing_sink(WatchedPlugin& plugin) {
  Started started(plugin);
  // The same request must succeed with a working sink, or a failure would prove nothing.
  const ReportResult ordinary = plugin.report(plugin.sample());
  expect(ordinary.ok(), "{} of an ordinary run returned {}", plugin.report_function(), ordinary.text());
  // At each node: a plugin may check the first call of the sink alone, or the first failure alone.
  CallVariation v;
  for (v.fail_from = 1; v.fail_from <= std::min<std::size_t>(ordinary.report.nodes.size(), 20);
       ++v.fail_from) {
    const ReportResult a = plugin.report(plugin.sample(), v);
    expect(a.status == v.fail_with,
           "the sink returned {} for node {} and {} returned {}; the sink's code was expected",
           status_text(v.fail_with), v.fail_from, plugin.report_function(), status_text(a.status));
    // The call in which the sink fails is counted too.
    expect(a.calls_after_failure <= 1,
           "{} made {} more calls after the sink had failed at node {}; none were expected",
           plugin.report_function(), a.calls_after_failure - 1, v.fail_from);
  }
}

void check_longer_structs(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult now = plugin.report(plugin.sample());
  CallVariation v;
  // 64 bytes: more than any minor version adds at once. The bytes are 0 here; level 9 fills them.
  v.later_minor_bytes = 64;
  const ReportResult later = plugin.report(plugin.sample(), v);
  // The number of nodes stands for the report; its content is compared on level 9.
  expect(now.status == later.status && now.report.nodes.size() == later.report.nodes.size(),
         "{} with structs 64 bytes longer, as a later minor has them, returned {}; {} was expected",
         plugin.report_function(), later.text(), now.text());
}

/// Sets every option that the manifest lists to an invalid value.
/// All options in turn, each alone: a second invalid one would hide whether the first was noticed.
void check_invalid_options(WatchedPlugin& plugin) {
  if (plugin.manifest().options.empty()) throw CheckSkipped("its manifest lists no options");
  for (const std::string& key : plugin.manifest().options) {
    plugin.host().clear_options();
    // No string of an option's documented values contains a control character.
    plugin.host().set_option(key, "no such value\x01");
    const CallResult begun = plugin.start();
    if (begun.status == TH_E_UNAVAILABLE)
      throw CheckSkipped("its start() returned TH_E_UNAVAILABLE: " + begun.message);
    CallResult a = begun;
    // An option may be read late: the error may come from start() or from the first report.
    if (begun.ok()) {
      a = plugin.report(plugin.sample());
      plugin.stop();
    }
    // Before expect(), which may throw: the next check must not see the option.
    plugin.host().clear_options();
    expect(!a.ok(), "it accepted the value 'no such value' of its option {}; an error was expected",
           escaped(key));
    expect(is_valid_rejection(a.status) || !documented(a.status),
           "it rejected an invalid value of its option {} with {}; TH_E_ARG was expected", escaped(key),
           a.text());
  }
}

void check_match_arguments(WatchedPlugin& plugin) {
  Started started(plugin);
  const th_estimator e = plugin.library().estimator();
  const Sample s = plugin.sample();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  // match() has no th_error and no host argument, so WatchedPlugin::call() does not apply.
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

void check_unknown_values(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_unknown_value(plugin.sample(), [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.report(w);
    expect(is_valid_rejection(a.status) || !documented(a.status),
           "plan() of a run with {} returned {}; TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

// A trainer may support any of these; what counts is the code of the refusal.
void check_unsupported_runs(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const char* what, auto change) {
    Sample s = plugin.sample();
    change(s.run);
    const ReportResult a = plugin.report(s);
    if (a.ok()) return;
    expect(a.status == TH_E_UNSUPPORTED, "plan() of {} returned {}; TH_OK or TH_E_UNSUPPORTED was expected",
           what, a.text());
  };
  // Three runs that the interface can express and that small trainers usually cannot train.
  judge("a LoRA run", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 4, r.lora_targets = 1; });
  judge("a run with the Lion optimizer", [](RunSpec& r) { r.optimizer = Optimizer::kLion; });
  judge("a run on two tensor-parallel ranks", [](RunSpec& r) { r.parallel.tensor = 2; });
}

void check_unknown_device(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  // -1 and a number beyond the devices of every machine.
  for (std::int32_t device : {-1, 9999}) {
    const CallResult a = i.create(device);
    expect(!a.ok(), "create() on device {} returned TH_OK; that device does not exist", device);
    expect(a.status == TH_E_ARG || a.status == TH_E_UNAVAILABLE,
           "create() on device {} returned {}; TH_E_ARG or TH_E_UNAVAILABLE was expected", device, a.text());
  }
}

void check_failed_create_frees_memory(WatchedPlugin& plugin) {
  // The ledger is compared, not the heap: it names what the plugin took through the host.
  Started started(plugin);
  plugin.require_device();
  // plan() may reject this model; create() is called without it, as a careless host would.
  Sample s = sample_of_unknown_family(plugin);
  s.model.layers = 0;
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  WatchedInstance i(plugin, s);
  // The family and the number of layers are both wrong: no trainer can create this.
  const CallResult a = i.create();
  expect(!a.ok(), "create() of a model with 0 layers returned TH_OK");
  expect(i.handle() == nullptr, "create() failed with {} but set the instance; null was expected", a.text());
  const std::uint64_t held = plugin.host().ledger().in_use_total() - before;
  expect(held == 0, "create() failed with {} and left {} bytes allocated; none were expected", a.text(),
         held);
}

}  // namespace

std::vector<Check> estimator_argument_checks() {
  return {
      {"E-001",
       4,
       "estimate() rejects a null model, run or sink",
       "A host with a bug gets an error code instead of a crash that loses the user's other work. Fix: "
       "test the three pointers at the start of estimate() and return TH_E_ARG.",
       {"C-049", "C-029"},
       check_null_arguments},
      {"E-002",
       4,
       "match() returns a score for any argument",
       "match() is called with every model, including incomplete ones, and cannot report an error. Fix: "
       "return 0 if it cannot answer.",
       {"C-049", "C-029"},
       check_match_arguments},
      {"E-003",
       4,
       "estimate() accepts a null error",
       "A caller that does not want the error text passes null. The return code must still be correct. "
       "Fix: write into the error only if its pointer is not null.",
       {"C-049", "C-029"},
       check_null_error},
      {"E-004",
       4,
       "A rejection has a message, and the error holds the code",
       "The message is the only explanation that the user gets. Fix: write one sentence that names the "
       "value that is not supported.",
       {"C-049", "C-029"},
       check_error_messages},
      {"E-005",
       4,
       "estimate() returns only documented codes",
       "The host chooses its next action by the code. It can treat an undocumented code only as a bug. "
       "Fix: return a constant of trainhost/status.h; TH_E_INTERNAL for an error that fits no other.",
       {"C-049", "C-029"},
       check_documented_codes},
      {"E-007",
       4,
       "Invalid dimensions are rejected with TH_E_ARG or TH_E_UNSUPPORTED",
       "0 layers or 0 heads come from incomplete configs. A division by zero or an internal error hides "
       "the cause. Fix: test every dimension that you divide by, or that must not be 0, before you use it.",
       {"C-049", "C-029"},
       check_invalid_dimensions},
      {"E-008",
       4,
       "estimate() stops when the sink fails",
       "The host's sink fails when the user cancels or memory is short. Fix: return the code of the sink "
       "without sending more nodes.",
       {"C-049", "C-029"},
       check_failing_sink},
      {"E-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor pass longer structs. A plugin that compares struct_size for equality stops "
       "working with the next release. Fix: test for 'at least' with TH_HAS.",
       {"C-049", "C-029"},
       check_longer_structs},
      {"C-060",
       4,
       "An invalid option value is rejected",
       "If an option that the manifest lists has a value that the plugin does not understand, start(), "
       "plan() or estimate() must fail and name the option. Otherwise a typing error in a run file has no "
       "effect and goes unnoticed. Fix: compare the value with every value that you accept, and return "
       "TH_E_ARG with the name of the option.",
       {"C-049", "C-029"},
       check_invalid_options},
  };
}

std::vector<Check> trainer_argument_checks() {
  return {
      {"T-001",
       4,
       "plan() and profile() reject a null model, run or sink",
       "A host with a bug gets an error code instead of a crash that loses the user's other work. Fix: "
       "test the pointers at the start of both functions and return TH_E_ARG.",
       {"C-049", "C-029"},
       check_null_arguments},
      {"T-002",
       4,
       "plan() accepts a null error",
       "A caller that does not want the error text passes null. The return code must still be correct. "
       "Fix: write into the error only if its pointer is not null.",
       {"C-049", "C-029"},
       check_null_error},
      {"T-003",
       4,
       "A rejection has a message, and the error holds the code",
       "`--backend=auto` prints this message as the reason for trying the next backend. Fix: write one "
       "sentence that names the value that is not supported, and set th_error.code to the code that you "
       "return.",
       {"C-049", "C-029"},
       check_error_messages},
      {"T-004",
       4,
       "plan() returns only documented codes",
       "The host chooses its next action by the code. It can treat an undocumented code only as a bug. "
       "Fix: return a constant of trainhost/status.h; TH_E_INTERNAL for an error that fits no other.",
       {"C-049", "C-029"},
       check_documented_codes},
      {"T-005",
       4,
       "Unknown optimizers, modes and types are rejected",
       "A later host may define more optimizers and types. A trainer that replaces an unknown value by a "
       "default trains something other than what was requested. Fix: end every switch over such a value "
       "with a default that returns TH_E_UNSUPPORTED.",
       {"C-049", "C-029"},
       check_unknown_values},
      {"T-006",
       4,
       "Invalid dimensions are rejected with TH_E_ARG or TH_E_UNSUPPORTED",
       "0 layers or 0 heads come from incomplete configs. A division by zero or an internal error hides "
       "the cause. Fix: test every dimension that you divide by, or that must not be 0, before you use it.",
       {"C-049", "C-029"},
       check_invalid_dimensions},
      {"T-007",
       4,
       "Runs that it cannot train are rejected with TH_E_UNSUPPORTED",
       "LoRA, other optimizers and several ranks are valid runs. After TH_E_UNSUPPORTED the host tries "
       "the next backend. Fix: return TH_E_UNSUPPORTED, and TH_E_ARG only for values that no trainer "
       "could accept.",
       {"C-049", "C-029"},
       check_unsupported_runs},
      {"T-008",
       4,
       "plan() stops when the sink fails",
       "The host's sink fails when the user cancels or memory is short. Fix: return the code of the sink "
       "without sending more nodes.",
       {"C-049", "C-029"},
       check_failing_sink},
      {"T-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor pass longer structs. A plugin that compares struct_size for equality stops "
       "working with the next release. Fix: test for 'at least' with TH_HAS.",
       {"C-049", "C-029"},
       check_longer_structs},
      {"T-010",
       4,
       "create() rejects a device that does not exist",
       "Falling back to another device without an error would train on a device that another user may be "
       "using. Fix: compare the device number with the count that probe() returns, and return TH_E_ARG.",
       {"C-049", "C-029"},
       check_unknown_device},
      {"T-011",
       4,
       "A failed create() frees everything",
       "The host continues with another backend in the same process, which needs the memory. Fix: check "
       "the model before you allocate, and free on every path that returns an error.",
       {"C-049", "C-029"},
       check_failed_create_frees_memory},
  };
}

}  // namespace trainhost::plugin_validator
