// Reads and writes files for this module: positioned reads whose errors name the offset, and atomic writes.
// Files are never mapped: a mapped file that shrinks kills the process, while a positioned read only fails.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/phase_sink.hpp"

namespace trainhost::data {

/// The path in messages: quoted, with control characters escaped.
std::string in_quotes(const std::filesystem::path& p);

/// What tells that a file was replaced or written. Times in nanoseconds since 1970.
struct FileState {
  std::uint64_t inode = 0, size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;
};

/// A regular file that is open for reading. Thread-safe.
class InputFile {
 public:
  /// Errors: Error(kUsage) if it does not exist (with a similar name in its folder), is not a regular file or
  /// cannot be opened.
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  const FileState& state() const { return state_; }  // when the file was opened
  std::uint64_t size() const { return state_.size; }
  /// Throws Error(kFailed) if the file was written to since it was opened. Costs one system call. A file that
  /// was replaced by another of the same name is not affected: the old content is still read.
  void require_unchanged() const;
  /// Fills `out` from byte `offset`. Errors: Error(kFailed) with file and offset, also if the file was
  /// truncated.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileState state_;
};

/// The same for a file that is not kept open: `opened` is its state when it was read. A file that was
/// removed, or replaced by another of the same name, is not affected.
void require_unchanged(const std::filesystem::path& path, const FileState& opened);

/// Reads the whole file. Errors: those of InputFile; Error(kUsage) if it is larger than `limit` bytes.
std::string read_whole(const std::filesystem::path& path, std::uint64_t limit);

/// Writes a temporary file in the same folder; commit() syncs it and renames it to `path`. Without commit()
/// the temporary file is removed. Errors: Error(kFailed) with the file.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  void append(std::span<const std::byte> bytes);
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::filesystem::path path_;
  std::string temporary_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// Removes temporary files of OutputFile that no process writes any more: those of a process that was killed.
/// Of other files only those are touched that have such a name (NAME.bin.XXXXXX, .xxh3., .json.). Reports no
/// error.
void remove_abandoned(const std::filesystem::path& folder);

/// XXH3-128 of the content as 32 hexadecimal digits.
std::string content_hash(const InputFile& file, const OnRead& on_read = {});
std::string content_hash(std::string_view bytes);

}  // namespace trainhost::data
