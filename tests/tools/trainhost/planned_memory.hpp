// Compares the memory of a run with its plan, by the events that the run has printed (--json).
#pragma once
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace trainhost::test {

/// The event "done", with the plan of the event "start" as its member "plan".
inline nlohmann::json done_of(const std::string& lines) {
  nlohmann::json done, start;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    nlohmann::json j = nlohmann::json::parse(line);
    if (j["event"] == "start") start = j;
    if (j["event"] == "done") done = j;
  }
  done["plan"] = start["plan"];
  return done;
}

/// The plan is exact, and its memory is what was measured. `what`: the settings of the run, for messages.
inline void memory_is_that_of_the_plan(const nlohmann::json& done, const std::string& what) {
  const nlohmann::json &memory = done["memory"], &estimate = done["plan"]["estimates"][0];
  BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"], what);
  BOOST_TEST(estimate["kind"] == "exact", what);
  BOOST_TEST(memory["predicted_bytes"] == estimate["total_bytes"], what);
}

}  // namespace trainhost::test
