// The child's side of run_child: its record to the parent, on a descriptor of its own that noise on standard
// output cannot reach, with a word at its end that only a child that came so far can have sent. See
// child.hpp.
#pragma once
#include <string>
#include <string_view>

namespace trainhost {

/// Far from 0 to 9, which hostile code closes.
inline constexpr int kChildRecordDescriptor = 100;

class ChildRecord {
 public:
  /// Adds to the record, at once: what was written before a crash arrives. Parts longer than 1 MiB are cut.
  void write(std::string_view part);
  /// The last word: ends the process with `code`, running no destructor or exit handler of anybody.
  [[noreturn]] void done(int code = 0);
};

/// Standard input to its end: the parent's request. Never more than 64 KiB.
std::string read_child_input();

}  // namespace trainhost
