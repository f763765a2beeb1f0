// State of the process that a plugin must not change: captured before and after, compared by facet.
#pragma once
#include <map>
#include <string>

namespace trainhost::plugin_validator {

/// One text per facet ("signal handlers", "locale", ...); equal exactly if nothing changed.
using ProcessState = std::map<std::string, std::string>;
ProcessState process_state();

/// The change of a facet as a phrase; "" if it did not change.
std::string difference(const ProcessState& before, const ProcessState& after, const std::string& facet);

unsigned open_descriptors();
unsigned running_threads();
/// Bytes allocated from the C library, including mapped blocks.
std::uint64_t heap_bytes();

/// Resident memory of this process in bytes; 0 under AddressSanitizer, which keeps freed memory.
std::uint64_t resident_bytes();

/// Redirects standard output and standard error to a file until it is destroyed; written() returns the
/// text.
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
