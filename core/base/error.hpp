// Error: the only exception type for failures of a run or of its inputs. Caught at the command line and at
// the C interface. Programming errors are asserts instead. Suggestions of similar names: text.hpp.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trainhost {

/// Exit codes of the process. Scripts depend on them; they do not change.
enum class Exit : int {
  kDone = 0,
  kFailed = 1,      ///< the run failed: disk, device, non-finite loss
  kUsage = 2,       ///< invalid command line, run file, model config or data
  kDoesNotFit = 3,  ///< the plan exceeds the budget
  kNoBackend = 4,   ///< the requested backend is unavailable and fallback is off
  kFalsified = 5,   ///< a contract does not hold
  kStopped = 75,    ///< stopped by a signal after writing a checkpoint, or before the first step
};

/// Source position of a mistake. Empty file = none; line and column count from 1, 0 = unknown.
struct Where {
  std::string file;
  std::uint32_t line = 0, column = 0;
};

/// A failure with a message (what is wrong, with the value) and a hint (a command or key that fixes it).
class Error : public std::runtime_error {
 public:
  Error(Exit code, std::string message, std::string hint = {}, Where where = {})
      : std::runtime_error(std::move(message)),
        code_(code),
        hint_(std::move(hint)),
        where_(std::move(where)) {}

  Exit code() const noexcept { return code_; }
  const std::string& hint() const noexcept { return hint_; }
  const Where& where() const noexcept { return where_; }

  /// "file:line:column: message (hint)", with control characters escaped.
  std::string full() const;

 private:
  Exit code_;
  std::string hint_;
  Where where_;
};

/// A mistake of the user (exit 2).
inline Error usage_error(std::string message, std::string hint = {}, Where where = {}) {
  return Error(Exit::kUsage, std::move(message), std::move(hint), std::move(where));
}
/// A failure of the environment, such as a full disk (exit 1).
inline Error run_error(std::string message, std::string hint = {}, Where where = {}) {
  return Error(Exit::kFailed, std::move(message), std::move(hint), std::move(where));
}

/// Writes to standard error and flushes. If that is closed, full or a pipe without a reader, the text is
/// dropped: no message is worth a run.
void write_stderr(std::string_view text) noexcept;

}  // namespace trainhost
