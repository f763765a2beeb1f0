// See plugin_cache.hpp; the text format: plugin_cache_format.hpp. The cache only saves time: any failure to
// read or write it is ignored, and the files are then examined again.
#include "core/plugin/plugin_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <set>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/plugin/plugin_cache_format.hpp"
#include "core/plugin/registry.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

// 32 MiB and 20,000 lines: the cache of a user with many builds is trimmed, never refused.
constexpr std::size_t kMaxBytes = 32 << 20, kMaxLines = 20'000;

/// The content of a regular file that the user owns and only the user can write to; "" otherwise. Anyone who
/// could write it could mark a hostile plugin as harmless.
std::string read_own(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  struct stat s {};
  std::string text;
  if (fd >= 0 && ::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == ::geteuid() &&
      !(s.st_mode & (S_IWGRP | S_IWOTH)) && static_cast<std::uint64_t>(s.st_size) <= kMaxBytes) {
    text.resize(static_cast<std::size_t>(s.st_size));
    const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  if (fd >= 0) ::close(fd);
  return text;
}

std::string key_of(const std::string& host, const fs::path& plugin) {
  return join_fields({host, plugin.string()});
}

/// Locks the directory, so that no lock file is needed. Where locks are not supported (some network file
/// systems) the cache is written without a lock.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // Waits up to two seconds: each of many hosts that start at the same time holds the lock for some
    // milliseconds.
    for (int i = 0; fd_ >= 0 && i < 1000 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;

 private:
  int fd_;
};

/// Written to a temporary file and renamed, without fsync: after a power failure the digest does not match
/// and the cache counts as empty.
void replace_file(const fs::path& file, const std::string& text) {
  std::string pattern = file.string() + ".XXXXXX";
  const int fd = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (fd < 0) return;
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!whole || ::rename(pattern.c_str(), file.c_str()) != 0) ::unlink(pattern.c_str());
}

}  // namespace

Cache::Cache(fs::path file, std::string host) : file_(std::move(file)), host_(std::move(host)) {
  // Skips the lines of other builds; save() reads them again.
  if (!file_.empty()) lines_ = parse_cache(read_own(file_), join_fields({host_}));
}

/// Lines are parsed when they are asked for: a cache may hold thousands, of which a command needs a few.
const CacheEntry* Cache::find(const fs::path& plugin, const FileId& id, const FileId& sidecar) const {
  const std::string key = key_of(host_, plugin);
  auto it = parsed_.find(key);
  if (it == parsed_.end()) {
    const auto line = lines_.find(key);
    if (line == lines_.end()) return nullptr;
    std::optional<CacheEntry> r = parse_cache_line(line->second);
    if (!r) return nullptr;
    it = parsed_.emplace(key, std::move(*r)).first;
  }
  return it->second.id == id && it->second.sidecar == sidecar ? &it->second : nullptr;
}

void Cache::put(const fs::path& plugin, CacheEntry what) {
  if (file_.empty()) return;
  const std::string key = key_of(host_, plugin);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  what.seen_s = now.tv_sec, what.seen_ns = now.tv_nsec;
  unsaved_[key] = format_cache_line(what);
  parsed_[key] = std::move(what);
}

/// Reads the file again under the lock, so that entries of hosts running at the same time are kept.
void Cache::save() {
  if (unsaved_.empty()) return;
  std::error_code failed;
  fs::create_directories(file_.parent_path(), failed);
  const FolderLock lock(file_.parent_path());
  lines_ = parse_cache(read_own(file_));
  for (auto& [key, line] : unsaved_) lines_[key] = std::move(line);
  unsaved_.clear();
  if (lines_.size() > kMaxLines)
    std::erase_if(lines_, [this](const auto& l) { return !l.first.starts_with(host_); });
  replace_file(file_, format_cache(lines_));
}

/// Part of every key: another version or build of the host may judge the same file differently.
std::string host_identity() {
  struct stat s {};
  ::stat(program_file().c_str(), &s);
  return fmt::format("{} abi {}.{} exe {:x}.{:x}.{:x}.{:x}", TRAINHOST_VERSION, TH_ABI_MAJOR, TH_ABI_MINOR,
                     s.st_dev, s.st_ino, s.st_size,
                     static_cast<std::uint64_t>(s.st_mtim.tv_sec) * 1'000'000'000u +
                         static_cast<std::uint64_t>(s.st_mtim.tv_nsec));
}

/// True if the same file gives the same rejection whatever happens around it. Only such results are cached.
bool depends_only_on_file(const Rejection& why) {
  static const std::set<std::string> kContent = {"empty",         "not_elf",          "wrong_class",
                                                 "wrong_machine", "executable",       "not_shared",
                                                 "truncated",     "executable_stack", "text_relocations"};
  static const std::set<std::string> kBugs = {"crashed",   "hung",     "exited", "stopped",
                                              "exception", "internal", "state",  "undocumented"};
  const std::string& stage = why.stage();
  if (why.code() == "host_oom") return false;
  if (stage == "validation") return kContent.count(why.code()) > 0;
  if (stage == "load") return why.code() != "dlopen" && why.code() != "changed";
  if (stage == "start") return kBugs.count(why.code()) > 0;  // disks, devices and memory can be repaired
  if (stage == "probe")
    return why.code() == "crashed" || why.code() == "hung" || why.code() == "exited" ||
           why.code() == "stopped";
  return stage == "manifest" || stage == "abi" || stage == "hygiene" || stage == "stop";
}

fs::path default_cache_file() {
  constexpr const char* kFile = "plugins-1.cache";
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value ? value : "");
  };
  if (::getauxval(AT_SECURE) != 0) return {};
  if (std::getenv("TRAINHOST_CACHE")) {
    const fs::path own = folder("TRAINHOST_CACHE");
    if (own.is_relative() && !own.empty())
      throw usage_error("TRAINHOST_CACHE: '" + escaped(own.string()) + "' is not an absolute path",
                        "use an absolute path, or an empty value to disable the cache");
    return own.empty() ? fs::path() : own / kFile;
  }
  if (const fs::path base = folder("XDG_CACHE_HOME"); base.is_absolute()) return base / "trainhost" / kFile;
  if (const fs::path home = folder("HOME"); home.is_absolute()) return home / ".cache" / "trainhost" / kFile;
  return {};
}

}  // namespace trainhost::plugin
