// The output file of a trace. A temporary file next to it is created before training, written in pieces, and
// renamed at the end. A run that fails leaves no temporary file and does not change an existing trace.
#pragma once
#include <filesystem>
#include <string>

#include "core/checkpoint/durable.hpp"

namespace trainhost::training {

class TraceFile {
 public:
  /// Throws usage_error if the file cannot be written: missing directory, path of a directory, no permission.
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
