// Positioned reads, atomic writes and content hashes with POSIX calls; see data_files.hpp. Every loop here
// handles short counts and EINTR, which the kernel may return for any file at any time.
#include "core/data/data_files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/directory.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

constexpr char kRandomSuffix[] = ".XXXXXX";  // of temporary files, as mkostemp() replaces it

/// Reads errno, so it must be called before anything else that can change it.
std::string reason() { return std::strerror(errno); }

/// The most similar name in the folder of a missing file, for the message. Bounded: a data folder may hold
/// millions of files, and only the message depends on it.
std::string suggest_sibling(const fs::path& path) {
  std::error_code ec;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names = names_in_directory(folder, ec, 10'000);
  std::sort(names.begin(), names.end());
  return did_you_mean(path.filename().string(), names);
}

/// Canonical form is big-endian, so the same content has the same name on every machine.
std::string hex(const XXH128_hash_t& hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  std::string text;
  for (unsigned char b : bytes.digest)
    for (int shift : {4, 0}) text += "0123456789abcdef"[b >> shift & 15];
  return text;
}

}  // namespace

std::string in_quotes(const fs::path& p) { return "'" + escaped(p.string(), 400) + "'"; }

namespace {

FileState state_of(const struct stat& st) {
  const auto ns = [](const timespec& t) { return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return {std::uint64_t{st.st_ino}, static_cast<std::uint64_t>(st.st_size), ns(st.st_mtim), ns(st.st_ctim)};
}

}  // namespace

InputFile::InputFile(const fs::path& path) : path_(path) {
  struct stat st;
  // stat() before open(): opening a named pipe for reading would wait for a writer.
  if (::stat(path.c_str(), &st) != 0) {
    const std::string why =
        errno == ENOENT ? "does not exist" + suggest_sibling(path) : "cannot be read: " + reason();
    throw usage_error("data file " + in_quotes(path) + " " + why);
  }
  if (S_ISDIR(st.st_mode))
    throw usage_error("data file " + in_quotes(path) + " is a folder; give files, or a glob such as *.txt");
  if (!S_ISREG(st.st_mode)) throw usage_error("data file " + in_quotes(path) + " is not a regular file");
  // O_NONBLOCK because the path may have become a pipe since stat(); fstat() then checks what was really
  // opened. The flag has no effect on regular files.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 || ::fstat(descriptor_, &st) != 0 || !S_ISREG(st.st_mode)) {
    const std::string why = reason();
    if (descriptor_ >= 0) ::close(descriptor_);
    throw usage_error("data file " + in_quotes(path) + " cannot be opened: " + why);
  }
  // The size is fixed here. Tokens are counted from it; a file that grows later is read up to this size.
  state_ = state_of(st);
}

/// A moved-from object owns no descriptor; its destructor then closes nothing.
InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      state_(other.state_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  assert(offset <= size() && out.size() <= size() - offset);
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    // Reads are not retried after EIO: the disk has already retried.
    if (n < 0)
      throw run_error("data file " + in_quotes(path_) + ", byte " + std::to_string(offset) + ": " + reason());
    if (n == 0)
      throw run_error("data file " + in_quotes(path_) + " ends at byte " + std::to_string(offset) +
                      ", but had " + std::to_string(size()) +
                      " bytes when it was opened: it was truncated during the run");
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

namespace {

/// The time of modification, not of change: renaming or linking the file does not change what is read.
void require_equal(const fs::path& path, const FileState& opened, const FileState& now) {
  if (now.size == opened.size && now.modified_ns == opened.modified_ns) return;
  throw run_error("data file " + in_quotes(path) + " was changed during the run",
                  "restore its content and continue with --resume, or start again with --overwrite");
}

}  // namespace

void InputFile::require_unchanged() const {
  struct stat st;
  if (::fstat(descriptor_, &st) != 0) throw run_error("data file " + in_quotes(path_) + ": " + reason());
  require_equal(path_, state_, state_of(st));
}

void require_unchanged(const fs::path& path, const FileState& opened) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return;
  const FileState now = state_of(st);
  if (now.inode == opened.inode) require_equal(path, opened, now);
}

/// The limit is checked before the buffer is allocated, so a wrong path to a huge file costs no memory.
std::string read_whole(const fs::path& path, std::uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit)
    throw usage_error("file " + in_quotes(path) + " has " + format_bytes(file.size()) + "; the limit is " +
                      format_bytes(limit));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The temporary file is in the folder of the target, because rename() cannot cross file systems. Its random
/// name keeps two processes that write the same file from writing into each other's data.
/// While it is written it is locked, which tells it apart from what a dead process left: remove_abandoned().
OutputFile::OutputFile(const fs::path& path) : path_(path) {
  while (true) {
    temporary_ = path.string() + kRandomSuffix;
    descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot be created");
    struct stat s {};
    // A file system without locks: nothing is ever removed there.
    if (::flock(descriptor_, LOCK_EX) != 0 || ::fstat(descriptor_, &s) != 0 || s.st_nlink > 0) break;
    ::close(std::exchange(descriptor_, -1));  // removed before it was locked
  }
  // mkostemp() creates the file with mode 0600; data files are readable like files written with a shell.
  ::fchmod(descriptor_, 0644);
}

void remove_abandoned(const fs::path& folder) {
  constexpr std::size_t kSuffix = std::char_traits<char>::length(kRandomSuffix);
  std::error_code failed;
  for (const std::string& name : names_in_directory(folder, failed)) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos || name.size() - dot != kSuffix) continue;
    const std::string target = name.substr(0, dot);
    if (!target.ends_with(".bin") && !target.ends_with(".xxh3") && !target.ends_with(".json")) continue;
    const fs::path file = folder / name;
    const int d = ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (d < 0) continue;
    struct stat s {};
    if (::fstat(d, &s) == 0 && S_ISREG(s.st_mode) && ::flock(d, LOCK_EX | LOCK_NB) == 0)
      ::unlink(file.c_str());
    ::close(d);
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

/// Must be called directly after the failed call, as the message contains errno.
void OutputFile::fail(const char* what) const {
  throw run_error("file " + in_quotes(path_) + " " + what + ": " + reason());
}

void OutputFile::append(std::span<const std::byte> bytes) {
  overwrite(size_, bytes);
  size_ += bytes.size();
}

void OutputFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    // On a full disk the kernel first writes a part and returns a short count; only the next call fails. 0
    // would repeat forever.
    if (n <= 0) fail("cannot be written");
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// fsync before rename: otherwise a power failure can leave the new name with an empty file. The destructor
/// removes the temporary file if either call fails.
void OutputFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot be written to the disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed");
  // close() reports nothing new here: fsync() has already reported every write error.
  ::close(std::exchange(descriptor_, -1));
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  if (const int d = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); d >= 0) {
    ::fsync(d);  // makes the rename durable; a file system that cannot sync a directory is not an error
    ::close(d);
  }
}

/// Read in pieces of 256 KiB: the file may be larger than memory.
std::string content_hash(const InputFile& file, const OnRead& on_read) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  std::vector<std::byte> buffer(std::size_t{1} << 18);
  for (std::uint64_t at = 0; at < file.size();) {
    const std::span<std::byte> part(buffer.data(), std::min<std::uint64_t>(buffer.size(), file.size() - at));
    file.read(at, part);
    XXH3_128bits_update(&state, part.data(), part.size());
    at += part.size();
    if (on_read) on_read(at);
  }
  return hex(XXH3_128bits_digest(&state));
}

std::string content_hash(std::string_view bytes) { return hex(XXH3_128bits(bytes.data(), bytes.size())); }

}  // namespace trainhost::data
