// Attention of one generated token over the key/value cache, one block per query head. The first block of
// each group of query heads appends the new key and value to the cache. Blocks run in any order, so every
// block reads row `position` from qkv and only earlier rows from the cache; no block depends on another.
// Writes no other row of the cache.
#include <cmath>

#include "plugins/cuda/kernels/attention_common.hpp"

namespace trainhost::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMaxHeadDim = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    step_kernel(const AttentionShape s, float scale, unsigned position, const T* __restrict__ qkv, T* cache_k,
                T* cache_v, float* scores, T* __restrict__ o) {
  __shared__ float q[kMaxHeadDim];
  __shared__ float part[kThreads];
  const unsigned head = blockIdx.x, group = s.heads / s.kv_heads, kv = head / group, d = s.d;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::size_t ld = static_cast<std::size_t>(s.kv_heads) * d, kv_at = static_cast<std::size_t>(kv) * d;
  const T* new_k = qkv + static_cast<std::size_t>(s.heads) * d + kv_at;
  const T* new_v = new_k + ld;
  const unsigned first = s.window != 0 && position >= s.window ? position - s.window + 1 : 0,
                 keys = position + 1 - first;
  float* score =
      scores + static_cast<std::size_t>(head) * s.seq;  // in global memory: score[i] of key first + i

  for (unsigned i = threadIdx.x; i < d; i += kThreads) {
    q[i] = to_float(qkv[static_cast<std::size_t>(head) * d + i]);
    if (head % group != 0) continue;
    cache_k[position * ld + kv_at + i] = new_k[i];
    cache_v[position * ld + kv_at + i] = new_v[i];
  }
  __syncthreads();  // q is complete

  // 1. Scores, one warp per key; every lane of a warp gets the same maximum of its keys.
  float high = -INFINITY;
  for (unsigned i = warp; i < keys; i += kThreads / kWarp) {
    const T* k = first + i == position ? new_k : cache_k + (first + i) * ld + kv_at;
    float dot = 0;
    for (unsigned x = lane; x < d; x += kWarp) dot = fmaf(q[x], to_float(k[x]), dot);
    dot = warp_sum(dot) * scale;
    high = fmaxf(high, dot);
    if (lane == 0) score[i] = dot;
  }
  // 2. Softmax over all keys. The barriers of block_max() also make the scores in global memory visible to
  // the block.
  high = block_max(high);
  float total = 0;
  for (unsigned i = threadIdx.x; i < keys; i += kThreads) {
    score[i] = expf(score[i] - high);
    total += score[i];
  }
  total = block_sum(total);

  // 3. Weighted sum of the values. Thread (part, element) adds the keys part, part + parts, ...; then the
  // parts are added in order. block_sum() was a barrier after the weights were written to `score`.
  const unsigned parts = kThreads / d, mine = threadIdx.x / d, element = threadIdx.x % d;
  float sum = 0;
  if (mine < parts)
    for (unsigned i = mine; i < keys; i += parts) {
      const T* v = first + i == position ? new_v : cache_v + (first + i) * ld + kv_at;
      sum = fmaf(score[i], to_float(v[element]), sum);
    }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= d) return;
  for (unsigned p = 1; p < parts; ++p) sum += part[p * d + threadIdx.x];
  o[static_cast<std::size_t>(head) * d + threadIdx.x] = from_float<T>(sum / total);
}

}  // namespace

template <class T>
cudaError_t attention_step(cudaStream_t stream, const AttentionShape& s, std::uint32_t position, const T* qkv,
                           T* cache_k, T* cache_v, float* scores, T* o) {
  if (s.d > kMaxHeadDim) return cudaErrorInvalidValue;
  return launch(step_kernel<T>, dim3(s.heads), dim3(kThreads), 0, stream, s,
                1.f / std::sqrt(static_cast<float>(s.d)), position, qkv, cache_k, cache_v, scores, o);
}
template cudaError_t attention_step(cudaStream_t, const AttentionShape&, std::uint32_t, const float*, float*,
                                    float*, float*, float*);
template cudaError_t attention_step(cudaStream_t, const AttentionShape&, std::uint32_t, const Bf16*, Bf16*,
                                    Bf16*, float*, Bf16*);

}  // namespace trainhost::cuda
