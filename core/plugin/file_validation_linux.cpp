// See file_validation.hpp. stat() comes first, so that a FIFO or a device is never opened; open() does not
// block, so that a file replaced in between does no harm. The same descriptor is used for every check, so all
// of them see the same file; MappedFileCheck later makes sure that this file is the one that is loaded.
#include <fcntl.h>
#include <fmt/format.h>
#include <nettle/sha2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/plugin/elf_file.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/links.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject_file(const char* code, const std::string& reason, std::string hint = {}) {
  throw Rejection("validation", code, reason, std::move(hint));
}

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int f) : fd(f) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "another kind of file";
}

struct stat stat_of(const fs::path& file) {
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0) {
    if (errno == EACCES)
      reject_file("unreadable", "it cannot be read: permission denied",
                  "make the file and its directory readable: chmod u+r");
    reject_file("not_found", fmt::format("it cannot be opened: {}", std::strerror(errno)),
                "check the path; a symbolic link may be dangling or circular");
  }
  return s;
}

/// Time with nanoseconds: a file rewritten within a second must not look unchanged.
FileId id_of(const struct stat& s) {
  return {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

/// A descriptor of the file that stat() saw; the caller closes it. `id` gets its identity.
int open_regular(const fs::path& file, FileId& id) {
  const struct stat s = stat_of(file);
  id = id_of(s);
  if (!S_ISREG(s.st_mode))
    reject_file("not_regular", fmt::format("it is {}, not a regular file", kind_of(s.st_mode)),
                "remove it from the plugin directory, or rename it so that it does not end in .so");
  const int fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0)
    reject_file("unreadable", fmt::format("it cannot be read: {}", std::strerror(errno)),
                "check its permissions and the disk");
  // d closes the descriptor if the rejection below is thrown.
  Descriptor d(fd);
  struct stat opened {};
  if (::fstat(fd, &opened) != 0 || !(id_of(opened) == id))
    reject_file("changed", "it was replaced while it was being read", "run the command again");
  d.fd = -1;
  return fd;
}

/// Reads the whole content and calls use(bytes, count) for each block.
template <class F>
void read_all(int fd, F&& use) {
  std::vector<std::uint8_t> buffer(1 << 18);
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      reject_file("unreadable", fmt::format("it cannot be read: {}", std::strerror(errno)),
                  "check its permissions and the disk");
    if (n == 0) return;
    use(buffer.data(), static_cast<std::size_t>(n));
  }
}

/// The text of the sidecar file; nullopt if there is none. It is checked like the library, since it decides
/// as what the library is used.
std::optional<std::string> read_sidecar(const fs::path& file, Trust& trust, FileId& id) {
  const fs::path sidecar = sidecar_of(file);
  std::error_code failed;
  if (!fs::exists(fs::symlink_status(sidecar, failed))) return std::nullopt;
  try {
    const Descriptor d(open_regular(sidecar, id));
    trust.check(fs::canonical(sidecar));
    if (id.size > kMaxManifestBytes)
      throw Rejection("manifest", "too_big",
                      fmt::format("it has {} bytes; at most {} are allowed", id.size, kMaxManifestBytes),
                      "remove keys that trainhost/plugin.h does not define");
    std::string text;
    read_all(d.fd,
             [&](const std::uint8_t* p, std::size_t n) { text.append(reinterpret_cast<const char*>(p), n); });
    return text;
  } catch (const Rejection& why) {
    throw Rejection(why.stage(), why.code(),
                    "manifest file " + sidecar.filename().string() + ": " + why.what(), why.hint());
  }
}

/// The embedded manifest decides. A sidecar that differs is rejected: listing one plugin and loading another
/// would hide what runs.
Manifest manifest_of(const fs::path& file, const ElfFile& elf, Trust& trust, FileId& sidecar_id) {
  const std::optional<std::string> beside = read_sidecar(file, trust, sidecar_id);
  if (!elf.manifest && !beside)
    throw Rejection("manifest", "absent", "it is not a trainhost plugin: it has no manifest",
                    "add one with TH_MANIFEST of trainhost/plugin.h");
  const Manifest m = parse_manifest(elf.manifest ? *elf.manifest : *beside);
  if (elf.manifest && beside && !(parse_manifest(*beside) == m))
    throw Rejection("manifest", "differs",
                    fmt::format("its embedded manifest and {} differ", sidecar_of(file).filename().string()),
                    "remove one of the two");
  return m;
}

}  // namespace

FileId identify(const fs::path& file) { return id_of(stat_of(file)); }

fs::path sidecar_of(const fs::path& file) { return fs::path(file).replace_extension(".toml"); }

FileId identify_sidecar(const fs::path& file) {
  struct stat s {};
  return ::stat(sidecar_of(file).c_str(), &s) == 0 ? id_of(s) : FileId{};
}

/// Order: owner and permissions before the content is parsed; the manifest before the checks that need it.
/// `passed` is filled as far as it goes, so a rejected file still has a name in the list.
void validate_file(const fs::path& file, Trust& trust, ValidatedFile& passed) {
  const Descriptor d(open_regular(file, passed.id));
  trust.check(file);
  const ElfFile elf = read_elf(d.fd, passed.id.size);
  passed.manifest = manifest_of(file, elf, trust, passed.sidecar);
  validate_run_path(elf.run_path, file);
  validate_cpu(passed.manifest.cpu);
  validate_libraries(elf, passed.manifest, file);
}

/// SHA-256, because the hash decides what plugins.allow accepts.
std::string content_hash(const fs::path& file, const FileId& id) {
  FileId now;
  const Descriptor d(open_regular(file, now));
  if (!(now == id))
    reject_file("changed", "it was replaced while it was being read", "run the command again");
  sha256_ctx context;
  sha256_init(&context);
  read_all(d.fd, [&](const std::uint8_t* p, std::size_t n) { sha256_update(&context, n, p); });
  std::array<std::uint8_t, SHA256_DIGEST_SIZE> digest{};
  sha256_digest(&context, digest.size(), digest.data());
  std::string hex;
  for (std::uint8_t b : digest) hex += fmt::format("{:02x}", b);
  return hex;
}

}  // namespace trainhost::plugin
