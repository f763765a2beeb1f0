// The case that a child is at, in a page that its parent shares: written a thousand times a second and there
// after any death of the child. The record of child_side.hpp is for verdicts, which are few.
#pragma once
#include <filesystem>
#include <string>

namespace trainhost::plugin_validator {

/// The parent's side: a file of one page, gone with it.
class CaseFile {
 public:
  /// An empty name where the system gives no file: then cases stay without a name.
  CaseFile();
  ~CaseFile();
  CaseFile(const CaseFile&) = delete;
  const std::string& name() const { return name_; }
  /// What was noted last; "" for nothing.
  std::string text() const;

 private:
  std::string name_;
};

/// The child's side.
class CaseNote {
 public:
  /// Maps the file of that name; "" or one that cannot be mapped: notes go nowhere.
  void open(const std::string& name);
  void note(const std::string& text);

 private:
  char* page_ = nullptr;
};

}  // namespace trainhost::plugin_validator
