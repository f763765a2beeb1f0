// Durable files: writes data to disk and checks every step. Short writes are continued, an error of fsync or
// close fails the file, and nothing is retried on a descriptor that failed once. Every failure throws
// run_error with the path and the system's reason. store.cpp builds the checkpoint protocol on these
// functions.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/checkpoint/system_calls.hpp"

namespace trainhost::checkpoint {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// "cannot DOING PATH: No space left on device".
[[noreturn]] void throw_errno(const char* doing, const std::filesystem::path& path, int error);

/// NAME.tmp.HEX with a random HEX in the directory of `target`. Such names are never taken for finished
/// files.
std::filesystem::path temp_beside(const std::filesystem::path& target);
/// True if temp_beside() made this name for `base` ("" = for any name).
bool is_temp_name(std::string_view name, std::string_view base = {});

Fd create_new(const std::filesystem::path& path);
/// Opens a regular file for reading. Rejects directories, pipes and devices without blocking on them.
Fd open_regular(const std::filesystem::path& path, struct stat& info);
void write_all(int fd, std::span<const std::byte> data, const std::filesystem::path& path);
/// The same at byte `at` of the file.
void write_at(int fd, std::uint64_t at, std::span<const std::byte> data, const std::filesystem::path& path);
/// Makes a new file that long, with its blocks on disk where the file system can reserve them.
void allocate(int fd, std::uint64_t bytes, const std::filesystem::path& path);
/// Calls fsync and close, and checks both.
void sync_and_close(Fd fd, const std::filesystem::path& path);
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& dir);
/// Type of the file itself, not of the one that a link points to; not_found if there is none. Throws if the
/// system gives another reason: a failing disk must not be taken for a missing file.
std::filesystem::file_type file_type_of(const std::filesystem::path& path);
void make_directory(const std::filesystem::path& dir);
/// Creates the directory and its missing parents, each synced. Does nothing if it exists.
void make_directories(const std::filesystem::path& dir);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_file(const std::filesystem::path& path);
/// Removes a file or a directory with its contents; removes symbolic links without following them. Does
/// nothing if `path` does not exist.
void remove_tree(const std::filesystem::path& path);

/// Renames the directory `staged` to `target`. If `target` exists, exchanges the two atomically and returns
/// true; `staged` then is the old directory. If the file system cannot exchange, the old one is renamed
/// first.
bool publish_directory(const std::filesystem::path& staged, const std::filesystem::path& target);

/// Reads bytes [at, at + out.size()) of the file; false if the file ends before. Continues after EINTR and
/// short reads.
bool read_at(int fd, std::uint64_t at, std::span<std::byte> out, const std::filesystem::path& path);
/// Reads the whole file. Throws usage_error before reading if it is longer than max_bytes.
std::string read_whole(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace trainhost::checkpoint
