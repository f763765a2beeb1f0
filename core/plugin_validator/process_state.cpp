// See process_state.hpp. Reads /proc/self where there is no system call. Every facet is a text, so that a
// change can be compared and printed in one way. Nothing here changes the process, except that the umask can
// only be read by setting it.
#include "core/plugin_validator/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "core/base/text.hpp"

extern char** environ;

namespace trainhost::plugin_validator {
namespace {

// The number includes the descriptor of the open directory itself, in every reading alike.
unsigned entries(const char* directory) {
  unsigned n = 0;
  std::error_code ignored;
  for (const auto& e : std::filesystem::directory_iterator(directory, ignored)) n += e.path().empty() ? 0 : 1;
  return n;
}

std::string fp_mode() {
  std::string mode = fmt::format("rounding {}", std::fegetround());
// MXCSR also has flush-to-zero and the masks of exceptions, which <cfenv> does not show.
#if defined(__SSE2__)
  constexpr unsigned kStickyFlags = 0x3f;  // any arithmetic sets them
  mode += fmt::format(" MXCSR {:04x}", _mm_getcsr() & ~kStickyFlags);
#endif
  return mode;
}

std::string signals() {
  std::string out;
  // 1 to 64: standard and real-time signals. SIG_IGN is a change too.
  for (int s = 1; s < 65; ++s) {
    struct sigaction a {};
    if (::sigaction(s, nullptr, &a) == 0 && a.sa_handler != SIG_DFL)
      out += fmt::format(" {}:{}", s, reinterpret_cast<std::uintptr_t>(a.sa_handler));
  }
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, nullptr, &mask);
  for (int s = 1; s < 65; ++s)
    if (::sigismember(&mask, s) == 1) out += fmt::format(" blocked {}", s);
  return out;
}

// Pointers and order included: setenv() of an equal value may move entries.
std::string environment() {
  std::string all;
  for (char** e = environ; e && *e; ++e) all += std::string(*e) + '\n';
  return all;
}

std::string limits() {
  std::string out;
  for (int r = 0; r < RLIMIT_NLIMITS; ++r) {
    rlimit l{};
    ::getrlimit(static_cast<__rlimit_resource>(r), &l);
    out += fmt::format(" {}:{}/{}", r, l.rlim_cur, l.rlim_max);
  }
  return out;
}

// Device and inode, not the number alone: dup2() of another file onto 1 keeps the number.
std::string streams() {
  std::string out;
  for (int fd = 0; fd < 3; ++fd) {
    struct stat s {};
    out += ::fstat(fd, &s) == 0 ? fmt::format(" {}:{}/{}", fd, s.st_dev, s.st_ino)
                                : fmt::format(" {}:closed", fd);
  }
  return out;
}

std::string directory() {
  std::error_code failed;
  // A thread that created a file between the two calls would use the mask 0; none runs here.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return fmt::format("{} umask {:03o}", std::filesystem::current_path(failed).string(), mask);
}

}  // namespace

ProcessState process_state() {
  return {{"floating-point mode", fp_mode()},
          {"signal handlers", signals()},
          {"locale", std::setlocale(LC_ALL, nullptr)},
          {"working directory and umask", directory()},
          {"environment", environment()},
          {"resource limits", limits()},
          {"standard streams", streams()}};
}

std::string difference(const ProcessState& before, const ProcessState& after, const std::string& facet) {
  const std::string &a = before.at(facet), &b = after.at(facet);
  if (a == b) return "";
  if (facet == "environment") return "variables were set, changed or removed";
  return fmt::format("'{}' became '{}'", escaped(a, 120), escaped(b, 120));
}

unsigned open_descriptors() { return entries("/proc/self/fd"); }
unsigned running_threads() { return entries("/proc/self/task"); }

std::uint64_t heap_bytes() {
  // uordblks: in use in arenas; hblkhd: mapped blocks. Free memory that malloc() keeps does not count.
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 m = ::mallinfo2();
  return m.uordblks + m.hblkhd;
#else  // modulo 4 GiB
  const struct mallinfo m = ::mallinfo();
  return static_cast<unsigned>(m.uordblks) + static_cast<std::uint64_t>(static_cast<unsigned>(m.hblkhd));
#endif
}

std::uint64_t resident_bytes() {
#if defined(__SANITIZE_ADDRESS__)
  return 0;  // freed memory stays in the sanitizer's quarantine
#endif
  std::ifstream in("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

CapturedOutput::CapturedOutput() : file_(::memfd_create("output", MFD_CLOEXEC)) {
  // Buffered text from before belongs to the real streams.
  std::fflush(nullptr);
  // Numbers from 64 on: a plugin that closes low descriptors must not close these. CLOEXEC: not inherited.
  for (int i = 0; i < 2; ++i) kept_[i] = ::fcntl(i + 1, F_DUPFD_CLOEXEC, 64), ::dup2(file_, i + 1);
}

CapturedOutput::~CapturedOutput() {
  std::fflush(nullptr);
  for (int i = 0; i < 2; ++i) ::dup2(kept_[i], i + 1), ::close(kept_[i]);
  ::close(file_);
}

std::string CapturedOutput::written() {
  // The plugin may have written through stdio.
  std::fflush(nullptr);
  char text[200];
  // The first 200 bytes are enough for a message.
  const ssize_t n = ::pread(file_, text, sizeof text, 0);
  return {text, n > 0 ? static_cast<std::size_t>(n) : 0};
}

}  // namespace trainhost::plugin_validator
