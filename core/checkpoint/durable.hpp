// Files that survive: the one audited path from memory to disk, and the reads that check it. Short writes go
// on, an error of fsync or close is an error of the file, and nothing is retried on a descriptor that failed
// once. Every failure throws run_error with the path and the system's reason. The protocol built on this:
// store.cpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/checkpoint/system_calls.hpp"

namespace trainhost::checkpoint {

/// Owns a descriptor.
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

/// NAME.tmp.HEX beside `target`: ours alone, and ignored by everything that looks for finished work.
std::filesystem::path temp_beside(const std::filesystem::path& target);
/// Was the name made by temp_beside() for `base` ("" = any)?
bool is_temp_name(std::string_view name, std::string_view base = {});

Fd create_new(const std::filesystem::path& path);
/// A regular file for reading; refuses directories, pipes and devices without waiting on them.
Fd open_regular(const std::filesystem::path& path, struct stat& info);
void write_all(int fd, std::span<const std::byte> data, const std::filesystem::path& path);
/// fsync and close, both checked.
void sync_and_close(Fd fd, const std::filesystem::path& path);
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& dir);
void make_directory(const std::filesystem::path& dir);
/// With whatever is missing above it, each entry synced; there already: nothing to do.
void make_directories(const std::filesystem::path& dir);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_file(const std::filesystem::path& path);
/// A file or a whole directory; a symbolic link is removed, not followed. Not there: nothing to do.
void remove_tree(const std::filesystem::path& path);

/// Makes `staged` the directory `target`, atomically also when `target` exists: then the two change places
/// and `staged` holds the old content (true). Where the file system cannot exchange, the old one steps aside
/// first.
bool put_in_place(const std::filesystem::path& staged, const std::filesystem::path& target);

/// Bytes [at, at + out.size()) of the file; false when it ends before that. EINTR and short reads go on.
bool read_at(int fd, std::uint64_t at, std::span<std::byte> out, const std::filesystem::path& path);
/// The whole file; throws usage_error when it is longer than max_bytes, before any of it is stored.
std::string read_whole(const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace trainhost::checkpoint
