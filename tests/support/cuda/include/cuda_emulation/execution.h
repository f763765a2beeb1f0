// Functions of the emulation that kernels call while they run: thread index, barriers, warp operations,
// shared memory and asynchronous copies. Each thread of a block is a fiber; the barrier and warp operations
// may switch to another one. Implemented in thread_block.cpp.
#pragma once
#include "vectors.h"

extern constinit uint3 threadIdx, blockIdx;
extern constinit dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emu {

/// Index of the thread in its block, x + y*width + z*width*height. Warps are consecutive groups of 32.
unsigned thread_number();
inline unsigned lane() { return thread_number() & 31; }

/// __syncthreads(). All threads of the block must call it; if one has returned, the host's waiting call
/// throws.
void block_barrier();

/// A warp operation: waits until every lane of `mask` has called it with the same mask and function, which
/// then runs once. lanes[i] is the argument `mine` of lane i; it has no meaning for lanes outside the mask.
/// Lanes beyond the end of the block are ignored.
using Collective = void (*)(void* const* lanes, unsigned mask);
void warp_collective(unsigned mask, Collective perform, void* mine);

/// The block's dynamic shared memory, 16-byte aligned, filled with 0xFF before each block.
void* dynamic_shared();

/// cp.async of 16 bytes: `shared` contains NaN until this thread waits for the group. Writes zeros if global
/// is null.
void copy_async_16(void* shared, const void* global);
void copy_async_commit();
void copy_async_wait(unsigned groups_left);  // waits until at most this many groups are pending

/// Ends the block with an error, like the trap instruction.
[[noreturn]] void trap(const char* why);

}  // namespace emu
