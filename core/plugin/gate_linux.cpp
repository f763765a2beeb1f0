// See gate.hpp. stat first, so that a FIFO or a device is never opened; open without blocking, so that a file
// swapped for one in between does no harm either.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/plugin/elf_file.hpp"
#include "core/plugin/gate.hpp"
#include "core/plugin/manifest.hpp"
#include "core/plugin/refused.hpp"

namespace trainhost::plugin {
namespace {

[[noreturn]] void gate(const char* code, const std::string& reason, std::string hint = {}) {
  throw Refused("gate", code, reason, std::move(hint));
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a file";
}

struct stat stat_of(const std::filesystem::path& file) {
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0) {
    if (errno == EACCES) gate("unreadable", "cannot be read: permission denied");
    gate("not_found", fmt::format("leads nowhere: {}", std::strerror(errno)), "a dangling or circular link");
  }
  return s;
}

FileId id_of(const struct stat& s) {
  return {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

/// Anybody on the machine could replace what we are about to run. A sticky directory (/tmp) protects its
/// files.
void check_permissions(const std::filesystem::path& file, const struct stat& s) {
  if (s.st_mode & S_IWOTH)
    gate("world_writable", "anybody may write to it", fmt::format("chmod o-w {}", file.string()));
  struct stat d {};
  std::filesystem::path directory = file.parent_path();
  if (::stat(directory.c_str(), &d) == 0 && (d.st_mode & S_IWOTH) && !(d.st_mode & S_ISVTX))
    gate("world_writable_directory", fmt::format("anybody may write to its directory {}", directory.string()),
         fmt::format("chmod o-w {}", directory.string()));
}

}  // namespace

FileId identify(const std::filesystem::path& file) { return id_of(stat_of(file)); }

Passed pass_gate(const std::filesystem::path& file) {
  struct stat s = stat_of(file);
  if (!S_ISREG(s.st_mode)) gate("not_regular", fmt::format("{}, not a file", kind_of(s.st_mode)));
  check_permissions(file, s);
  Descriptor d{::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  if (d.fd < 0) gate("unreadable", fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat opened {};
  if (::fstat(d.fd, &opened) != 0 || !(id_of(opened) == id_of(s)))
    gate("changed", "was replaced while it was being looked at");
  return {id_of(opened),
          parse_manifest(read_manifest_section(d.fd, static_cast<std::uint64_t>(opened.st_size)))};
}

}  // namespace trainhost::plugin
