// The writing functions of durable.hpp. Measured: on a full tmpfs and under RLIMIT_FSIZE, a write returns a
// short count without an error, and fsync and close then succeed; only the loop in write_all() detects it.
#include "core/checkpoint/durable.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <system_error>
#include <vector>

#include "core/base/directory.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;

void Fd::reset() noexcept {
  if (fd_ >= 0) sys().close(std::exchange(fd_, -1));
}

void throw_errno(const char* doing, const fs::path& path, int error) {
  std::string shown = path.string();  // the file that is meant, not the temporary one beside it
  if (is_temp_name(path.filename().native(), "")) shown.resize(shown.rfind(".tmp."));
  throw run_error(
      fmt::format("cannot {} {}: {}", doing, escaped(shown, 4096), std::generic_category().message(error)));
}

/// In the directory of the target, because rename() cannot cross file systems. 64 random bits: two processes,
/// or a process and the leftovers of another, never choose the same name.
fs::path temp_beside(const fs::path& target) {
  std::uint64_t r = 0;
  if (::getrandom(&r, sizeof r, 0) != sizeof r) throw_errno("create a temporary name for", target, errno);
  return fs::path(target) += fmt::format(".tmp.{:016x}", r);
}

/// Strict about the 16 hexadecimal digits, since files with such names are removed as leftovers.
bool is_temp_name(std::string_view name, std::string_view base) {
  auto at = name.rfind(".tmp.");
  if (at == std::string_view::npos || name.size() - at != 5 + 16) return false;
  if (name.find_first_not_of("0123456789abcdef", at + 5) != std::string_view::npos) return false;
  return base.empty() || name.substr(0, at) == base;
}

/// O_EXCL: never writes into a file or through a link that exists under this name.
Fd create_new(const fs::path& path) {
  for (;;) {
    int fd = sys().open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0) return Fd(fd);
    if (errno != EINTR) throw_errno("create", path, errno);
  }
}

