// Trial load: an unknown plugin is loaded, started, probed and stopped in a child process first, so that
// crashes, hangs, exits and changes of the process do no harm. The parent runs the child and evaluates how
// it ended; the child runs serve_trial_load(), which main() calls when its only argument is
// kTrialLoadArgument.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {

inline constexpr const char* kTrialLoadArgument = "--probe-a-plugin";

/// The warning about a library that changes the floating-point mode while loading.
inline constexpr const char* kFpWarning =
    "it changed the floating-point mode while loading (flush denormals to zero, probably -ffast-math); the "
    "host "
    "restored it";

/// Lines of the plugin's log that a trial load reports.
inline constexpr std::size_t kMaxNotes = 4;

struct TrialLoadRequest {
  std::filesystem::path program;  // whose main() handles kTrialLoadArgument
  double seconds = 30;            // the first start of a GPU driver takes 10 s
  std::filesystem::path file;
  FileId id;
  std::uint32_t threads = 1;
  std::map<std::string, std::string> options;  // its [plugin.ID]
};

struct TrialLoadResult {
  std::optional<Rejection> rejected;     // it must not be loaded
  std::optional<Rejection> unavailable;  // it loads, but probe() failed
  std::vector<std::string> warnings;     // harmless side effects
  std::vector<std::string> notes;        // what it logged in probe(), at most kMaxNotes
};

/// Throws run_error only if no child can be started.
TrialLoadResult run_trial_load(const TrialLoadRequest& request);

/// The child process: reads the request from standard input. Never returns.
[[noreturn]] void serve_trial_load();

}  // namespace trainhost::plugin
