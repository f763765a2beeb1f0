// System calls of core/checkpoint with an injected fault at the n-th call of a kind. While a FaultySys
// exists, syncs do nothing (a killed process loses nothing of the page cache), so tests are fast.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>

#include "core/checkpoint/system_calls.hpp"

namespace trainhost::test {

class FaultySys {
 public:
  /// Called before every call with its name and number (from 1). Returns 0 to execute the call, an errno to
  /// fail with it, kKill to kill the process, kHalf to write half of the data and then kill it.
  using Decide = std::function<int(const std::string& call, int number)>;
  static constexpr int kKill = -1, kHalf = -2;

  explicit FaultySys(Decide decide) : was_(checkpoint::sys()) {
    real_ = was_;
    decide_ = std::move(decide);
    calls_ = 0;
    max_write_ = SIZE_MAX;
    checkpoint::sys() = {
        [](const char* p, int flags, mode_t mode) { return fails("open") ? -1 : real_.open(p, flags, mode); },
        [](int fd, void* out, std::size_t n, off_t at) {
          return fails("pread") ? -1 : real_.pread(fd, out, n, at);
        },
        [](int fd, const void* data, std::size_t n) {
          return fails("write", fd, data, n) ? -1 : real_.write(fd, data, std::min(n, max_write_));
        },
        [](int) { return fails("fsync") ? -1 : 0; },
        [](int fd) {
          bool bad = fails("close");
          int error = errno;
          int r = real_.close(fd);
          errno = error;
          return bad ? -1 : r;
        },
        [](const char* p, mode_t mode) { return fails("mkdir") ? -1 : real_.mkdir(p, mode); },
        [](const char* a, const char* b) { return fails("rename") ? -1 : real_.rename(a, b); },
        [](const char* a, const char* b) { return fails("exchange") ? -1 : real_.exchange(a, b); },
        [](const char* p) { return fails("unlink") ? -1 : real_.unlink(p); },
        [](const char* p) { return fails("rmdir") ? -1 : real_.rmdir(p); },
    };
  }
  ~FaultySys() { checkpoint::sys() = was_; }
  FaultySys(const FaultySys&) = delete;

  int calls() const { return calls_; }
  void set_max_write(std::size_t n) { max_write_ = n; }

 private:
  static bool fails(const char* call, int fd = -1, const void* data = nullptr, std::size_t n = 0) {
    int what = decide_(call, ++calls_);
    if (what == kHalf && data) (void)!real_.write(fd, data, n / 2);
    if (what == kHalf || what == kKill) ::kill(::getpid(), SIGKILL);
    if (what > 0) errno = what;
    return what > 0;
  }

  checkpoint::Sys was_;
  static inline checkpoint::Sys real_;
  static inline Decide decide_;
  static inline int calls_ = 0;
  static inline std::size_t max_write_ = SIZE_MAX;
};

}  // namespace trainhost::test