void write_all(int fd, std::span<const std::byte> data, const fs::path& path) {
  while (!data.empty()) {
    ssize_t n = sys().write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("write", path, errno);
    if (n == 0) throw_errno("write", path, ENOSPC);  // no progress and no error: do not loop forever
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void write_at(int fd, std::uint64_t at, std::span<const std::byte> data, const fs::path& path) {
  while (!data.empty()) {
    const ssize_t n = sys().pwrite(fd, data.data(), data.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("write", path, errno);
    if (n == 0) throw_errno("write", path, ENOSPC);
    at += static_cast<std::uint64_t>(n);
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void allocate(int fd, std::uint64_t bytes, const fs::path& path) {
  int r;
  do r = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  while (r != 0 && errno == EINTR);
  if (r != 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
    r = ::ftruncate(fd, static_cast<off_t>(bytes));
  if (r != 0) throw_errno("write", path, errno);
}

namespace {

// fsync() may be interrupted without having failed. Any other error is final: after a failed fsync the kernel
// may mark pages clean that were not written, so a second fsync would report success for lost data.
int fsync_through_signals(int fd) {
  int r;
  do r = sys().fsync(fd);
  while (r != 0 && errno == EINTR);
  return r;
}

}  // namespace

/// Takes ownership of the descriptor, so that nothing can use it after an error.
void sync_and_close(Fd fd, const fs::path& path) {
  if (fsync_through_signals(fd.get()) != 0) throw_errno("sync", path, errno);
  // After EINTR from close the descriptor is closed, and the data were synced.
  if (sys().close(fd.release()) != 0 && errno != EINTR) throw_errno("close", path, errno);
}

/// Opened for reading: fsync() writes the dirty pages of the file, whichever descriptor wrote them.
void sync_file(const fs::path& path) {
  Fd fd(sys().open(path.c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (fd.get() < 0) throw_errno("open", path, errno);
  sync_and_close(std::move(fd), path);
}

/// Makes created, renamed and removed names durable. Without it, a power failure can undo a rename although
/// the file was synced.
void sync_directory(const fs::path& dir) {
  fs::path d = dir.empty() ? fs::path(".") : dir;
  Fd fd(sys().open(d.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  if (fd.get() < 0) throw_errno("open", d, errno);
  // Some file systems cannot sync a directory; that is not an error.
  if (fsync_through_signals(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    throw_errno("sync", d, errno);
  if (sys().close(fd.release()) != 0 && errno != EINTR) throw_errno("close", d, errno);
}

fs::file_type file_type_of(const fs::path& path) {
  std::error_code ec;
  const fs::file_type type = fs::symlink_status(path, ec).type();
  if (type == fs::file_type::none) throw_errno("read the type of", path, ec.value());
  return type;
}

void make_directory(const fs::path& dir) {
  if (sys().mkdir(dir.c_str(), 0755) != 0) throw_errno("create the directory", dir, errno);
}

/// Parents first; each is synced into its own parent. EEXIST is no error: another process may create the same
/// directory at the same time.
void make_directories(const fs::path& dir) {
  std::error_code ec;
  if (dir.empty() || fs::is_directory(dir, ec)) return;
  fs::path d = dir.has_filename() ? dir : dir.parent_path();  // "runs/x/" is runs/x
  make_directories(d.parent_path());
  if (sys().mkdir(d.c_str(), 0755) != 0 && errno != EEXIST) throw_errno("create the directory", d, errno);
  if (!fs::is_directory(d, ec)) throw_errno("create the directory", d, ec ? ec.value() : ENOTDIR);
  sync_directory(d.parent_path());
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (sys().rename(from.c_str(), to.c_str()) != 0) throw_errno("publish", to, errno);
}

void remove_file(const fs::path& path) {
  if (sys().unlink(path.c_str()) != 0 && errno != ENOENT) throw_errno("remove", path, errno);
}

/// A link to a directory is removed as a link; following it would delete files elsewhere. ENOENT is ignored,
/// as the goal is reached.
void remove_tree(const fs::path& path) {
  std::error_code ec;
  const fs::file_type type = file_type_of(path);
  if (type == fs::file_type::not_found) return;
  if (type != fs::file_type::directory) return remove_file(path);
  // The entries are collected before any is removed; removing during iteration may skip entries.
  const std::vector<std::string> names = names_in_directory(path, ec);
  if (ec) throw_errno("list", path, ec.value());
  for (const std::string& name : names) remove_tree(path / name);
  if (sys().rmdir(path.c_str()) != 0 && errno != ENOENT) throw_errno("remove", path, errno);
}

/// Exchange is atomic: at any time one complete directory has the name `target`. The fallback for file
/// systems without RENAME_EXCHANGE takes two renames; between them no directory has the name, and README.md
/// states this exception of the guarantee.
bool publish_directory(const fs::path& staged, const fs::path& target) {
  assert(staged != target);
  if (file_type_of(target) == fs::file_type::not_found) {
    rename_path(staged, target);
    return false;
  }
  if (sys().exchange(staged.c_str(), target.c_str()) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw_errno("publish", target, errno);
  fs::path aside = temp_beside(target);
  rename_path(target, aside);
  try {
    rename_path(staged, target);
  } catch (...) {
    // Restores the old directory. Its result is ignored: the first failure is reported.
    sys().rename(aside.c_str(), target.c_str());
    throw;
  }
  // Like an exchange, `staged` then names the old directory.
  rename_path(aside, staged);
  return true;
}

/// Order: data, fsync, rename, fsync of the directory. Renaming before the data are on disk could leave an
/// empty file under the final name after a power failure.
void write_file_atomically(const fs::path& target, std::string_view data) {
  fs::path temp = temp_beside(target);
  try {
    Fd fd = create_new(temp);
    write_all(fd.get(), std::as_bytes(std::span(data)), temp);
    sync_and_close(std::move(fd), temp);
    rename_path(temp, target);
  } catch (...) {
    sys().unlink(temp.c_str());
    throw;
  }
  sync_directory(target.parent_path());
}

}  // namespace trainhost::checkpoint
