// Reads names of kernels and addresses of `__shared__` variables from the ELF symbol tables of the program
// and its libraries. In a stripped program kernels are named by address, and static shared memory keeps the
// values of the previous block.
#pragma once
#include <cstddef>
#include <string>

namespace emu {

/// The name of the function at this address, without namespace and arguments.
std::string kernel_name(const void* function);

/// Fills `__shared__` variables of the calling thread with 0xFF bytes before the block-th block of a launch:
/// all of them before block 0, later only those that earlier blocks of the launch have written. Checked after
/// 1, 2, 4, 8, ... blocks.
void fill_static_shared(std::size_t block);

}  // namespace emu
