// One rule of the plugin interface as a check: a stable id, the reason for the rule, and a function that
// tests it. All checks are in one table (check_table.cpp), built from one file per group. A check uses a
// WatchedPlugin; runner.hpp decides in which process it runs.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace trainhost::plugin_validator {

class WatchedPlugin;

/// The kind of plugin that a check is for; also the first letter of its id: C, E, T.
enum class Kind { kCommon, kEstimator, kTrainer };

enum class Outcome { kPass, kFail, kSkip, kCrash, kTimeout };

struct Check {
  std::string id;                  // "E-014"; never reused for another check
  int level = 1;                   // 1..10, see README.md
  std::string title;               // the rule, in one line
  std::string why;                 // the consequence of breaking the rule, then "Fix: " and what to change
  std::vector<std::string> needs;  // prerequisites: unless all passed, this check is skipped
  void (*run)(WatchedPlugin&) = nullptr;  // returns if the check passed; throws CheckFailed or CheckSkipped
  bool own_process = false;               // needs a process in which the plugin has not run yet
  double extra_seconds = 0;               // additional seconds that the check itself needs
  Kind kind() const {
    return id[0] == 'C' ? Kind::kCommon : id[0] == 'E' ? Kind::kEstimator : Kind::kTrainer;
  }
};

/// The result of a check. `reason` is one sentence: what the plugin did and what was expected. After a pass
/// it is empty or a measurement.
struct Verdict {
  Outcome outcome = Outcome::kSkip;
  std::string reason;
  double seconds = 0;
};

/// All checks, by level.
const std::vector<Check>& checks();

/// nullptr if there is no check with that id.
const Check* find(const std::string& id);

/// The title of a level, 1..10.
const char* level_title(int level);
inline constexpr int kLevels = 10, kDefaultLevel = 5;

/// Seconds that `c` may take in addition to the deadline when cases run for `fuzz_seconds`.
double extra_seconds(const Check& c, double fuzz_seconds);

const char* name_of(Outcome o);  // pass | fail | skip | crash | timeout
const char* name_of(Kind k);     // common | estimator | trainer

/// The check failed: what the plugin did, and what was expected. Caught only in worker.cpp.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The check cannot run here, with the reason: no device, or an interface that is not provided. Caught only
/// in worker.cpp.
struct CheckSkipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws CheckFailed with that sentence unless `kept` is true.
template <class... A>
void expect(bool kept, fmt::format_string<A...> sentence, A&&... a) {
  if (!kept) throw CheckFailed(fmt::format(sentence, std::forward<A>(a)...));
}

/// Throws CheckFailed if `breach` is not "".
inline void expect_none(const std::string& breach) {
  if (!breach.empty()) throw CheckFailed(breach);
}

}  // namespace trainhost::plugin_validator
