// See mapped_file.hpp. Between validation and dlopen() another file could be put under the path. The loaded
// library is therefore compared with the file that was validated, by device and inode of their mappings.
#include "core/plugin/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::size_t kPage = 4096;

[[noreturn]] void reject_changed() {
  throw Rejection("load", "changed", "it was replaced after its manifest had been read",
                  "run the command again");
}

/// "device inode" of the mappings that contain the addresses, as the kernel prints them; "" if there is
/// none.
std::array<std::string, 2> mappings_of(const void* one, const void* other) {
  const std::array wanted{reinterpret_cast<std::uintptr_t>(one), reinterpret_cast<std::uintptr_t>(other)};
  std::array<std::string, 2> found;
  // Read once for both addresses: the mapping cannot change between.
  std::ifstream in("/proc/self/maps");
  for (std::string line; std::getline(in, line) && (found[0].empty() || found[1].empty());) {
    unsigned long begin = 0, end = 0, inode = 0;
    char device[32] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %31s %lu", &begin, &end, device, &inode) != 4) continue;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (begin <= wanted[i] && wanted[i] < end) found[i] = std::string(device) + " " + std::to_string(inode);
  }
  return found;
}

}  // namespace

/// Maps one page of the validated file. Device numbers of stat() and of /proc/self/maps differ on some file
/// systems (overlay, btrfs), so mappings are compared with mappings.
MappedFileCheck::MappedFileCheck(const std::filesystem::path& path, const FileId& id) : id_(id) {
  // O_NONBLOCK: the path may be a FIFO by now.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  struct stat s {};
  // The identity that was recorded when the file was validated.
  const bool same = fd >= 0 && ::fstat(fd, &s) == 0 &&
                    FileId{s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), s.st_mtim.tv_sec,
                           s.st_mtim.tv_nsec} == id;
  if (same)
    page_ = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, fd,
                   0);  // never read; it only creates an entry in /proc/self/maps
  if (fd >= 0) ::close(fd);
  if (!same || page_ == MAP_FAILED) reject_changed();
}

MappedFileCheck::~MappedFileCheck() { ::munmap(page_, kPage); }

/// A library stays mapped until the process exits, so one that was compared is known by its address: each
/// registry of a process opens it again, and the kernel takes 0.1 ms to print the mappings.
void MappedFileCheck::require_mapped_at(const void* address) const {
  static std::mutex lock;
  static std::vector<std::pair<const void*, FileId>> compared;
  const std::lock_guard guard(lock);
  if (std::ranges::find(compared, std::pair(address, id_)) != compared.end()) return;
  const auto [seen, loaded] = mappings_of(page_, address);
  if (!seen.empty() && seen != loaded) reject_changed();  // without /proc nothing can be compared
  compared.emplace_back(address, id_);
}

}  // namespace trainhost::plugin
