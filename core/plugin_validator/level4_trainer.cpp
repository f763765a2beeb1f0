// Level 4 for trainers, without an instance: invalid arguments of probe, profile, plan and create, and their
// error codes.
#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void trainer_null_is_refused(WatchedPlugin& plugin) {
  Started started(plugin);
  const th_trainer t = plugin.library().trainer();
  const Sample s = plugin.sample();
  const th_host* h = plugin.host().get();
  const auto refused = [&](const char* call, const char* what, const CallResult& a) {
    expect(a.status == TH_E_ARG, "{} with a null {} returned {}; TH_E_ARG was expected", call, what,
           a.text());
  };
  refused("plan()", "model",
          plugin.report_call(s, {}, "plan()", [&](auto*, auto* r, auto* sink, auto* sum, auto* err) {
            return t.plan(h, nullptr, r, sink, sum, err);
          }));
  refused("plan()", "run",
          plugin.report_call(s, {}, "plan()", [&](auto* m, auto*, auto* sink, auto* sum, auto* err) {
            return t.plan(h, m, nullptr, sink, sum, err);
          }));
  refused("plan()", "sink",
          plugin.report_call(s, {}, "plan()", [&](auto* m, auto* r, auto*, auto* sum, auto* err) {
            return t.plan(h, m, r, nullptr, sum, err);
          }));
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  th_profile p{};
  p.struct_size = sizeof p;
  refused("profile()", "model", plugin.call([&](th_error* e) { return t.profile(h, nullptr, &r, &p, e); }));
  refused("profile()", "run", plugin.call([&](th_error* e) { return t.profile(h, &m, nullptr, &p, e); }));
}

void trainer_null_error_is_fine(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  s.model.hidden = 0;
  CallVariation t;
  t.no_error = true;
  plugin.plan(s, t);  // a crash is the breach
}

void trainer_says_why(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.plan(w);
    if (a.ok()) return;
    expect(!a.message.empty(), "plan() refused {} with {} and no message", what, status_text(a.status));
    expect(a.error_code == a.status, "plan() refused {} with {}, but wrote {} into the error", what,
           status_text(a.status), status_text(a.error_code));
  };
  Sample wrong = plugin.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
  for_each_degenerate_model(plugin.sample(), judge);
}

void trainer_documented_codes(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.plan(w);
    expect(documented(a.status), "plan() answered {} with {}, which is not a documented code", what,
           status_text(a.status));
  };
  for_each_unknown_value(plugin.sample(), judge);
  for_each_degenerate_model(plugin.sample(), judge);
  Sample wrong = plugin.sample();
  wrong.model.family = "no-such-family";
  judge(wrong, "an unknown family");
}

