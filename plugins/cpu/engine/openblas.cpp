// What the engine asks of OpenBLAS besides products: version, one thread per call, and its work buffers,
// which are mapped before the first step. Which kernels it uses is decided before it is loaded:
// front_end/core_type.cpp. See openblas.hpp.
#include "plugins/cpu/engine/openblas.hpp"

#include <cblas.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <vector>

#include "core/abi/error_guard.hpp"

namespace trainhost::cpu {
namespace {

/// The work buffer of one call: 128 MiB of addresses on x86-64 (BUFFER_SIZE, 32 << 22), and some for
/// rounding.
constexpr std::size_t kBufferBytes = std::size_t{132} << 20;

bool can_map(std::size_t bytes) {
  void* const p = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p != MAP_FAILED && ::munmap(p, bytes) == 0;
}

}  // namespace

void openblas_single_threaded() { openblas_set_num_threads(1); }

std::string openblas_core() { return openblas_get_corename(); }

// openblas_get_config() begins "OpenBLAS 0.3.21 ...".
std::string openblas_version() {
  std::string config = openblas_get_config();
  std::size_t space = config.find(' ');
  std::size_t second = space == std::string::npos ? space : config.find(' ', space + 1);
  return config.substr(0, second) + " " + openblas_core();
}

// A buffer that OpenBLAS has mapped once is used again by later calls and never unmapped. All are held at the
// same time here, since as many calls run at the same time in a step.
void reserve_openblas_buffers(std::uint32_t threads) {
  // Exported by every build of 0.3, declared in no header.
  const auto alloc = reinterpret_cast<void* (*)(int)>(::dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
  const auto release = reinterpret_cast<void (*)(void*)>(::dlsym(RTLD_DEFAULT, "blas_memory_free"));
  if (!alloc || !release) return;
  std::vector<void*> buffers;
  bool mapped = true;
  for (std::uint32_t i = 0; i < threads && mapped; ++i)
    if ((mapped = can_map(kBufferBytes))) buffers.push_back(alloc(0));
  for (void* p : buffers) release(p);
  if (!mapped)
    throw abi::StatusError(TH_E_HOST_OOM,
                           "OpenBLAS needs " + std::to_string(kBufferBytes >> 20) +
                               " MiB of addresses for each of " + std::to_string(threads) +
                               " threads; there is enough for " + std::to_string(buffers.size()),
                           "raise the limit of address space (ulimit -v), or reduce train.threads",
                           kBufferBytes * (threads - buffers.size()));
}

}  // namespace trainhost::cpu
