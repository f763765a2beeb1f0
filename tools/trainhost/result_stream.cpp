#include "tools/trainhost/result_stream.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace trainhost::cli {
namespace {

std::FILE* g_results = nullptr;

}  // namespace

std::FILE* result_stream() noexcept { return g_results ? g_results : stdout; }

void reserve_stdout_for_json() noexcept {
  const int own = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (own < 0) return;
  std::FILE* const stream = fdopen(own, "w");
  if (!stream || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    stream ? std::fclose(stream) : close(own);
    return;
  }
  g_results = stream;
}

}  // namespace trainhost::cli
