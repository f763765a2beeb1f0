// Level 5, the contract with the host: what the checking host saw while the plugin lived an ordinary life
// (normal_use.cpp). One rule of record.hpp a check.
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

template <Rule rule>
void kept(Bench& b) {
  b.tour();
  expect_none(b.record().first(rule));
}

}  // namespace

std::vector<Check> contract_checks() {
  return {
      {"C-090",
       5,
       "It calls the host inside calls only",
       "After stop() the host's table is gone; a callback then is a crash in a process that has long gone on "
       "to something "
       "else. Join your threads before the call returns, those of an instance before destroy() does.",
       {"C-070"},
       kept<Rule::kCallbackOutsideCall>},
      {"C-091",
       5,
       "It calls the host with good arguments",
       "A null text, an unknown tier, memory released twice: each is a crash in a host that trusts more than "
       "this one.",
       {"C-070"},
       kept<Rule::kCallbackArguments>},
      {"C-092",
       5,
       "It calls no sink after its call has returned",
       "Sinks live on the caller's stack and are gone when the call has returned: a late node lands in "
       "somebody else's memory.",
       {"C-070"},
       kept<Rule::kSinkAfterReturn>},
      {"C-093",
       5,
       "It calls sinks from the thread of the call",
       "A sink is not locked: the host collects into a plain vector.",
       {"C-070"},
       kept<Rule::kSinkThread>},
      {"C-094",
       5,
       "It writes into nothing that it may only read",
       "Model, run, step and the host's table are the host's, and are used again for the next candidate.",
       {"C-070"},
       kept<Rule::kInputChanged>},
      {"C-095",
       5,
       "It writes errors inside the error",
       "A byte past struct_size is the caller's stack.",
       {"C-070"},
       kept<Rule::kErrorPastSize>},
      {"C-096",
       5,
       "It keeps no pointer to an error",
       "The error is the caller's and gone when the call has returned.",
       {"C-070"},
       kept<Rule::kErrorKept>},
      {"C-097",
       5,
       "Error texts are terminated and UTF-8",
       "An unterminated message prints what lies behind it.",
       {"C-070"},
       kept<Rule::kErrorText>},
      {"C-098",
       5,
       "It writes results inside their structs",
       "A summary, profile or step result belongs to the caller; a plugin of a later minor must look at "
       "struct_size before "
       "it writes a field that 1.0 does not have.",
       {"C-070"},
       kept<Rule::kOutPastSize>},
  };
}

}  // namespace trainhost::plugin_validator
