// A request of the planner's page, as JSON: {"model": "llama-3-8b", "device": "h100-80gb", "set":
// ["KEY=VALUE"]}. The benchmark of planning (tools/bench/plan_rate.cpp) reads the same requests.
#pragma once
#include <string>
#include <vector>

#include "core/base/json_value.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::web {

inline std::vector<std::string> texts(const JsonValue& request, const char* key) {
  std::vector<std::string> out;
  if (const JsonValue* list = request.find(key))
    for (const JsonValue& v : list->elements) out.push_back(v.string);
  return out;
}

inline bool flag(const JsonValue& request, const char* key) {
  const JsonValue* v = request.find(key);
  return v && v->boolean;
}

inline cli::PlanArguments arguments_of(const JsonValue& request) {
  cli::PlanArguments a;
  a.common.json = a.common.quiet = true;  // with the timeline; nothing is printed
  a.common.model = request.text_of("model");
  a.common.run_file = request.text_of("run_file");
  a.common.from = texts(request, "from");
  a.common.settings = texts(request, "set");
  a.target.device = request.text_of("device");
  a.target.budget = request.text_of("budget");
  a.target.framework = request.text_of("for");
  a.target.safe = flag(request, "safe");
  a.limits = flag(request, "limits");
  return a;
}

}  // namespace trainhost::web
