// The file of a trace: claimed before anything is trained, written piece by piece beside its place, put in
// place at the end. A run that fails leaves nothing behind, and what stood there before.
#pragma once
#include <filesystem>
#include <string>

#include "core/checkpoint/durable.hpp"

namespace trainhost::training {

class TraceFile {
 public:
  /// Throws usage_error where no file can be put: a missing directory, a directory in its place, no
  /// permission.
  explicit TraceFile(std::filesystem::path file);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;

  void write(const std::string& text);  // throws run_error, also below
  void publish();
  const std::filesystem::path& path() const { return file_; }

 private:
  std::filesystem::path file_, temp_;
  checkpoint::Fd fd_;
};

}  // namespace trainhost::training
