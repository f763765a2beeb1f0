// Warp operations behind plugins/cuda/kernels/mma.hpp: products of fragments and loads of 8x8 matrices, with
// the layouts documented there. Each function is a Collective (execution.h): lanes[i] is the struct that lane
// i passed.
#pragma once
#include <cstdint>

namespace emu {

struct Mma {
  float (&d)[4];
  const std::uint32_t (&a)[4];
  const std::uint32_t (&b)[2];
};
void mma_bf16(void* const* lanes, unsigned mask);
void mma_tf32(void* const* lanes, unsigned mask);

struct LoadMatrix {
  std::uint32_t (&r)[4];
  const void* row;
};
void load_matrix(void* const* lanes, unsigned mask);
void load_matrix_transposed(void* const* lanes, unsigned mask);

/// Rounds to nearest, ties away from zero; infinities and NaN do not change.
std::uint32_t round_to_tf32(float x);

}  // namespace emu
