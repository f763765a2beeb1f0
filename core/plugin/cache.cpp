// See cache.hpp. The file: a title line, the SHA-256 of the rest, then one line of fields for each plugin and host.
#include "core/plugin/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nettle/sha2.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <set>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/fields.hpp"
#include "core/plugin/registry.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTitle = "trainhost plugin cache 1";
constexpr std::size_t kMaxBytes = 32 << 20, kMaxLines = 20'000;
constexpr std::size_t kFields = 32;
constexpr std::int64_t kFresh_ns = 100'000'000;

std::string sha256(std::string_view text) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&context, digest.size(), digest.data());
  std::string hex;
  for (std::uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

/// A regular file of ours that nobody else may write to; "" for anything else.
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

/// "host \t path" -> the rest of the line; empty when the file is not whole.
std::map<std::string, std::string> read_lines(const fs::path& file) {
  std::map<std::string, std::string> out;
  const std::string text = read_own(file);
  const std::string head = std::string(kTitle) + "\n";
  constexpr std::size_t kDigest = 64;
  if (!text.starts_with(head) || text.size() < head.size() + kDigest + 1) return out;
  const std::string_view body = std::string_view(text).substr(head.size() + kDigest + 1);
  if (std::string_view(text).substr(head.size(), kDigest) != sha256(body)) return out;
  for (std::string_view line : lines_of(body)) {
    const std::size_t path = line.find('\t'), end = path == line.npos ? path : line.find('\t', path + 1);
    if (end != line.npos) out.emplace(line.substr(0, end), line.substr(end + 1));
  }
  return out;
}

std::string key_of(const std::string& host, const fs::path& plugin) { return join_fields({host, plugin.string()}); }

std::string list(const std::vector<std::string>& v) { return join_fields(v); }
std::vector<std::string> unlist(const std::string& s) { return s.empty() ? std::vector<std::string>{} : split_fields(s); }

void add(std::vector<std::string>& to, const FileId& id) {
  for (auto n : {id.device, id.inode, id.size}) to.push_back(std::to_string(n));
  for (auto n : {id.mtime_s, id.mtime_ns}) to.push_back(std::to_string(n));
}

std::string written(const Remembered& r) {
  const Manifest& m = r.manifest;
  std::vector<std::string> f;
  add(f, r.id), add(f, r.sidecar);
  f.insert(f.end(), {r.hash, std::to_string(r.seen_s), std::to_string(r.seen_ns), r.rehearsed ? "1" : "0", m.id, m.version,
                     m.kind, m.summary, m.abi, m.device, list(m.interfaces), list(m.families), list(m.modes),
                     list(m.dtypes), list(m.options), list(m.cpu), list(m.libraries)});
  f.push_back(std::to_string(m.priority));
  const Refused none("", "", "");
  const Refused& why = r.refused ? *r.refused : none;
  f.insert(f.end(), {why.stage(), why.code(), why.what(), why.hint(), list(r.warnings)});
  return join_fields(f);
}

std::int64_t number(const std::string& s) { return std::strtoll(s.c_str(), nullptr, 10); }

FileId id_at(const std::vector<std::string>& f, std::size_t i) {
  const auto u = [&f](std::size_t k) { return std::strtoull(f[k].c_str(), nullptr, 10); };
  return {u(i), u(i + 1), u(i + 2), number(f[i + 3]), number(f[i + 4])};
}

std::optional<Remembered> parsed(const std::string& line) {
  const std::vector<std::string> f = split_fields(line);
  Remembered r;
  if (f.size() != kFields + 1) return std::nullopt;
  r.id = id_at(f, 0), r.sidecar = id_at(f, 5);
  r.hash = f[10], r.seen_s = number(f[11]), r.seen_ns = number(f[12]), r.rehearsed = f[13] == "1";
  Manifest& m = r.manifest;
  m.id = f[14], m.version = f[15], m.kind = f[16], m.summary = f[17], m.abi = f[18], m.device = f[19];
  m.interfaces = unlist(f[20]), m.families = unlist(f[21]), m.modes = unlist(f[22]), m.dtypes = unlist(f[23]);
  m.options = unlist(f[24]), m.cpu = unlist(f[25]), m.libraries = unlist(f[26]);
  m.priority = static_cast<int>(number(f[27]));
  if (!f[28].empty()) r.refused.emplace(f[28], f[29], f[30], f[31]);
  r.warnings = unlist(f[32]);
  return r;
}

/// Held by its folder, so that no other file is needed; without it (some network file systems) we write all the same.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int i = 0; fd_ >= 0 && i < 100 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;

 private:
  int fd_;
};

