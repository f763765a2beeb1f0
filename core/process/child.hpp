// Runs a program in a child process that may crash, hang, fork or write without end: the caller lives, the
// deadline holds, and nothing of the child is left. Judges nothing: it says how the child ended and what it
// had to say. The child's own side, which sends the record: child_side.hpp. Processes that outlive their
// parent: orphans.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainhost {

struct ChildLimits {
  double seconds = 10;                   ///< wall clock; then the whole process group is killed
  std::size_t output_bytes = 16 * 1024;  ///< kept of standard output and error together; the rest is counted
  std::size_t record_bytes = 4 * 1024 * 1024;   ///< kept of the record; a longer one is cut and never "done"
  std::uint64_t file_bytes = 64 * 1024 * 1024;  ///< RLIMIT_FSIZE
  std::uint64_t descriptors = 1024;             ///< RLIMIT_NOFILE
};

struct ChildRequest {
  std::filesystem::path program = "/proc/self/exe";  ///< absolute; the default is this very program
  std::vector<std::string> words;                    ///< after argv[0]
  std::string input;  ///< its standard input, at most 48 KiB, sent once the limits stand
  std::map<std::string, std::string> environment;  ///< set over our own
  ChildLimits limits;
};

enum class ChildEnd {
  kDone,     ///< it said that it had finished, and exited
  kExited,   ///< it exited without having said so: exit(0) in somebody's constructor is no success
  kSignal,   ///< a signal ended it
  kStopped,  ///< it was stopped (SIGSTOP) and would have stayed so: killed
  kLate,     ///< killed at the deadline
};

struct ChildResult {
  ChildEnd end = ChildEnd::kLate;
  int code = 0;                    ///< exit code of kDone and kExited, signal number of kSignal and kStopped
  std::string record;              ///< all that it wrote to its record until then
  std::string output;              ///< the head of standard output and error
  std::uint64_t output_bytes = 0;  ///< all that it wrote there
  unsigned left_behind = 0;        ///< processes that it left running; killed
  double seconds = 0;              ///< wall clock from start to end
};

/// Runs it to its end. Its own process group, standard input from `input`, no core file, no descriptor of
/// ours. Any thread may call it, several at once. Throws run_error when it cannot be started at all.
ChildResult run_child(const ChildRequest& request);

/// "ended by signal 11 (SIGSEGV)", "exited with code 0 before it had finished", "was not done after 10 s":
/// how it ended, in words that follow "it".
std::string describe(const ChildResult& result, const ChildLimits& limits);

}  // namespace trainhost
