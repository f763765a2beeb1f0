// The child's side of run_child() (child.hpp): reads the request, and writes a record to the parent on a
// descriptor of its own, separate from standard output. The record ends with a marker, which shows that the
// child finished.
#pragma once
#include <string>
#include <string_view>

namespace trainhost {

/// Outside the range 0 to 9, which misbehaving plugins close.
inline constexpr int kChildRecordDescriptor = 100;

class ChildRecord {
 public:
  /// Appends to the record without buffering: what was written before a crash arrives. Longer than 1 MiB:
  /// truncated.
  void write(std::string_view part);
  /// Ends the record, then the process with `code`. Runs no destructor and no exit handler.
  [[noreturn]] void done(int code = 0);
};

/// Reads standard input to its end: the parent's request. At most 64 KiB.
std::string read_child_input();

}  // namespace trainhost
