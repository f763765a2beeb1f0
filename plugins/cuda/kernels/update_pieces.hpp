// Shared by the kernels of the optimizers: the division of many parameters into chunks for the blocks of one
// launch, the constants of a step, and the rule of AdamW. Contains no kernel.
#pragma once
#include "core/step/program.hpp"
#include "plugins/cuda/kernels/packs.hpp"
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

namespace trainhost::cuda {

/// Calls process(piece, first, end) for every chunk of at most `kChunk` elements that belongs to this block.
/// Chunks are numbered consecutively over all pieces, and block b has chunks b, b + gridDim.x, ... So the
/// assignment depends only on the sizes.
template <std::uint32_t kChunk, class P, class Process>
__device__ __forceinline__ void for_chunks(const P& pieces, Process&& process) {
  std::uint64_t chunk = blockIdx.x, base = 0;
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    const std::uint64_t elements = pieces.piece[i].elements, chunks = (elements + kChunk - 1) / kChunk;
    for (; chunk < base + chunks; chunk += gridDim.x) {
      const std::uint64_t first = (chunk - base) * kChunk,
                          end = first + kChunk < elements ? first + kChunk : elements;
      process(pieces.piece[i], first, end);
    }
    base += chunks;
  }
}

/// Element i of the weight that an optimizer updates: of the master copy if there is one.
template <class T>
__device__ __forceinline__ float weight_of(const TensorPiece<T>& t, std::uint64_t i) {
  return t.master ? t.master[i] : to_float(t.weight[i]);
}
template <class T>
__device__ __forceinline__ void set_weight(const TensorPiece<T>& t, std::uint64_t i, float w) {
  if (t.master) t.master[i] = w;
  t.weight[i] = from_float<T>(w);
}

/// Constants of a step, rounded to f32.
struct Step {
  float clip, lr, step_size, inv_sqrt_bias2, decay;
};
__device__ __forceinline__ Step step_of(const double* __restrict__ scalars) {
  return {static_cast<float>(scalars[step::kClipFactor]), static_cast<float>(scalars[step::kLr]),
          static_cast<float>(scalars[step::kStepSize]), static_cast<float>(scalars[step::kInvSqrtBias2]),
          static_cast<float>(scalars[step::kDecayFactor])};
}

// An optimizer rule: returns the new weight from the clipped gradient g, the weight w and kMoments moments,
// which it updates.
struct AdamWRule {
  static constexpr int kMoments = 2;
  AdamW c;
  __device__ __forceinline__ float operator()(const Step& s, float decay, float g, float w, float& m,
                                              float& v) const {
    m = c.beta1 * m + c.one_minus_beta1 * g;
    v = c.beta2 * v + c.one_minus_beta2 * g * g;
    return w * decay - s.step_size * m / (sqrtf(v) * s.inv_sqrt_bias2 + c.eps);
  }
};

// Blocks of the optimizer kernels: 4 per SM of a device with 132 SMs. Elements are independent, so the number
// does not affect the bits.
constexpr std::uint32_t kUpdateBlocks = 4 * 132, kUpdateThreads = 256, kUpdateWarps = kUpdateThreads / kWarp;

/// Blocks of a launch over these pieces in chunks of `chunk` elements.
template <class P>
dim3 blocks_of(const P& pieces, std::uint32_t chunk) {
  std::uint64_t chunks = 0;
  for (std::uint32_t i = 0; i < pieces.count; ++i) chunks += divide_up(pieces.piece[i].elements, chunk);
  return dim3(chunks < kUpdateBlocks ? static_cast<unsigned>(chunks) : kUpdateBlocks);
}

}  // namespace trainhost::cuda
