// Level 5, rules of calling the host: use_normally() uses the plugin as a host does, and each check reports
// the breaches of one rule (breach_record.hpp) that the checking host recorded. Errors of the calls
// themselves do not matter here; other checks report them. One use serves all checks of a process: it is the
// slow part, and breaches stay in the record.
#include <chrono>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_instance.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void use_estimator(WatchedPlugin& plugin) {
  Sample s = plugin.sample();
  for (int i = 0; i < 3; ++i) {
    plugin.match(s);
    plugin.report(s);
    // Another run in each round: a plugin that remembers the last one takes another path.
    s.run.micro_batch *= 2;
  }
  s.model.family = "no-such-family";
  plugin.report(s);  // most likely an error, whose text is looked at
}

void use_trainer(WatchedPlugin& plugin) {
  const Sample s = plugin.sample();
  std::uint32_t devices = 0;
  plugin.probe(&devices);
  th_profile p{};
  plugin.profile(s, p);
  plugin.report(s);
  Sample unknown = s;
  unknown.model.family = "no-such-family";
  plugin.report(unknown);
  // Without a device only planning can be used.
  if (devices == 0) return;
  WatchedInstance i(plugin, s);
  if (!i.create().ok() || !i.created()) return;
  if (!i.init(7).ok()) return;
  const Batch batch = make_batch(s, plugin.seed());
  for (std::uint64_t n = 0; n < 3; ++n) i.step(batch, 1e-3, n);
  // Another batch; only one micro-batch.
  i.evaluate(make_batch(s, plugin.seed() + 1, s.run.micro_batch));
  th_counters c{};
  i.counters(c);
  i.save();
  i.destroy();
}

template <Rule rule>
// Every check of this file needs C-070, so the plugin is known to work.
void check_rule(WatchedPlugin& plugin) {
  plugin.use_normally();
  expect_none(plugin.record().first(rule));
}

}  // namespace

void WatchedPlugin::use_normally() {
  // A second check in the same process: what was written since then is found now.
  if (used_normally_) return check_late_writes();
  used_normally_ = true;
  CapturedOutput output;
  {
    Started started(*this);
    if (is_trainer())
      use_trainer(*this);
    else
      use_estimator(*this);
    // Still started: threads of an instance that was destroyed may still call the host. After stop() again,
    // for threads of the library.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // what comes late comes now
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  check_late_writes();
  if (const std::string text = output.written(); !text.empty())
    record_.breach(
        Rule::kPrints,
        fmt::format("it wrote to standard output or error while it was used: '{}'; the host's log() was "
                    "expected",
                    escaped(text, 100)));
}

// One row per Rule of breach_record.hpp; the order is that of the rules, since no check needs another one
// here.
std::vector<Check> contract_checks() {
  return {
      {"C-090",
       5,
       "It calls the host only during calls into the plugin",
       "After stop() the host's table no longer exists, and a callback crashes a process that has moved "
       "on. Fix: join your threads before the call returns; join the threads of an instance before "
       "destroy() returns.",
       {"C-070"},
       check_rule<Rule::kCallbackOutsideCall>},
      {"C-091",
       5,
       "It calls the host with valid arguments",
       "A null text, an unknown tier, or memory released twice can crash a host that checks less than "
       "this one. Fix: pass texts that are not null, tiers that trainhost/memory.h defines, and to "
       "release() only what alloc() returned.",
       {"C-070"},
       check_rule<Rule::kCallbackArguments>},
      {"C-092",
       5,
       "It does not call a sink after the call has returned",
       "Sinks are on the caller's stack and no longer exist after the call. A late node would write into "
       "unrelated memory. Fix: send all nodes before the call returns, and do not keep the pointer to the "
       "sink.",
       {"C-070"},
       check_rule<Rule::kSinkAfterReturn>},
      {"C-093",
       5,
       "It calls sinks only from the thread of the call",
       "Sinks are not locked: the host appends to a plain vector. Fix: collect results in your threads, "
       "and call the sink after joining them.",
       {"C-070"},
       check_rule<Rule::kSinkThread>},
      {"C-094",
       5,
       "It does not write to read-only arguments",
       "Model, run, step and the host's table belong to the host, which passes them to the next candidate "
       "too. Fix: copy what you want to change.",
       {"C-070"},
       check_rule<Rule::kInputChanged>},
      {"C-095",
       5,
       "It writes errors only inside th_error",
       "Bytes past struct_size belong to the caller's stack. Fix: write messages with snprintf() and the "
       "sizes of the fields.",
       {"C-070"},
       check_rule<Rule::kErrorPastSize>},
      {"C-096",
       5,
       "It keeps no pointer to th_error",
       "The error belongs to the caller and no longer exists after the call has returned. Fix: use the "
       "pointer only during the call that received it.",
       {"C-070"},
       check_rule<Rule::kErrorWrittenLate>},
      {"C-097",
       5,
       "Error texts are NUL-terminated UTF-8",
       "If a message has no terminator, printing it reads past the field. Fix: write messages with "
       "snprintf(), and escape bytes that may not be UTF-8.",
       {"C-070"},
       check_rule<Rule::kErrorText>},
      {"C-098",
       5,
       "It writes results only inside their structs",
       "A summary, profile or step result belongs to the caller. A plugin of a later minor must check "
       "struct_size before it writes a field that 1.0 does not have. Fix: fill a struct of your own, and "
       "copy at most struct_size bytes of it (th::out() of the SDK does this).",
       {"C-070"},
       check_rule<Rule::kOutPastSize>},
      {"C-099",
       5,
       "It prints nothing while it is used",
       "With `--json` standard output is read by a program, and one line of a plugin makes it unreadable. "
       "Fix: remove the output, or send it through the host's log().",
       {"C-070", "C-047"},
       check_rule<Rule::kPrints>},
  };
}

}  // namespace trainhost::plugin_validator
