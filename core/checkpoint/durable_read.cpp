// The reading functions of durable.hpp. Uses pread and not mmap: a file that shrinks causes an error, not
// SIGBUS.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;

Fd open_regular(const fs::path& path, struct stat& info) {
  int raw;
  // O_NONBLOCK: open() of a FIFO without a writer would block; it has no effect on a regular file. O_NOCTTY:
  // a terminal must not become ours.
  do raw = sys().open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
  while (raw < 0 && errno == EINTR);
  if (raw < 0 && (errno == ENOENT || errno == ENOTDIR))
    throw usage_error(fmt::format("{}: no such file", escaped(path.string(), 4096)));
  if (raw < 0) throw_errno("open", path, errno);
  Fd fd(raw);
  // After open(), on the descriptor: a check of the path before could see another file.
  if (::fstat(fd.get(), &info) != 0) throw_errno("examine", path, errno);
  if (!S_ISREG(info.st_mode))
    throw usage_error(fmt::format("{} is not a regular file", escaped(path.string(), 4096)));
  return fd;
}

bool read_at(int fd, std::uint64_t at, std::span<std::byte> out, const fs::path& path) {
  while (!out.empty()) {
    // pread may return less than asked (2 GiB at most on Linux, or a signal): hence the loop.
    ssize_t n = sys().pread(fd, out.data(), out.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("read", path, errno);
    // End of file: it is shorter than its size was; the caller reports it.
    if (n == 0) return false;
    at += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

std::string read_whole(const fs::path& path, std::uint64_t max_bytes) {
  struct stat info;
  Fd fd = open_regular(path, info);
  auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > max_bytes)
    throw usage_error(
        fmt::format("{} has {} bytes; the limit is {}", escaped(path.string(), 4096), size, max_bytes));
  // The size at the time of opening: a growing file is read up to there.
  std::string text(size, '\0');
  if (!read_at(fd.get(), 0, std::as_writable_bytes(std::span(text)), path))
    throw run_error(fmt::format("{} was truncated while it was read", escaped(path.string(), 4096)));
  return text;
}

}  // namespace trainhost::checkpoint
