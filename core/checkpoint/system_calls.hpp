// The system calls of this folder, as a table small enough to recite. The program never changes it; tests put
// failing, dying, short-writing and recording calls in, and so reach every point of the save path.
#pragma once
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

namespace trainhost::checkpoint {

struct Sys {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*pread)(int fd, void* out, std::size_t n, off_t at);
  ssize_t (*write)(int fd, const void* data, std::size_t n);
  int (*fsync)(int fd);
  int (*close)(int fd);
  int (*mkdir)(const char* path, mode_t mode);
  int (*rename)(const char* from, const char* to);
  int (*exchange)(const char* a, const char* b);  // renameat2(RENAME_EXCHANGE)
  int (*unlink)(const char* path);
  int (*rmdir)(const char* path);
};

/// The table in force; the real calls unless a test said otherwise.
Sys& sys();

}  // namespace trainhost::checkpoint
