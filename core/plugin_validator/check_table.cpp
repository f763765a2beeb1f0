// See validator_check.hpp. Checks are sorted by level; within a level they keep the order of the files. The
// table is built once and never changes; pointers to its rows are valid as long as the process lives.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <set>
#include <string>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {
namespace {

/// Ids are unique, and each check comes after its prerequisites: the runner works from front to back.
[[maybe_unused]] bool in_order(const std::vector<Check>& all) {
  std::set<std::string> seen;
  for (const Check& c : all) {
    for (const std::string& id : c.needs)
      if (!seen.count(id)) return false;
    if (!seen.insert(c.id).second) return false;
  }
  return true;
}

std::vector<Check> all_parts() {
  std::vector<Check> all;
  // Order: report_checks before the checks that need a report (C-070), trainer_state_checks before
  // trainer_number_checks, which need load().
  for (auto part : {file_checks,
                    load_checks,
                    process_checks,
                    estimator_argument_checks,
                    trainer_argument_checks,
                    family_checks,
                    trainer_order_checks,
                    report_checks,
                    estimator_checks,
                    trainer_checks,
                    trainer_memory_checks,
                    contract_checks,
                    estimator_number_checks,
                    trainer_state_checks,
                    trainer_number_checks,
                    trainer_reference_checks,
                    budget_checks,
                    cancel_checks,
                    concurrency_checks,
                    exhaustion_checks,
                    repeated_use_checks,
                    fuzz_checks,
                    long_run_checks}) {
    std::vector<Check> some = part();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  // By level only: within a level a prerequisite stays before the checks that need it.
  std::stable_sort(all.begin(), all.end(), [](const Check& a, const Check& b) { return a.level < b.level; });
  assert(in_order(all));
  return all;
}

}  // namespace

const std::vector<Check>& checks() {
  static const std::vector<Check> all = all_parts();
  return all;
}

const Check* find(const std::string& id) {
  for (const Check& c : checks())
    if (c.id == id) return &c;
  return nullptr;
}

const char* level_title(int level) {
  // Index: level - 1. The titles are also in README.md.
  static const char* const titles[kLevels] = {
      "file and manifest: no code of the plugin runs",
      "loading and description",
      "process state, start and stop",
      "invalid arguments and error codes",
      "functional minimum for being listed",
      "numerical results on tiny models",
      "concurrency, cancellation, budgets",
      "resource exhaustion: each allocation fails once, many instances",
      "fuzzed models, runs and structs",
      "long runs with faults, measured peaks",
  };
  return level >= 1 && level <= kLevels ? titles[level - 1] : "";
}

double extra_seconds(const Check& c, double fuzz_seconds) {
  // Only level 9 runs random cases for a given time.
  return c.extra_seconds + (c.level == 9 ? fuzz_seconds : 0);
}

// The names are in JSON, in JUnit and in the record of a child, so they never change.
const char* name_of(Outcome o) {
  switch (o) {
    case Outcome::kPass:
      return "pass";
    case Outcome::kFail:
      return "fail";
    case Outcome::kSkip:
      return "skip";
    case Outcome::kCrash:
      return "crash";
    case Outcome::kTimeout:
      return "timeout";
  }
  return "";
}

const char* name_of(Kind k) {
  return k == Kind::kCommon ? "common" : k == Kind::kEstimator ? "estimator" : "trainer";
}

}  // namespace trainhost::plugin_validator
