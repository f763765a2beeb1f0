// Runs the checks of one plugin file, each where it cannot harm this process: a child runs all checks of a
// level in turn; whatever does not pass there is run once more in a child of its own, and that verdict
// counts. What follows a check that ended its child goes on in a fresh one. The child's side: worker.hpp.
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
  std::filesystem::path program = "/proc/self/exe";  // runs run_worker() for the words below
  std::vector<std::string> words = {"plugins", "check-worker"};
  int level = kDefaultLevel;  // checks up to this level
  std::vector<std::string> only,
      skip;              // ids or levels ("E-014", "3"); only: these and nothing else, whatever level says
  double deadline = 10;  // seconds for one check
  std::uint64_t seed = 1;
  double fuzz_seconds = 0;  // that each check of level 9 draws cases for; 0: a fixed number of cases
  std::filesystem::path reference_trainer,
      reference_estimator;  // to compare with; empty: those checks are skipped
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
  /// Nothing failed, crashed or was late.
  bool kept() const;
};

/// `seen` is called with each verdict as it stands. Throws usage_error with the nearest id or level for an
/// unknown one.
Report run_checks(const Settings& s, const std::function<void(const Result&)>& seen = {});

}  // namespace trainhost::plugin_validator
