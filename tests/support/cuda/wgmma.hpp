// The arithmetic of a product of a warpgroup, for thread_block.cpp.
#pragma once
#include <cstddef>

namespace emu {

/// The 16 rows of one warp of one product: a warp operation whose arguments are pointers to Wgmma.
void multiply_warpgroup_rows(void* const* lanes, unsigned mask);
/// Bytes of the block's dynamic shared memory.
std::size_t dynamic_shared_bytes();

}  // namespace emu
