// The case that a child process is running, in a page of memory that its parent shares: written up to a
// thousand times per second, and still readable after the child crashed. Verdicts, which are few, go to the
// record of child_side.hpp.
#pragma once
#include <filesystem>
#include <string>

namespace trainhost::plugin_validator {

/// The parent: a temporary file of one page, removed by the destructor.
class CaseFile {
 public:
  /// The name is empty if no file can be created; then cases are not reported.
  CaseFile();
  ~CaseFile();
  CaseFile(const CaseFile&) = delete;
  const std::string& name() const { return name_; }
  /// The last note; "" if there is none.
  std::string text() const;

 private:
  std::string name_;
};

/// The child.
class CaseNote {
 public:
  /// Maps the file of that name. If it is "" or cannot be mapped, notes are discarded.
  void open(const std::string& name);
  void note(const std::string& text);

 private:
  char* page_ = nullptr;
};

}  // namespace trainhost::plugin_validator
