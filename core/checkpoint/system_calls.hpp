// The system calls of this module as a table. The program never changes it. Tests replace entries with calls
// that fail, kill the process, write short or record, to reach every point of saving a checkpoint.
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
  ssize_t (*pwrite)(int fd, const void* data, std::size_t n, off_t at) = nullptr;
};

/// The current table; contains the real calls unless a test replaced them.
Sys& sys();

}  // namespace trainhost::checkpoint
