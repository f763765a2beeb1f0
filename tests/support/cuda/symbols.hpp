// What the emulation reads from the symbol tables of the running program and its libraries. A stripped
// program gives nothing: kernels then have numbers for names, and static shared memory keeps what the block
// before left there.
#pragma once
#include <cstddef>
#include <string>

namespace emu {

/// The name of the function at this address, without namespace and arguments.
std::string kernel_name(const void* function);

/// Fills `__shared__` variables of the calling thread with 0xFF bytes, before the block-th block of a launch:
/// before the first all of them, then those that the blocks so far have used. Which these are is looked up
/// after 1, 2, 4, 8, ... blocks.
void fill_static_shared(std::size_t block);

}  // namespace emu
