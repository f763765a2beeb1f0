// Tensor-core instructions, with the fragment layouts that are documented in plugins/cuda/kernels/mma.hpp.
// Products of two bf16 or TF32 numbers are exact in f32; sums are computed in f64 and rounded once. The
// hardware truncates differently, so results differ in the last bits.
#include "cuda_emulation/mma.h"

#include <cstring>

#include "cuda_emulation/execution.h"
#include "cuda_emulation/intrinsics.h"

namespace emu {
namespace {

void whole_warp(unsigned mask) {
  if (mask != 0xffffffffu) trap("a tensor-core instruction in a warp of fewer than 32 threads");
}
template <class T>
const T& lane_of(void* const* lanes, unsigned i) {
  return *static_cast<const T*>(lanes[i]);
}

// d[16, 8] += a[16, k] * b[k, 8], read from and written to the fragments of the lanes.
template <unsigned K>
void accumulate(void* const* lanes, const float (&a)[16][K], const float (&b)[K][8]) {
  double sum[16][8];
  auto element = [lanes](unsigned row, unsigned column) -> float& {
    return lane_of<Mma>(lanes, row % 8 * 4 + column / 2).d[row / 8 * 2 + column % 2];
  };
  for (unsigned r = 0; r < 16; ++r)
    for (unsigned c = 0; c < 8; ++c) sum[r][c] = element(r, c);
  for (unsigned k = 0; k < K; ++k)
    for (unsigned r = 0; r < 16; ++r)
      for (unsigned c = 0; c < 8; ++c) sum[r][c] += static_cast<double>(a[r][k]) * b[k][c];
  for (unsigned r = 0; r < 16; ++r)
    for (unsigned c = 0; c < 8; ++c) element(r, c) = static_cast<float>(sum[r][c]);
}

float half_of(std::uint32_t word, unsigned high) {
  return __uint_as_float(high ? word & 0xffff0000u : word << 16);
}
float tf32(std::uint32_t word) {
  return __uint_as_float(word & 0xffffe000u);
}  // the hardware ignores the lower bits

template <class At>
void load(void* const* lanes, unsigned mask, At&& at) {
  whole_warp(mask);
  std::uint16_t m[4][8][8];
  for (unsigned l = 0; l < 32; ++l) {
    const void* row = lane_of<LoadMatrix>(lanes, l).row;
    if (reinterpret_cast<std::uintptr_t>(row) % 16)
      trap("ldmatrix from an address that is not 16-byte aligned");
    memcpy(m[l / 8][l % 8], row, 16);
  }
  for (unsigned l = 0; l < 32; ++l)
    for (unsigned i = 0; i < 4; ++i)
      lane_of<LoadMatrix>(lanes, l).r[i] =
          at(m[i], l / 4, 2 * (l % 4)) | static_cast<std::uint32_t>(at(m[i], l / 4, 2 * (l % 4) + 1)) << 16;
}

}  // namespace

void mma_bf16(void* const* lanes, unsigned mask) {
  whole_warp(mask);
  float a[16][16], b[16][8];
  for (unsigned l = 0; l < 32; ++l) {
    const Mma& m = lane_of<Mma>(lanes, l);
    const unsigned g = l / 4, t = l % 4;
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned h = 0; h < 2; ++h) a[g + 8 * (i % 2)][2 * t + h + 8 * (i / 2)] = half_of(m.a[i], h);
    for (unsigned i = 0; i < 2; ++i)
      for (unsigned h = 0; h < 2; ++h) b[2 * t + h + 8 * i][g] = half_of(m.b[i], h);
  }
  accumulate(lanes, a, b);
}

void mma_tf32(void* const* lanes, unsigned mask) {
  whole_warp(mask);
  float a[16][8], b[8][8];
  for (unsigned l = 0; l < 32; ++l) {
    const Mma& m = lane_of<Mma>(lanes, l);
    const unsigned g = l / 4, t = l % 4;
    for (unsigned i = 0; i < 4; ++i) a[g + 8 * (i % 2)][t + 4 * (i / 2)] = tf32(m.a[i]);
    for (unsigned i = 0; i < 2; ++i) b[t + 4 * i][g] = tf32(m.b[i]);
  }
  accumulate(lanes, a, b);
}

void load_matrix(void* const* lanes, unsigned mask) {
  load(lanes, mask, [](const std::uint16_t(&m)[8][8], unsigned g, unsigned e) { return m[g][e]; });
}
void load_matrix_transposed(void* const* lanes, unsigned mask) {
  load(lanes, mask, [](const std::uint16_t(&m)[8][8], unsigned g, unsigned e) { return m[e][g]; });
}

std::uint32_t round_to_tf32(float x) {
  const std::uint32_t u = __float_as_uint(x);
  return (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & 0xffffe000u;
}

}  // namespace emu