void replace_file(const fs::path& file, const std::string& text) {
  std::string pattern = file.string() + ".XXXXXX";
  const int fd = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (fd < 0) return;
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!whole || ::rename(pattern.c_str(), file.c_str()) != 0) ::unlink(pattern.c_str());
}

}  // namespace

bool Remembered::too_fresh() const {
  for (const FileId* i : {&id, &sidecar})
    if ((seen_s - i->mtime_s) * 1'000'000'000 + (seen_ns - i->mtime_ns) < kFresh_ns) return true;
  return false;
}

Cache::Cache(fs::path file, std::string host) : file_(std::move(file)), host_(std::move(host)) {
  if (!file_.empty()) lines_ = read_lines(file_);
}

const Remembered* Cache::find(const fs::path& plugin, const FileId& id, const FileId& sidecar) const {
  const std::string key = key_of(host_, plugin);
  auto it = read_.find(key);
  if (it == read_.end()) {
    const auto line = lines_.find(key);
    if (line == lines_.end()) return nullptr;
    std::optional<Remembered> r = parsed(line->second);
    if (!r) return nullptr;
    it = read_.emplace(key, std::move(*r)).first;
  }
  return it->second.id == id && it->second.sidecar == sidecar ? &it->second : nullptr;
}

void Cache::put(const fs::path& plugin, Remembered what) {
  if (file_.empty()) return;
  const std::string key = key_of(host_, plugin);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  what.seen_s = now.tv_sec, what.seen_ns = now.tv_nsec;
  fresh_[key] = written(what);
  read_[key] = std::move(what);
}

void Cache::save() {
  if (fresh_.empty()) return;
  std::error_code failed;
  fs::create_directories(file_.parent_path(), failed);
  const FolderLock lock(file_.parent_path());
  lines_ = read_lines(file_);
  for (auto& [key, line] : fresh_) lines_[key] = std::move(line);
  fresh_.clear();
  if (lines_.size() > kMaxLines) std::erase_if(lines_, [this](const auto& l) { return !l.first.starts_with(host_); });
  std::string body;
  for (const auto& [key, line] : lines_) body += key + "\t" + line + "\n";
  replace_file(file_, fmt::format("{}\n{}\n{}", kTitle, sha256(body), body));
}

std::string host_identity() {
  struct stat s {};
  ::stat("/proc/self/exe", &s);
  return fmt::format("{} abi {}.{} exe {:x}.{:x}.{:x}.{:x}", TRAINHOST_VERSION, TH_ABI_MAJOR, TH_ABI_MINOR, s.st_dev,
                     s.st_ino, s.st_size, static_cast<std::uint64_t>(s.st_mtim.tv_sec) * 1'000'000'000u +
                                              static_cast<std::uint64_t>(s.st_mtim.tv_nsec));
}

bool depends_on_the_file_alone(const Refused& why) {
  static const std::set<std::string> kContent = {"empty",      "not_elf",   "wrong_class",      "wrong_machine",   "executable",
                                                 "not_shared", "truncated", "executable_stack", "text_relocations"};
  const std::string& stage = why.stage();
  if (stage == "gate") return kContent.count(why.code()) > 0;
  if (stage == "load") return why.code() != "dlopen" && why.code() != "changed";
  if (stage == "start") return why.code() != "unavailable" && why.code() != "argument";
  if (stage == "probe") return why.code() == "crashed" || why.code() == "hung" || why.code() == "exited" || why.code() == "stopped";
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
                        "write the folder's absolute path, or leave it empty to remember nothing");
    return own.empty() ? fs::path() : own / kFile;
  }
  if (const fs::path base = folder("XDG_CACHE_HOME"); base.is_absolute()) return base / "trainhost" / kFile;
  if (const fs::path home = folder("HOME"); home.is_absolute()) return home / ".cache" / "trainhost" / kFile;
  return {};
}

}  // namespace trainhost::plugin
