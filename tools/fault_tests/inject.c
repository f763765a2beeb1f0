// Fault injection for tools/faults: a library for LD_PRELOAD that counts the calls that a process makes to libc and
// lets the n-th one fail, end short or kill the process. It acts only in the process that it was started with, not in
// its children. Set by environment variables:
//
//   FAULT_KIND=io|memory|product  calls that are counted: system calls, allocations, matrix products of OpenBLAS [io]
//   FAULT_CALL=N          act at the N-th counted call; 0 or unset: only count
//   FAULT_FROM=1          act at every call from the N-th on
//   FAULT_ACTION=A        kill | half (write half, then kill) | short (half the count) | a number: fail with this errno
//   FAULT_NAMES=a,b       count only these calls
//   FAULT_PATH=TEXT       count only calls on paths that contain TEXT
//   FAULT_LOG=FILE        io: write one line per counted call; otherwise: write the number of calls at the end
//   FAULT_ELEMENT=I       product: the element of the result that is changed, modulo its size
//   FAULT_BIT=B           product: flip this bit of it [make it NaN]
//   FAULT_TRIGGER=TEXT    when the process writes a text that contains TEXT, once (product: count from then on):
//   FAULT_PATCH=FILE        replace bytes of its memory: lines "PATTERN OFFSET REPLACEMENT", bytes in hexadecimal
//   FAULT_SIGNALS=15,2      send itself these signals
//   FAULT_CLOCK=SECONDS     from then on, the real-time clock is off by this
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name) \
  static __typeof__(name)* real; \
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, #name)

enum { kMaxFd = 4096, kPathBytes = 256, kMaxPatchBytes = 1 << 16 };
enum Action { kNone, kFail, kShort, kHalf };

static struct {
  int active, started, io, memory, product, from, error, log_fd, log_every_call;
  enum Action action;
  int kill;
  unsigned long call;
  char names[512], path[256], trigger[256];
  char patch[kMaxPatchBytes];
  int signals[8], signal_count;
  long clock_offset;
  pid_t owner;
} g;
static atomic_ulong g_calls;
static atomic_int g_triggered;
static char g_paths[kMaxFd][kPathBytes];  // path of each open descriptor
static __thread int g_inside;             // calls of this library itself are not counted

static const char* setting(const char* name) {
  const char* v = getenv(name);
  return v ? v : "";
}

static void log_text(const char* text, size_t size) {
  if (g.log_fd >= 0) syscall(SYS_write, g.log_fd, text, size);
}