void unknown_words_are_refused(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_unknown_value(plugin.sample(), [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.plan(w);
    expect(is_valid_refusal(a.status) || !documented(a.status),
           "plan() of a run with {} returned {}; TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void no_model_is_no_plan(WatchedPlugin& plugin) {
  Started started(plugin);
  for_each_degenerate_model(plugin.sample(), [&](const Sample& w, const std::string& what) {
    const ReportResult a = plugin.plan(w);
    expect(is_valid_refusal(a.status) || !documented(a.status),
           "plan() answered {} with {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", what, a.text());
  });
}

void planned_only_is_unsupported(WatchedPlugin& plugin) {
  Started started(plugin);
  const auto judge = [&](const char* what, auto change) {
    Sample s = plugin.sample();
    change(s.run);
    const ReportResult a = plugin.plan(s);
    if (a.ok()) return;  // it can
    expect(a.status == TH_E_UNSUPPORTED, "plan() of {} returned {}; TH_OK or TH_E_UNSUPPORTED was expected",
           what, a.text());
  };
  judge("a LoRA run", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 4, r.lora_targets = 1; });
  judge("a run with the Lion optimizer", [](RunSpec& r) { r.optimizer = Optimizer::kLion; });
  judge("a run on two tensor-parallel ranks", [](RunSpec& r) { r.parallel.tensor = 2; });
}

void trainer_sink_is_obeyed(WatchedPlugin& plugin) {
  Started started(plugin);
  CallVariation t;
  t.refuse_from = 1;
  const ReportResult a = plugin.plan(plugin.sample(), t);
  expect(a.status == t.refuse_with,
         "the sink refused the first node with {} and plan() returned {}; the sink's code was expected",
         status_text(t.refuse_with), status_text(a.status));
  expect(a.calls_after_refusal <= 1,
         "plan() made {} more calls after the sink had refused; none were expected",
         a.calls_after_refusal - 1);
}

void trainer_later_minor_is_fine(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult now = plugin.plan(plugin.sample());
  CallVariation t;
  t.later_minor_bytes = 64;
  const ReportResult later = plugin.plan(plugin.sample(), t);
  expect(now.status == later.status && now.report.nodes.size() == later.report.nodes.size(),
         "plan() with structs 64 bytes longer, as a later minor has them, returned {}; {} was expected",
         later.text(), now.text());
}

void no_such_device(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  for (std::int32_t device : {-1, 9999}) {
    const CallResult a = i.create(device);
    expect(!a.ok(), "create() on device {} returned TH_OK; that device does not exist", device);
    expect(a.status == TH_E_ARG || a.status == TH_E_UNAVAILABLE,
           "create() on device {} returned {}; TH_E_ARG or TH_E_UNAVAILABLE was expected", device, a.text());
  }
}

void failed_create_leaves_nothing(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  s.model.layers = 0;
  const std::uint64_t before = plugin.host().ledger().in_use_total();
  WatchedInstance i(plugin, s);
  const CallResult a = i.create();
  expect(!a.ok(), "create() of a model with 0 layers returned TH_OK");
  expect(i.handle() == nullptr, "create() failed with {} but set the instance; null was expected", a.text());
  const std::uint64_t held = plugin.host().ledger().in_use_total() - before;
  expect(held == 0, "create() failed with {} and left {} bytes allocated; none were expected", a.text(),
         held);
}

}  // namespace

std::vector<Check> trainer_argument_checks() {
  return {
      {"T-001",
       4,
       "plan() and profile() refuse a null model, run or sink",
       "A host with a bug gets an error code instead of a crash that loses the user's other work.",
       {"C-049", "C-029"},
       trainer_null_is_refused},
      {"T-002",
       4,
       "plan() accepts a null error",
       "A caller that does not want the error text passes null. The return code must still be correct.",
       {"C-049", "C-029"},
       trainer_null_error_is_fine},
      {"T-003",
       4,
       "A refusal has a message, and the error holds the code",
       "`--backend=auto` prints this message as the reason for trying the next backend.",
       {"C-049", "C-029"},
       trainer_says_why},
      {"T-004",
       4,
       "plan() returns only documented codes",
       "The host chooses its next action by the code. It can treat an undocumented code only as a bug.",
       {"C-049", "C-029"},
       trainer_documented_codes},
      {"T-005",
       4,
       "Unknown optimizers, modes and types are refused",
       "A later host may define more optimizers and types. A trainer that replaces an unknown value by a "
       "default trains something other than what was requested.",
       {"C-049", "C-029"},
       unknown_words_are_refused},
      {"T-006",
       4,
       "Invalid dimensions are refused with TH_E_ARG or TH_E_UNSUPPORTED",
       "0 layers or 0 heads come from incomplete configs. A division by zero or an internal error hides the "
       "cause.",
       {"C-049", "C-029"},
       no_model_is_no_plan},
      {"T-007",
       4,
       "Runs that it cannot train are refused with TH_E_UNSUPPORTED",
       "LoRA, other optimizers and several ranks are valid runs. After TH_E_UNSUPPORTED the host tries the "
       "next backend.",
       {"C-049", "C-029"},
       planned_only_is_unsupported},
      {"T-008",
       4,
       "plan() stops when the sink refuses",
       "The host's sink refuses when the user cancels or memory is short. Return the code of the sink "
       "without sending more nodes.",
       {"C-049", "C-029"},
       trainer_sink_is_obeyed},
      {"T-009",
       4,
       "Longer structs of a later minor change nothing",
       "Hosts of a later minor pass longer structs. A plugin that compares struct_size for equality stops "
       "working with the next release; test for 'at least' with TH_HAS.",
       {"C-049", "C-029"},
       trainer_later_minor_is_fine},
      {"T-010",
       4,
       "create() refuses a device that does not exist",
       "Falling back to another device without an error would train on a device that another user may be "
       "using.",
       {"C-049", "C-029"},
       no_such_device},
      {"T-011",
       4,
       "A failed create() frees everything",
       "The host continues with another backend in the same process, which needs the memory.",
       {"C-049", "C-029"},
       failed_create_leaves_nothing},
  };
}

}  // namespace trainhost::plugin_validator
