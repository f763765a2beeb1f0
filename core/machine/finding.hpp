// One line of `trainhost doctor`: what was found, whether it is a problem, and what to do about it.
#pragma once
#include <string>
#include <vector>

#include "core/base/json_value.hpp"

namespace trainhost::machine {

enum class State { kOk, kWarning, kError };

struct Finding {
  std::string group;  // "cpu", "memory", ...: keys of JSON, which do not change
  std::string name;   // "caches"
  State state = State::kOk;
  std::string value = {};                // for people
  std::string hint = {};                 // what to do; not empty unless state is kOk
  JsonValue data = JsonValue::object();  // the raw numbers behind `value`
};

using Findings = std::vector<Finding>;

/// "ok", "warning", "error".
const char* state_name(State s);

}  // namespace trainhost::machine
