// Reading and writing files for this folder: positioned reads that report their place, and writes that appear
// whole or not at all. Never maps: a mapped file that shrinks kills the process, a positioned read only
// fails.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trainhost::data {

/// A path as messages show it: quoted, with control characters escaped.
std::string in_quotes(const std::filesystem::path& p);

/// A regular file open for reading. Thread-safe.
class InputFile {
 public:
  /// Errors: Error(kUsage) when it does not exist (with the nearest name beside it), is a folder, is not a
  /// regular file or cannot be opened.
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened
  /// Fills `out` from byte `offset`. Errors: Error(kFailed) naming file and offset, also when the file has
  /// shrunk.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole file. Errors: also when it is larger than `limit` bytes.
std::string read_whole(const std::filesystem::path& path, std::uint64_t limit);

/// A file that is written beside its place under a name of its own and takes its name in commit(), after its
/// bytes have reached the disk. Without commit() nothing is left. Errors: Error(kFailed) naming the file.
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

/// XXH3, 128 bits, of a file's content, as 32 hexadecimal digits.
std::string content_hash(const InputFile& file);
std::string content_hash(std::string_view bytes);

}  // namespace trainhost::data
