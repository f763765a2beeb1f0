// Runs the checks of one plugin file in child processes. One child runs all checks of a level in order; a
// check that does not pass there runs again in a child of its own, and that verdict counts. After a check
// that ended its child, the remaining checks continue in a new child. The child: worker.cpp.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

struct Settings {
  std::filesystem::path file;                        // absolute
  std::filesystem::path program = "/proc/self/exe";  // runs run_worker() when called with worker_arguments
  std::vector<std::string> worker_arguments = {"plugins", "check-worker"};
  int level = kDefaultLevel;  // checks up to this level
  std::vector<std::string> only,
      skip;              // ids or levels ("E-014", "3"); only: these and nothing else, whatever level says
  double deadline = 10;  // seconds for one check
  std::uint64_t seed = 1;
  double fuzz_seconds = 0;  // that each check of level 9 draws cases for; 0: a fixed number of cases
  std::filesystem::path reference_estimator;  // to compare with; empty: that check is skipped
};

struct Result {
  const Check* check = nullptr;
  Verdict verdict;
};

struct Report {
  std::filesystem::path file;
  std::string id, kind, version;  // of the manifest; empty where it cannot be read
  std::uint64_t seed = 0;
  std::vector<Result> results;  // in the order of the table; checks of the other kind are not in it
  std::size_t count(Outcome o) const;
  /// No check failed, crashed or timed out.
  bool all_passed() const;
};

/// Calls `seen` with each result as soon as it is final. Throws usage_error with the nearest id or level
/// for an unknown one.
Report run_checks(const Settings& s, const std::function<void(const Result&)>& seen = {});

/// The child process: reads from standard input which checks to run, runs them in order, and writes one line
/// to its record before and after each. Ends itself when a check exceeds its time. Never returns.
[[noreturn]] void run_worker();

}  // namespace trainhost::plugin_validator
