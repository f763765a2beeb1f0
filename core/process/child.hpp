// Runs a program in a child process that may crash, hang, fork or write without end. The caller survives, the
// deadline holds, and no process of the child remains. Reports how the child ended and what it recorded; does
// not judge it. The child's side, which sends the record: child_side.hpp. Processes that outlive the child:
// orphans.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainhost {

struct ChildLimits {
  double seconds = 10;  ///< wall clock; then the whole process group is killed
  std::size_t output_bytes =
      16 * 1024;  ///< kept of standard output and error together; the rest is only counted
  std::size_t record_bytes =
      4 * 1024 * 1024;  ///< kept of the record; a longer one is cut and never counts as finished
  std::uint64_t file_bytes = 64 * 1024 * 1024;  ///< RLIMIT_FSIZE
  std::uint64_t descriptors = 1024;             ///< RLIMIT_NOFILE
};

struct ChildRequest {
  std::filesystem::path program = "/proc/self/exe";  ///< absolute; the default is this very program
  std::vector<std::string> arguments;                ///< after argv[0]
  std::string input;  ///< its standard input, at most 48 KiB, sent when the limits are set
  std::map<std::string, std::string> environment;  ///< set over our own
  ChildLimits limits;
};

enum class ChildEnd {
  kDone,     ///< it finished its record, then exited
  kExited,   ///< it exited before its record was finished, for example exit(0) in a plugin's constructor
  kSignal,   ///< a signal ended it
  kStopped,  ///< it was stopped (SIGSTOP), then killed
  kLate,     ///< killed at the deadline
};

struct ChildResult {
  ChildEnd end = ChildEnd::kLate;
  int code = 0;                    ///< exit code of kDone and kExited, signal number of kSignal and kStopped
  std::string record;              ///< what it wrote to its record until then
  std::string output;              ///< the first bytes of standard output and error
  std::uint64_t output_bytes = 0;  ///< how many bytes it wrote there
  unsigned left_behind = 0;        ///< processes that it left running; they were killed
  double seconds = 0;              ///< wall clock from start to end
};

/// Runs the program until it ends or its deadline passes. It gets a process group of its own, standard input
/// from `input`, no core file and none of our descriptors. Thread-safe. Throws run_error when it cannot be
/// started.
ChildResult run_child(const ChildRequest& request);

/// How the child ended, as a predicate that follows "it": "was ended by signal 11 (SIGSEGV)", "exited with
/// code 0 before it had finished", "was not done after 10 s".
std::string describe(const ChildResult& result, const ChildLimits& limits);

}  // namespace trainhost