__attribute__((constructor)) static void start(void) {
  const char* owner = getenv("FAULT_OWNER");
  char text[32];
  if (owner && atoi(owner) != getpid()) return;
  snprintf(text, sizeof text, "%d", getpid());
  setenv("FAULT_OWNER", text, 1);
  g_inside = 1;
  const char* action = setting("FAULT_ACTION");
  g.owner = getpid();
  g.memory = !strcmp(setting("FAULT_KIND"), "memory");
  g.product = !strcmp(setting("FAULT_KIND"), "product");
  g.io = !g.memory && !g.product;
  g.call = strtoul(setting("FAULT_CALL"), NULL, 10);
  g.from = *setting("FAULT_FROM") == '1';
  g.kill = !strcmp(action, "kill") || !strcmp(action, "half");
  g.action = !strcmp(action, "half") ? kHalf : !strcmp(action, "short") ? kShort : kFail;
  g.error = atoi(action);
  if (*setting("FAULT_NAMES")) snprintf(g.names, sizeof g.names, ",%s,", setting("FAULT_NAMES"));
  snprintf(g.path, sizeof g.path, "%s", setting("FAULT_PATH"));
  snprintf(g.trigger, sizeof g.trigger, "%s", setting("FAULT_TRIGGER"));
  g.clock_offset = 0;
  for (const char* s = setting("FAULT_SIGNALS"); *s && g.signal_count < 8;) {
    char* end;
    g.signals[g.signal_count++] = (int)strtol(s, &end, 10);
    s = *end == ',' ? end + 1 : "";
  }
  if (*setting("FAULT_PATCH")) {
    const int fd = open(setting("FAULT_PATCH"), O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, g.patch, sizeof g.patch - 1);
    g.patch[n < 0 ? 0 : n] = 0;
    close(fd);
  }
  g.log_fd = -1;
  if (*setting("FAULT_LOG")) {
    const int fd = open(setting("FAULT_LOG"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    g.log_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 1000);  // does not change the numbers of the program's descriptors
    if (g.log_fd < 0) g.log_fd = fd; else close(fd);
  }
  g.log_every_call = g.io;
  g.active = 1;
  g_inside = 0;
}

__attribute__((destructor)) static void finish(void) {
  char text[64];
  if (!g.active || g.io || getpid() != g.owner) return;
  const int n = snprintf(text, sizeof text, "%lu\n", atomic_load(&g_calls));
  log_text(text, (size_t)n);
}

static int is_chosen(const char* name, const char* path) {
  char key[64];
  if (*g.names) {
    snprintf(key, sizeof key, ",%s,", name);
    if (!strstr(g.names, key)) return 0;
  }
  return !*g.path || (path && strstr(path, g.path));
}

/// Counts one call and says what happens to it. Kills the process where that was asked for and nothing is written
/// before. `path` may be null.
static enum Action decide(const char* name, const char* path, int can_be_short) {
  if (!g.active || !g.io || g_inside || getpid() != g.owner || !is_chosen(name, path)) return kNone;
  const unsigned long n = atomic_fetch_add(&g_calls, 1) + 1;
  const int acts = g.call && (n == g.call || (g.from && n > g.call));
  if (g.io && g.log_fd >= 0) {
    char line[512];
    const int size = snprintf(line, sizeof line, "%lu %s %s\n", n, name, path ? path : "");
    log_text(line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
  }
  if (!acts) return kNone;
  if (g.kill && !(g.action == kHalf && can_be_short)) {
    syscall(SYS_kill, g.owner, SIGKILL);
    for (;;) pause();
  }
  if (g.action == kShort) return can_be_short ? kShort : kNone;
  return g.action;
}

static int failed(void) {
  errno = g.error;
  return -1;
}

static const char* path_of(int fd) { return fd >= 0 && fd < kMaxFd ? g_paths[fd] : ""; }

static int remember(int fd, const char* path) {
  if (fd >= 0 && fd < kMaxFd) snprintf(g_paths[fd], kPathBytes, "%s", path ? path : "");
  return fd;
}

// ---- opening and closing ----

static int open_call(const char* name, int dir, const char* path, int flags, mode_t mode) {
  if (decide(name, path, 0) == kFail) return failed();
  const long fd = syscall(SYS_openat, dir, path, flags, mode);
  return remember((int)fd, path);
}

#define OPEN(name, dir, parameters) \
  EXPORT int name parameters { \
    va_list more; \
    va_start(more, flags); \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    return open_call("open", dir, path, flags, mode); \
  }
OPEN(open, AT_FDCWD, (const char* path, int flags, ...))
OPEN(open64, AT_FDCWD, (const char* path, int flags, ...))
OPEN(openat, dir, (int dir, const char* path, int flags, ...))
OPEN(openat64, dir, (int dir, const char* path, int flags, ...))

EXPORT int close(int fd) {
  const enum Action a = decide("close", path_of(fd), 0);
  if (fd == g.log_fd && g.active && fd >= 0) return 0;
  const int r = (int)syscall(SYS_close, fd);  // closed in any case, as close() of Linux does
  remember(fd, "");
  return a == kFail ? failed() : r;
}

EXPORT FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  if (decide("fopen", path, 0) == kFail) return failed(), NULL;
  return real(path, mode);
}
EXPORT FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  if (decide("fopen", path, 0) == kFail) return failed(), NULL;
  return real(path, mode);
}
EXPORT DIR* opendir(const char* path) {
  REAL(opendir);
  if (decide("opendir", path, 0) == kFail) return failed(), NULL;
  return real(path);
}
EXPORT struct dirent* readdir(DIR* dir) {
  REAL(readdir);
  if (decide("readdir", NULL, 0) == kFail) return failed(), NULL;
  return real(dir);
}
EXPORT struct dirent64* readdir64(DIR* dir) {
  REAL(readdir64);
  if (decide("readdir", NULL, 0) == kFail) return failed(), NULL;
  return real(dir);
}

// ---- reading and writing ----

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

static size_t bytes_of(const char** text, unsigned char* out, size_t most) {
  size_t n = 0;
  while (n < most && digit((*text)[0]) >= 0 && digit((*text)[1]) >= 0) {
    out[n++] = (unsigned char)(digit((*text)[0]) << 4 | digit((*text)[1]));
    *text += 2;
  }
  return n;
}

