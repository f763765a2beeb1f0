// Allows one run per output directory. The kernel releases the lock (flock) when the process ends for any
// reason; the text in the file is for the error message. The file is never removed: otherwise two runs could
// lock two different files.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string describe_holder(int fd) {
  std::string text(200, '\0');
  ssize_t n = sys().pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (text.empty()) return "another run";
  while (text.ends_with('\n')) text.pop_back();
  return escaped(text);
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& dir) {
  make_directories(dir);
  const fs::path file = dir / "lock";
  // O_NOFOLLOW: a link named "lock" could make the run truncate a file elsewhere.
  Fd fd(sys().open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (fd.get() < 0 && errno == ELOOP)
    throw run_error("cannot write " + escaped(file.string(), 4096) + ": it is a symbolic link");
  if (fd.get() < 0) throw_errno("open", file, errno);
  int r;
  do r = ::flock(fd.get(), LOCK_EX | LOCK_NB);
  while (r != 0 && errno == EINTR);
  if (r != 0 && errno == EWOULDBLOCK)
    throw run_error(fmt::format("{} is in use by {}", escaped(dir.string(), 4096), describe_holder(fd.get())),
                    "wait for that run, or set another output.dir");
  if (r != 0) throw_errno("lock", file, errno);
  // Written under the lock, so the text always names the holder.
  std::string text = fmt::format("process {} on {}\n", ::getpid(), host_name());
  if (::ftruncate(fd.get(), 0) != 0) throw_errno("write", file, errno);
  write_all(fd.get(), std::as_bytes(std::span(text)), file);
  fd_ = fd.release();
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trainhost::checkpoint
