// What the emulation reads from the symbol tables of the running program and its libraries. A stripped program gives
// nothing: kernels then have numbers for names, and static shared memory keeps what the block before left there.
#pragma once
#include <cstddef>
#include <string>

namespace emu {

/// The name of the function at this address, without namespace and arguments.
std::string kernel_name(const void* function);

/// Fills every `__shared__` variable of the calling thread with 0xFF bytes.
void fill_static_shared();

}  // namespace emu