/// Replaces bytes behind every occurrence of the pattern in the writable anonymous memory of this process. The
/// library's own copies are in g and on this stack: the pattern is compared with its complement, so it never finds
/// them.
static void patch_memory(void) {
  char line[512];
  static unsigned char pattern[256], value[256];
  unsigned long found = 0;
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return;
  while (fgets(line, sizeof line, maps)) {
    unsigned long begin, end, inode = 1;
    char mode[8] = "";
    int tail = 0;
    if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %n", &begin, &end, mode, &inode, &tail) < 4) continue;
    if (mode[0] != 'r' || mode[1] != 'w' || inode != 0 || strstr(line, "[stack") || strstr(line, "[v")) continue;
    for (const char* at = g.patch; *at;) {
      const size_t size = bytes_of(&at, pattern, sizeof pattern);
      char* rest;
      const unsigned long offset = strtoul(at, &rest, 10);
      at = rest + (*rest == ' ');
      const size_t count = bytes_of(&at, value, sizeof value);
      while (*at && *at != '\n') ++at;
      at += *at == '\n';
      if (size == 0 || end - begin < size + offset + count) continue;
      for (size_t i = 0; i < size; ++i) pattern[i] = (unsigned char)~pattern[i];
      for (unsigned char* p = (unsigned char*)begin; p + size <= (unsigned char*)end; p += 4) {
        size_t i = 0;
        while (i < size && p[i] == (unsigned char)~pattern[i]) ++i;
        if (i < size) continue;
        if (p + offset + count <= (unsigned char*)end) memcpy(p + offset, value, count), ++found;
      }
    }
  }
  fclose(maps);
  const int n = snprintf(line, sizeof line, "patched %lu\n", found);
  log_text(line, (size_t)n);
}

static void look_for_trigger(const void* data, size_t size) {
  if (!g.active || !*g.trigger || g_inside || getpid() != g.owner) return;
  if (!memmem(data, size, g.trigger, strlen(g.trigger)) || atomic_exchange(&g_triggered, 1)) return;
  g_inside = 1;
  if (*g.patch) patch_memory();
  g.clock_offset = atol(setting("FAULT_CLOCK"));
  g_inside = 0;
  for (int i = 0; i < g.signal_count; ++i) raise(g.signals[i]);
}

static size_t less(size_t n) { return n > 1 ? n / 2 : n; }

EXPORT ssize_t write(int fd, const void* data, size_t n) {
  const enum Action a = decide("write", path_of(fd), 1);
  if (a == kFail) return failed();
  if (a == kHalf) {
    syscall(SYS_write, fd, data, n / 2);
    syscall(SYS_kill, g.owner, SIGKILL);
  }
  const ssize_t r = syscall(SYS_write, fd, data, a == kShort ? less(n) : n);
  if (r > 0) {
    const int saved = errno;
    look_for_trigger(data, (size_t)r);
    errno = saved;
  }
  return r;
}
EXPORT ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  const enum Action a = decide("pwrite", path_of(fd), 1);
  if (a == kFail) return failed();
  if (a == kHalf) {
    syscall(SYS_pwrite64, fd, data, n / 2, at);
    syscall(SYS_kill, g.owner, SIGKILL);
  }
  return syscall(SYS_pwrite64, fd, data, a == kShort ? less(n) : n, at);
}
EXPORT ssize_t pwrite64(int fd, const void* data, size_t n, off64_t at) { return pwrite(fd, data, n, at); }
EXPORT ssize_t read(int fd, void* out, size_t n) {
  const enum Action a = decide("read", path_of(fd), 1);
  if (a == kFail) return failed();
  return syscall(SYS_read, fd, out, a == kShort || a == kHalf ? less(n) : n);
}
EXPORT ssize_t pread(int fd, void* out, size_t n, off_t at) {
  const enum Action a = decide("pread", path_of(fd), 1);
  if (a == kFail) return failed();
  return syscall(SYS_pread64, fd, out, a == kShort || a == kHalf ? less(n) : n, at);
}
EXPORT ssize_t pread64(int fd, void* out, size_t n, off64_t at) { return pread(fd, out, n, at); }

// ---- calls that succeed with 0 ----

#define CALL(name, label, path, declared, passed) \
  EXPORT int name declared { \
    REAL(name); \
    if (decide(label, path, 0) == kFail) return failed(); \
    return real passed; \
  }
CALL(fsync, "fsync", path_of(fd), (int fd), (fd))
CALL(fdatasync, "fdatasync", path_of(fd), (int fd), (fd))
CALL(ftruncate, "ftruncate", path_of(fd), (int fd, off_t size), (fd, size))
CALL(ftruncate64, "ftruncate", path_of(fd), (int fd, off64_t size), (fd, size))
CALL(flock, "flock", path_of(fd), (int fd, int how), (fd, how))
CALL(mkdir, "mkdir", p, (const char* p, mode_t mode), (p, mode))
CALL(rmdir, "rmdir", p, (const char* p), (p))
CALL(unlink, "unlink", p, (const char* p), (p))
CALL(unlinkat, "unlink", p, (int dir, const char* p, int flags), (dir, p, flags))
CALL(rename, "rename", to, (const char* from, const char* to), (from, to))
CALL(renameat2, "rename", to, (int a, const char* from, int b, const char* to, unsigned flags), (a, from, b, to, flags))
CALL(stat, "stat", p, (const char* p, struct stat* out), (p, out))
CALL(stat64, "stat", p, (const char* p, struct stat64* out), (p, out))
CALL(lstat, "stat", p, (const char* p, struct stat* out), (p, out))
CALL(lstat64, "stat", p, (const char* p, struct stat64* out), (p, out))
CALL(fstat, "fstat", path_of(fd), (int fd, struct stat* out), (fd, out))
CALL(fstat64, "fstat", path_of(fd), (int fd, struct stat64* out), (fd, out))
CALL(fstatat, "stat", p, (int dir, const char* p, struct stat* out, int flags), (dir, p, out, flags))
CALL(fstatat64, "stat", p, (int dir, const char* p, struct stat64* out, int flags), (dir, p, out, flags))
CALL(statvfs, "statvfs", p, (const char* p, struct statvfs* out), (p, out))
CALL(statvfs64, "statvfs", p, (const char* p, struct statvfs64* out), (p, out))

