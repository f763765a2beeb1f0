// Runs the blocks of one kernel, one after another, each thread as a fiber of the calling thread. A barrier
// that not all threads reach, or a collective that a lane of its mask does not reach, is thrown as
// std::runtime_error; nothing hangs.
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
  std::size_t shared_bytes = 0;
  std::function<void()> body;
};
void run_kernel(const Kernel& kernel, const Schedule& schedule);

}  // namespace emu
