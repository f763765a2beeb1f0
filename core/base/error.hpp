// One channel for failures inside trainhost: an exception of type Error, thrown where the fact is known and
// translated once, at the border (the command line or the C boundary). Never used for our own bugs: those
// assert. The exit codes are those that scripts see; see also text.hpp for the nearest-name suggestions.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace trainhost {

/// What a process leaves with. Scripts act on these numbers, so they never change meaning.
enum class Exit : int {
  kDone = 0,
  kFailed = 1,      ///< the run failed: disk, device, non-finite loss
  kUsage = 2,       ///< the command line, run file, model config or data is wrong
  kDoesNotFit = 3,  ///< the plan exceeds the budget
  kNoBackend = 4,   ///< the backend asked for cannot be used and fallback is off
  kFalsified = 5,   ///< a contract was falsified
  kStopped = 75,    ///< stopped by a signal with a good checkpoint: run again with --resume
};

/// Where a user can find the mistake. Empty file = no place; line and column count from 1, 0 = unknown.
struct Where {
  std::string file;
  std::uint32_t line = 0, column = 0;
};

/// A failure that a person can act on: what happened, to what, and what to do next.
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

  /// "file:line:column: message (hint)", with control characters escaped: safe for a terminal.
  std::string full() const;

 private:
  Exit code_;
  std::string hint_;
  Where where_;
};

/// The user's mistake (exit 2).
inline Error usage_error(std::string message, std::string hint = {}, Where where = {}) {
  return Error(Exit::kUsage, std::move(message), std::move(hint), std::move(where));
}
/// The world's failure (exit 1).
inline Error run_error(std::string message, std::string hint = {}, Where where = {}) {
  return Error(Exit::kFailed, std::move(message), std::move(hint), std::move(where));
}

}  // namespace trainhost
