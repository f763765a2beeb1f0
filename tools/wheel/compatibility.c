// Functions that glibc has got since 2.28, for the files of a wheel on older systems. The loader takes them
// from glibc where it has them: the files of the wheel list this library last. Built by tools/wheel;
// README.md explains more.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

// 2.32. Never true here, so reference counts are changed by atomic instructions also with one thread.
EXPORT char __libc_single_threaded = 0;

// 2.33; before, an inline function called __xstat(). On x86-64 glibc's struct stat is that of the kernel.
EXPORT int stat(const char* path, struct stat* out) { return (int)syscall(SYS_stat, path, out); }
EXPORT int lstat(const char* path, struct stat* out) { return (int)syscall(SYS_lstat, path, out); }
EXPORT int fstat(int fd, struct stat* out) { return (int)syscall(SYS_fstat, fd, out); }
EXPORT int stat64(const char* path, struct stat64* out) { return (int)syscall(SYS_stat, path, out); }
EXPORT int lstat64(const char* path, struct stat64* out) { return (int)syscall(SYS_lstat, path, out); }
EXPORT int fstat64(int fd, struct stat64* out) { return (int)syscall(SYS_fstat, fd, out); }

// 2.28.
EXPORT int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

// 2.36.
EXPORT uint32_t arc4random(void) {
  uint32_t value;
  while (syscall(SYS_getrandom, &value, sizeof value, 0) != sizeof value)
    if (errno != EINTR) abort();
  return value;
}

// 2.33. The older function counts modulo 4 GiB.
EXPORT struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo m = mallinfo();
  return (struct mallinfo2){(unsigned)m.arena,   (unsigned)m.ordblks,  (unsigned)m.smblks,
                            (unsigned)m.hblks,   (unsigned)m.hblkhd,   (unsigned)m.usmblks,
                            (unsigned)m.fsmblks, (unsigned)m.uordblks, (unsigned)m.fordblks,
                            (unsigned)m.keepcost};
}

// 2.32. NULL for numbers without a name, as in glibc.
EXPORT const char* sigabbrev_np(int number) {
  static const char* const kNames[] = {NULL,     "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
                                       "FPE",    "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
                                       "STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
                                       "XCPU",   "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
  return number >= 0 && number < (int)(sizeof kNames / sizeof *kNames) ? kNames[number] : NULL;
}

// 2.34. The child closes what this process has open now; older versions have no way to close all.
EXPORT int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) {
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return errno;
  int error = 0;
  for (struct dirent* entry; !error && (entry = readdir(folder));) {
    int fd = 0;
    for (const char* digit = entry->d_name; *digit && fd >= 0; ++digit)
      fd = *digit < '0' || *digit > '9' ? -1 : 10 * fd + (*digit - '0');
    if (fd >= from && fd != dirfd(folder)) error = posix_spawn_file_actions_addclose(actions, fd);
  }
  closedir(folder);
  return error;
}

// 2.30. `condition` waits by CLOCK_REALTIME, as one without attributes does. If that clock is set meanwhile,
// the wait ends early, as a spurious one, or late.
EXPORT int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* end) {
  enum { kSecond = 1000000000 };
  struct timespec now, real;
  if (clock_gettime(clock, &now) || clock_gettime(CLOCK_REALTIME, &real)) return EINVAL;
  real.tv_sec += end->tv_sec - now.tv_sec;
  real.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) real.tv_nsec += kSecond, --real.tv_sec;
  if (real.tv_nsec >= kSecond) real.tv_nsec -= kSecond, ++real.tv_sec;
  const int error = pthread_cond_timedwait(condition, mutex, &real);
  if (error != ETIMEDOUT) return error;
  clock_gettime(clock, &now);
  const int passed = now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
  return passed ? ETIMEDOUT : 0;
}

typedef void Constructor(int, char**, char**);

// Runs the constructors of the program, the first object that dl_iterate_phdr() lists.
static int run_constructors_of(struct dl_phdr_info* object, size_t size, void* arguments) {
  (void)size;
  const char* base = (const char*)object->dlpi_addr;
  const ElfW(Dyn)* entry = NULL;
  for (int i = 0; i < object->dlpi_phnum; ++i)
    if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn)*)(base + object->dlpi_phdr[i].p_vaddr);
  Constructor *first = NULL, *const *list = NULL;
  size_t count = 0;
  for (; entry && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_INIT) first = (Constructor*)(base + entry->d_un.d_ptr);
    if (entry->d_tag == DT_INIT_ARRAY) list = (Constructor* const*)(base + entry->d_un.d_ptr);
    if (entry->d_tag == DT_INIT_ARRAYSZ) count = entry->d_un.d_val / sizeof *list;
  }
  char*** argv_envp = arguments;
  int argc = 0;
  while (argv_envp[0][argc]) ++argc;
  if (first) first(argc, argv_envp[0], argv_envp[1]);
  for (size_t i = 0; i < count; ++i) list[i](argc, argv_envp[0], argv_envp[1]);
  return 1;  // no other object
}

static void run_constructors(int argc, char** argv, char** envp) {
  (void)argc;
  char** arguments[] = {argv, envp};
  dl_iterate_phdr(run_constructors_of, arguments);
}

typedef int Main(int, char**, char**);
int start_main(Main*, int, char**, Constructor*, void (*)(void), void (*)(void), void*);
__asm__(".symver start_main, __libc_start_main@GLIBC_2.2.5");

// A program that was linked with glibc 2.34 or newer passes no `constructors` to __libc_start_main(), because
// that version finds them itself. An older one would skip them.
EXPORT int __trainhost_start(Main* program, int argc, char** argv, Constructor* constructors,
                             void (*destructors)(void), void (*loader_end)(void), void* stack_end) {
  return start_main(program, argc, argv, constructors ? constructors : run_constructors, destructors,
                    loader_end, stack_end);
}
