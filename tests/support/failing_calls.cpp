// The functions have the names of those of the C library, and therefore come before them in the program.
#include "tests/support/failing_calls.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace trainhost::test {
namespace {

const char* g_name = nullptr;
int g_error = 0, g_first = 0, g_count = 0;
std::atomic<int> g_calls{0};

enum class Way { kReal, kFail, kNothing };

Way way_of(const char* name) {
  if (!g_name || std::strcmp(name, g_name) != 0) return Way::kReal;
  const int call = ++g_calls;
  if (call < g_first || call - g_first >= g_count) return Way::kReal;
  errno = g_error;
  return g_error ? Way::kFail : Way::kNothing;
}

}  // namespace

FailingCall::FailingCall(const char* name, int error, int first, int count) {
  g_error = error, g_first = first, g_count = count, g_calls = 0, g_name = name;
}
FailingCall::~FailingCall() { g_name = nullptr; }
int FailingCall::calls() const { return g_calls; }

}  // namespace trainhost::test

// `done` is the result of a call that did everything. Defined under another name in C++, because the headers
// declare theirs with attributes that differ by version.
#define FAILING_CALL(result, name, parameters, arguments, done)                                      \
  extern "C" __attribute__((visibility("default"))) result failing_##name parameters __asm__(#name); \
  extern "C" result failing_##name parameters {                                                      \
    using Function = result(*) parameters;                                                           \
    static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, #name));                  \
    const auto way = trainhost::test::way_of(#name);                                                 \
    if (way == trainhost::test::Way::kReal) return real arguments;                                   \
    return way == trainhost::test::Way::kFail ? -1 : static_cast<result>(done);                      \
  }

FAILING_CALL(int, fstat, (int fd, struct stat* out), (fd, out), 0)
FAILING_CALL(int, stat, (const char* path, struct stat* out), (path, out), 0)
FAILING_CALL(int, statvfs, (const char* path, struct statvfs* out), (path, out), 0)
FAILING_CALL(int, flock, (int fd, int operation), (fd, operation), 0)
FAILING_CALL(int, ftruncate, (int fd, off_t size), (fd, size), 0)
FAILING_CALL(ssize_t, getrandom, (void* out, size_t size, unsigned flags), (out, size, flags), size)
FAILING_CALL(int, gethostname, (char* out, size_t size), (out, size), 0)
FAILING_CALL(int, fsync, (int fd), (fd), 0)
FAILING_CALL(int, rename, (const char* from, const char* to), (from, to), 0)
FAILING_CALL(ssize_t, pread, (int fd, void* out, size_t size, off_t at), (fd, out, size, at), size)
FAILING_CALL(ssize_t, pwrite, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at), size)
