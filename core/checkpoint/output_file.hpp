// Output files that an option of a command names. An unusable path is reported before any work is done. A
// file is written completely or not at all, and replaces only a regular file.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "core/checkpoint/durable.hpp"

namespace trainhost::checkpoint {

/// Throws usage_error with the option if `file` cannot be written: no file name, a directory, a missing
/// directory, no permission. `example` is part of the hint: "--html plan.html".
void require_writable(std::string_view option, const std::filesystem::path& file, std::string_view example);

/// A temporary file next to `file`, created now, written in pieces, and renamed by publish(). Without
/// publish() the destructor removes it, and an existing file is not changed.
class OutputFile {
 public:
  /// Calls require_writable(). Throws usage_error too if the temporary file cannot be created.
  OutputFile(std::string_view option, std::filesystem::path file, std::string_view example);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;

  void write(std::string_view text);  // throws run_error, also below
  void publish();
  const std::filesystem::path& path() const { return file_; }

 private:
  std::filesystem::path file_, temporary_;
  Fd fd_;
};

/// Writes the whole file atomically. Calls require_writable() first; throws run_error if writing fails. A
/// previous file is then unchanged.
void write_output(std::string_view option, const std::filesystem::path& file, std::string_view text,
                  std::string_view example);

}  // namespace trainhost::checkpoint
