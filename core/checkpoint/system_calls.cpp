// The table of the real system calls; see system_calls.hpp.
#include "core/checkpoint/system_calls.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace trainhost::checkpoint {

Sys& sys() {
  static Sys table{
      [](const char* p, int flags, mode_t mode) { return ::open(p, flags, mode); },
      ::pread,
      ::write,
      ::fsync,
      ::close,
      ::mkdir,
      ::rename,
      [](const char* a, const char* b) { return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE); },
      ::unlink,
      ::rmdir,
      ::pwrite,
  };
  return table;
}

}  // namespace trainhost::checkpoint
