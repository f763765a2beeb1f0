// Products of warpgroups: each warp computes the 16 rows that its lanes hold. Sums are computed in f64 and
// rounded once, as in mma.cpp. Operands in shared memory have the hardware's 128-byte swizzle: bits 4 to 6 of
// an address are combined with bits 7 to 9.
#include "wgmma.hpp"

#include <cstdint>
#include <cstring>

#include "cuda_emulation/execution.h"
#include "cuda_emulation/intrinsics.h"
#include "cuda_emulation/wgmma.h"

namespace emu {
namespace {

constexpr unsigned kRows = 16, kColumns = 64, kSum = 16;  // of a warp's part
constexpr std::size_t kRowBytes = 128, kGroupBytes = 8 * kRowBytes;

float bf16(std::uint32_t bits) { return __uint_as_float(bits << 16); }

/// Number `column` of row `row` of an operand that starts at `units`.
float in_shared(std::uint32_t units, unsigned row, unsigned column) {
  std::size_t at = std::size_t{units} * 16 + row / 8 * kGroupBytes + row % 8 * kRowBytes + column * 2;
  at ^= (at / kRowBytes % 8) << 4;
  if (at + 2 > dynamic_shared_bytes()) trap("wgmma reads beyond the block's dynamic shared memory");
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const unsigned char*>(dynamic_shared()) + at, sizeof bits);
  return bf16(bits);
}

void check_start(std::uint32_t units) {
  if (units * 16 / kRowBytes % 8 != 0) trap("an operand of wgmma does not start at a group of eight rows");
}

}  // namespace

std::uint32_t shared_units(const void* at) {
  const std::ptrdiff_t bytes =
      static_cast<const unsigned char*>(at) - static_cast<const unsigned char*>(dynamic_shared());
  if (reinterpret_cast<std::uintptr_t>(dynamic_shared()) % kGroupBytes != 0)
    trap("operands of wgmma need dynamic shared memory that starts at a multiple of 1024 bytes");
  if (bytes < 0 || bytes % 16 != 0) trap("an operand of wgmma is not at a multiple of 16 bytes");
  return static_cast<std::uint32_t>(bytes / 16);
}

void multiply_warpgroup_rows(void* const* lanes, unsigned mask) {
  if (mask != 0xffffffffu) trap("wgmma in a warp of fewer than 32 threads");
  const auto lane = [lanes](unsigned i) -> const Wgmma& { return *static_cast<const Wgmma*>(lanes[i]); };
  const Wgmma& first = lane(0);
  check_start(first.b_at);
  float a[kRows][kSum], b[kSum][kColumns];
  for (unsigned k = 0; k < kSum; ++k)
    for (unsigned n = 0; n < kColumns; ++n)
      b[k][n] = first.b_rows_are_sum ? in_shared(first.b_at, k, n) : in_shared(first.b_at, n, k);
  if (first.a) {
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned i = 0; i < 4; ++i)
        for (unsigned half = 0; half < 2; ++half)
          a[l / 4 + 8 * (i % 2)][l % 4 * 2 + half + 8 * (i / 2)] =
              bf16(half ? lane(l).a[i] >> 16 : lane(l).a[i] & 0xffffu);
  } else {
    check_start(first.a_at);
    const unsigned row0 = thread_number() / 32 % 4 * kRows;
    for (unsigned m = 0; m < kRows; ++m)
      for (unsigned k = 0; k < kSum; ++k) a[m][k] = in_shared(first.a_at, row0 + m, k);
  }
  for (unsigned m = 0; m < kRows; ++m) {
    double sum[kColumns];
    const auto element = [&](unsigned n) -> float& {
      return lane(m % 8 * 4 + n % 8 / 2).d[n / 8][m / 8 * 2 + n % 2];
    };
    for (unsigned n = 0; n < kColumns; ++n) sum[n] = first.add ? element(n) : 0;
    for (unsigned k = 0; k < kSum; ++k)
      for (unsigned n = 0; n < kColumns; ++n) sum[n] += static_cast<double>(a[m][k]) * b[k][n];
    for (unsigned n = 0; n < kColumns; ++n) element(n) = static_cast<float>(sum[n]);
  }
}

}  // namespace emu