EXPORT ssize_t getrandom(void* out, size_t n, unsigned flags) {
  if (decide("getrandom", NULL, 0) == kFail) return failed();
  return syscall(SYS_getrandom, out, n, flags);
}

// ---- the clock ----

EXPORT int clock_gettime(clockid_t clock, struct timespec* out) {
  const int r = (int)syscall(SYS_clock_gettime, clock, out);
  if (r == 0 && clock == CLOCK_REALTIME) out->tv_sec += g.clock_offset;
  return r;
}
EXPORT time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

// ---- the start of main(), whose first call is fcntl() ----
// Allocations before it are those of static initialisers, which cannot report a failure.

EXPORT int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* const argument = va_arg(more, void*);
  va_end(more);
  g.started = 1;
  return (int)syscall(SYS_fcntl, fd, command, argument);
}

// ---- matrix products ----

typedef void (*Product)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

/// The product of OpenBLAS, which plugins load for themselves, so that RTLD_NEXT does not find it.
static Product real_product(void) {
  static Product real;
  if (!real) {
    void* library = dlopen("libopenblas.so.0", RTLD_NOLOAD | RTLD_LAZY);
    if (library) *(void**)&real = dlsym(library, "cblas_sgemm");
    if (!real) abort();
  }
  return real;
}

/// C (m x n, row-major, ldc elements per row) = alpha A B + beta C; then one element of C is changed.
EXPORT void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda,
                        const float* b, int ldb, float beta, float* c, int ldc) {
  real_product()(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (!g.active || !g.product || m <= 0 || n <= 0) return;
  if (*g.trigger && !atomic_load(&g_triggered)) return;
  const unsigned long call = atomic_fetch_add(&g_calls, 1) + 1;
  if (!g.call || !(call == g.call || (g.from && call > g.call))) return;
  const unsigned long element = strtoul(setting("FAULT_ELEMENT"), NULL, 10) % ((unsigned long)m * (unsigned long)n);
  float* const at = c + element / (unsigned long)n * (unsigned long)ldc + element % (unsigned long)n;
  unsigned bits;
  memcpy(&bits, at, sizeof bits);
  bits = *setting("FAULT_BIT") ? bits ^ 1u << atoi(setting("FAULT_BIT")) : 0x7fc00000u;
  memcpy(at, &bits, sizeof bits);
}

// ---- memory ----

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

/// libgfortran, which is loaded with OpenBLAS, calls itself without end if its static initialiser has no memory.
static int is_fortran(void* caller) {
  struct dl_find_object found;
  return _dl_find_object(caller, &found) == 0 && strstr(found.dlfo_link_map->l_name, "/libgfortran") != NULL;
}

static int no_memory(void* caller) {
  if (!g.active || !g.memory || !g.started || g_inside || getpid() != g.owner) return 0;
  const unsigned long n = atomic_fetch_add(&g_calls, 1) + 1;
  if (!g.call || !(n == g.call || (g.from && n > g.call)) || is_fortran(caller)) return 0;
  errno = ENOMEM;
  return 1;
}
#define NO_MEMORY no_memory(__builtin_return_address(0))
EXPORT void* malloc(size_t n) { return NO_MEMORY ? NULL : __libc_malloc(n); }
EXPORT void* calloc(size_t n, size_t size) { return NO_MEMORY ? NULL : __libc_calloc(n, size); }
EXPORT void* realloc(void* p, size_t n) { return NO_MEMORY ? NULL : __libc_realloc(p, n); }
EXPORT void* memalign(size_t align, size_t n) { return NO_MEMORY ? NULL : __libc_memalign(align, n); }
EXPORT void* aligned_alloc(size_t align, size_t n) { return NO_MEMORY ? NULL : __libc_memalign(align, n); }
EXPORT int posix_memalign(void** out, size_t align, size_t n) {
  if (NO_MEMORY) return ENOMEM;
  void* p = __libc_memalign(align, n);
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
EXPORT void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  if ((flags & MAP_ANONYMOUS) && NO_MEMORY) return MAP_FAILED;
  const long r = syscall(SYS_mmap, at, n, protection, flags, fd, offset);
  return (void*)r;
}
