// Products of warpgroups behind plugins/cuda/kernels/wgmma.hpp. A product runs when its thread waits for its
// group, not before: until then its operands may still change, and sums that it does not add to are NaN.
// Implemented in wgmma.cpp (arithmetic) and thread_block.cpp (groups).
#pragma once
#include <cstdint>

namespace emu {

/// d[64, 64] = a[64, 16] b[16, 64], plus d if `add`; the layouts of wgmma.hpp.
struct Wgmma {
  float (*d)[4];             // 8 blocks of 8 columns
  const std::uint32_t* a;    // 4 words; null: a is in shared memory at a_at
  std::uint32_t a_at, b_at;  // in units of 16 bytes from the begin of dynamic shared memory
  bool add, b_rows_are_sum;
};

/// The units of an address in dynamic shared memory.
std::uint32_t shared_units(const void* at);
void wgmma(const Wgmma& product);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(unsigned groups_left);  // waits until at most this many groups are pending

}  // namespace emu
