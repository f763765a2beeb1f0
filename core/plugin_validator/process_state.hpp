// Everything of a process that a plugin must leave as it found it: taken before and after, compared by name.
#pragma once
#include <map>
#include <string>

namespace trainhost::plugin_validator {

/// Facts by facet ("signals", "locale", ...): each facet is one text, equal exactly when nothing changed.
using ProcessState = std::map<std::string, std::string>;
ProcessState process_state();

/// What a facet's text says, before and after, in words: "" when equal.
std::string difference(const ProcessState& before, const ProcessState& after, const std::string& facet);

unsigned open_descriptors();
unsigned running_threads();
/// Bytes that the C library's allocator has given out, mapped blocks included.
std::uint64_t heap_bytes();

/// Bytes of this process that stand in memory.
std::uint64_t resident_bytes();

/// Standard output and error go to a file while it lives; written() is what came.
class CapturedOutput {
 public:
  CapturedOutput();
  ~CapturedOutput();
  CapturedOutput(const CapturedOutput&) = delete;
  std::string written();

 private:
  int file_ = -1, kept_[2] = {-1, -1};
};

}  // namespace trainhost::plugin_validator
