// Runs the blocks of a kernel one after another, each thread as a fiber of the calling thread. Throws
// std::runtime_error if not all threads reach a barrier, or not all lanes of the mask reach a warp operation;
// never hangs. Interface for kernels: include/cuda_emulation/execution.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda_emulation/vectors.h"
#include "emu.hpp"

namespace emu {

struct Kernel {
  std::string name;
  dim3 grid, block;
  std::size_t shared_bytes = 0, static_shared_bytes = 0;  // dynamic; static
  std::function<void()> body;
};
void run_kernel(const Kernel& kernel, const Schedule& schedule);

}  // namespace emu
