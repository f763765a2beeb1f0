// One promise that a plugin makes by the plugin interface, as a check: a stable id, why it matters, and a
// function that finds out. All of them stand in one table (check_table.cpp, from one file a level). A check
// sees a Bench and nothing else; it never decides where it runs: that is runner.hpp.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainhost::plugin_validator {

class Bench;

/// Whom a check is for; the first letter of its id says the same: C, E, T.
enum class Kind { kCommon, kEstimator, kTrainer };

enum class Outcome { kPass, kFail, kSkip, kCrash, kTimeout };

struct Check {
  std::string id;     // "E-014"; numbers are never given to another check
  int level = 1;      // 1..10, see README.md
  std::string title;  // the promise, in one line
  std::string why;    // one paragraph: what goes wrong for whom when it is broken, and how to mend it
  std::vector<std::string>
      needs;  // checks that must have passed; otherwise this one is skipped naming the first
  void (*run)(Bench&) = nullptr;  // returns: kept; throws Broken or NotHere (verdict.hpp)
  bool alone = false;             // needs a process in which nothing of the plugin has run before
  double patience = 0;            // seconds beyond the deadline that its own work takes
  Kind kind() const {
    return id[0] == 'C' ? Kind::kCommon : id[0] == 'E' ? Kind::kEstimator : Kind::kTrainer;
  }
};

/// What became of a check. `reason` is one sentence: what the plugin did and what was expected; after a pass
/// empty, or a figure for those who want it.
struct Verdict {
  Outcome outcome = Outcome::kSkip;
  std::string reason;
  double seconds = 0;
};

/// Every check, by level, then in the order in which they are best read.
const std::vector<Check>& checks();

/// nullptr when there is none of that id.
const Check* find(const std::string& id);

/// What a level is about, 1..10: "file and manifest, no code of the plugin runs".
const char* level_title(int level);
inline constexpr int kLevels = 10, kDefaultLevel = 5;

/// Seconds beyond the deadline that `c` may take when its cases are drawn for `fuzz_seconds`.
double patience(const Check& c, double fuzz_seconds);

const char* word(Outcome o);  // pass | fail | skip | crash | timeout
const char* word(Kind k);     // common | estimator | trainer

}  // namespace trainhost::plugin_validator
