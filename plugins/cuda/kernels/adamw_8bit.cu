// AdamW with moments of 8 bits: one warp decodes, updates and encodes a block of 256 elements. The codes are
// those of core/step/moment_codes.hpp, found by a binary search in shared memory, because its table of 64 KiB
// would not stay there. Interface: tensor_optimizers.hpp.
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

#include <cfloat>

#include "core/model/dynamic_map.hpp"
#include "plugins/cuda/kernels/update_pieces.hpp"

namespace trainhost::cuda {
namespace {

constexpr std::uint32_t kBlock8bit = 256, kPerLane = kBlock8bit / kWarp,
                        kChunk8bit = kUpdateWarps * kBlock8bit;

struct DynamicMaps {
  float m[256], v[256];
};
/// Numbers of the codes, and the largest number that each code stands for, in shared memory.
struct CodeTable {
  float value[256], highest[256];
  __device__ __forceinline__ void fill(const float* map) {
    const std::uint32_t i = threadIdx.x;
    value[i] = map[i];
    highest[i] = i < 255 ? (map[i] + map[i + 1]) / 2.0f : __int_as_float(0x7f800000);
  }
  /// The first code whose highest number is not below x.
  __device__ __forceinline__ std::uint8_t code(float x) const {
    std::uint32_t c = 0;
#pragma unroll
    for (std::uint32_t s = 128; s > 0; s /= 2)
      if (highest[c + s - 1] < x) c += s;
    return static_cast<std::uint8_t>(c);
  }
};

/// The moments of the elements first + lane, first + lane + 32, ... below `end`.
__device__ __forceinline__ void decode(const Moment8bitPiece& from, const CodeTable& table,
                                       std::uint64_t first, std::uint64_t end, float (&x)[kPerLane]) {
  const float scale = from.codes ? from.floats[first / kBlock8bit] : 1.0f;
#pragma unroll
  for (std::uint32_t k = 0; k < kPerLane; ++k) {
    const std::uint64_t i = first + threadIdx.x % kWarp + k * kWarp;
    if (i >= end)
      x[k] = 0;
    else
      x[k] = from.codes ? table.value[from.codes[i]] * scale : from.floats[i];
  }
}
__device__ __forceinline__ void encode(const Moment8bitPiece& to, const CodeTable& table, std::uint64_t first,
                                       std::uint64_t end, const float (&x)[kPerLane]) {
  float scale = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < kPerLane; ++k) scale = fmaxf(scale, fabsf(x[k]));
  scale = warp_max(scale);
  if (to.codes && threadIdx.x % kWarp == 0) to.floats[first / kBlock8bit] = scale;
  const float inverse = 1.0f / fmaxf(scale, FLT_MIN);
#pragma unroll
  for (std::uint32_t k = 0; k < kPerLane; ++k) {
    const std::uint64_t i = first + threadIdx.x % kWarp + k * kWarp;
    if (i >= end) continue;
    if (to.codes)
      to.codes[i] = table.code(fminf(fmaxf(x[k] * inverse, -1.0f), 1.0f));
    else
      to.floats[i] = x[k];
  }
}

template <class T>
__global__ __launch_bounds__(kUpdateThreads, 3) void adamw_8bit_kernel(const Pieces8bit<T> pieces,
                                                                       const DynamicMaps maps,
                                                                       const AdamWRule rule,
                                                                       const double* __restrict__ scalars) {
  __shared__ CodeTable m_table, v_table;
  if (scalars[step::kApplied] == 0) return;
  m_table.fill(maps.m), v_table.fill(maps.v);
  __syncthreads();
  const Step step = step_of(scalars);
  for_chunks<kChunk8bit>(pieces, [&](const Piece8bit<T>& p, std::uint64_t begin, std::uint64_t chunk_end) {
    const std::uint64_t first = begin + threadIdx.x / kWarp * kBlock8bit,
                        end = first + kBlock8bit < chunk_end ? first + kBlock8bit : chunk_end;
    if (first >= end) return;
    float m[kPerLane], v[kPerLane];
    decode(p.m, m_table, first, end, m), decode(p.v, v_table, first, end, v);
    const float decay = p.decay ? step.decay : 1.0f;
#pragma unroll
    for (std::uint32_t k = 0; k < kPerLane; ++k) {
      const std::uint64_t i = first + threadIdx.x % kWarp + k * kWarp;
      if (i < end)
        set_weight<T>(p, i, rule(step, decay, p.grad[i] * step.clip, weight_of<T>(p, i), m[k], v[k]));
    }
    encode(p.m, m_table, first, end, m), encode(p.v, v_table, first, end, v);
  });
}

}  // namespace

template <class T>
cudaError_t adamw_8bit(cudaStream_t stream, const Pieces8bit<T>& pieces, const AdamW& c,
                       const double* scalars) {
  static_assert(sizeof(Pieces8bit<T>) + sizeof(DynamicMaps) + sizeof(AdamWRule) + 16 <= 4096);
  DynamicMaps maps;
  for (std::size_t i = 0; i < 256; ++i) maps.m[i] = dynamic_map(true)[i], maps.v[i] = dynamic_map(false)[i];
  return launch(adamw_8bit_kernel<T>, blocks_of(pieces, kChunk8bit), dim3(kUpdateThreads), 0, stream, pieces,
                maps, AdamWRule{c}, scalars);
}

template cudaError_t adamw_8bit<float>(cudaStream_t, const Pieces8bit<float>&, const AdamW&, const double*);
template cudaError_t adamw_8bit<Bf16>(cudaStream_t, const Pieces8bit<Bf16>&, const AdamW&, const double*);

}  // namespace trainhost::cuda
