// System calls that the tables of core/checkpoint do not contain, with an injected error. A program that
// links failing_calls.cpp calls them through it.
#pragma once

namespace trainhost::test {

/// While it exists, calls of `name` (fstat, stat, statvfs, flock, ftruncate, getrandom, gethostname, fsync,
/// rename, pread or pwrite) fail with `error`: `count` of them, from the `first` on, which counts from 1.
/// With error 0 they do nothing and say that everything was done. One at a time.
class FailingCall {
 public:
  FailingCall(const char* name, int error, int first = 1, int count = 1 << 30);
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;

  /// Number of calls of `name` so far.
  int calls() const;
};

}  // namespace trainhost::test
