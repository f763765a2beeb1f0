// What a kernel asks of the emulation while it runs: who it is, barriers, warp collectives, shared memory,
// asynchronous copies. Each thread of a block is a fiber; every function here but thread_number and
// dynamic_shared may switch to another.
#pragma once
#include "vectors.h"

extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emu {

/// x + y*width + z*width*height, as the hardware numbers threads into warps.
unsigned thread_number();
inline unsigned lane() { return thread_number() & 31; }

/// Every thread of the block must come here; one that returned without is an error that the wait of the host
/// throws.
void block_barrier();

/// Waits until every lane of `mask` has called with the same mask and the same function, which then runs
/// once: lanes[i] is the `mine` of lane i, null outside the mask. Lanes beyond the end of the block need not
/// come.
using Collective = void (*)(void* const* lanes, unsigned mask);
void warp_collective(unsigned mask, Collective perform, void* mine);

/// The block's dynamic shared memory, 16-byte aligned (in fact 1024), filled with 0xFF before each block.
void* dynamic_shared();

/// cp.async of 16 bytes: `shared` holds NaN until this thread waits for its group. Zeros when global is null.
void copy_async_16(void* shared, const void* global);
void copy_async_commit();
void copy_async_wait(
    unsigned groups_left);  // UINT_MAX - nothing special: waits until at most so many groups are pending

/// Ends the block with an error (the device's trap).
[[noreturn]] void trap(const char* why);

}  // namespace emu
