// Shared by the attention kernels: addresses of the heads in a row of qkv, the mask of scores, and
// the two implementations that attention.cu selects from: `plain` (any head size, f32 FMA) and `mma` (tensor
// cores, the head sizes of mma_supports()). Contains no kernel.
#pragma once
#include "plugins/cuda/kernels/device_functions.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"
#include "plugins/cuda/kernels/launch.hpp"

namespace trainhost::cuda::attention_detail {

/// Element at which row `row` starts, for rows of `ld` elements. Both factors have 32 bits, so the product is
/// a single widening multiplication.
__device__ __forceinline__ std::size_t row_at(int row, unsigned ld) {
  return static_cast<std::size_t>(static_cast<unsigned>(row)) * ld;
}

/// Addresses of one query head of one sequence and of its key/value head. Consecutive rows of q, k and v are
/// ld elements apart, of o o_ld elements.
template <class T>
struct HeadView {
  const T *q, *k, *v;
  unsigned ld, o_ld;
  std::size_t o_at;    // index of row 0 of this head in o and in its gradient
  std::size_t lse_at;  // index of row 0 of this head in lse and delta; rows are `heads` apart
};
template <class T>
__device__ __forceinline__ HeadView<T> head_view(const AttentionShape& s, const T* qkv, unsigned sequence,
                                                 unsigned head) {
  const std::size_t row0 = static_cast<std::size_t>(sequence) * s.seq;
  const unsigned kv = head / (s.heads / s.kv_heads);
  HeadView<T> view;
  view.ld = (s.heads + 2 * s.kv_heads) * s.d, view.o_ld = s.heads * s.d;
  view.q = qkv + row0 * view.ld + static_cast<std::size_t>(head) * s.d;
  view.k = qkv + row0 * view.ld + static_cast<std::size_t>(s.heads + kv) * s.d;
  view.v = view.k + static_cast<std::size_t>(s.kv_heads) * s.d;
  view.o_at = row0 * view.o_ld + static_cast<std::size_t>(head) * s.d;
  view.lse_at = row0 * s.heads + head;
  return view;
}

/// The mask of one sequence: causal, within the window if there is one, and within documents if the sequence
/// has several. Queries and keys are positions in the sequence; a query behind its end counts as the last
/// one.
struct Mask {
  const AttentionShape& s;
  unsigned sequence;

  /// The first key of the query's document. Only if s.starts is set.
  __device__ __forceinline__ int start(int query) const {
    const int last = static_cast<int>(s.seq) - 1;
    return s.starts[static_cast<std::size_t>(sequence) * s.seq +
                    static_cast<unsigned>(query < last ? query : last)];
  }
  __device__ __forceinline__ bool visible(int query, int key) const {
    return key <= query && (s.window == 0 || query - key < static_cast<int>(s.window)) &&
           (s.starts == nullptr || key >= start(query));
  }
  /// The first key that any of the queries from query0 on attends to. A tile of queries [query0, query1)
  /// attends to keys in [first_key, min(query1, seq)).
  __device__ __forceinline__ int first_key(int query0) const {
    const int window = static_cast<int>(s.window);
    const int first = window != 0 && query0 >= window ? query0 - window + 1 : 0;
    if (s.starts == nullptr) return first;
    const int of_document = start(query0);
    return of_document > first ? of_document : first;
  }
  /// End of the queries that attend to any of the keys [key0, key1): they are [key0, end_query).
  __device__ __forceinline__ int end_query(int key1) const {
    const int seq = static_cast<int>(s.seq), window = static_cast<int>(s.window);
    int end = window != 0 && window < seq - key1 + 1 ? key1 + window - 1 : seq;
    if (s.starts == nullptr) return end;
    // Starts do not decrease: a binary search for the first document behind the keys.
    int from = key1;
    while (from < end) {
      const int middle = (from + end) / 2;
      if (start(middle) < key1)
        from = middle + 1;
      else
        end = middle;
    }
    return from;
  }
  /// True if a query of [query0, ...) can attend to a key below key1: false lets a warp skip the tile.
  __device__ __forceinline__ bool reaches(int query0, int key1) const {
    return (s.window == 0 || query0 - (key1 - 1) < static_cast<int>(s.window)) &&
           (s.starts == nullptr || start(query0) < key1);
  }
  /// True if every query of [query0, query1) attends to every key of [key0, key1): the tile of scores needs
  /// no mask.
  __device__ __forceinline__ bool all_visible(int query0, int query1, int key0, int key1) const {
    return key1 - 1 <= query0 && (s.window == 0 || query1 - 1 - key0 < static_cast<int>(s.window)) &&
           (s.starts == nullptr || start(query1 - 1) <= key0);
  }
};

/// Number of tiles that cover n elements.
inline unsigned tiles(unsigned n, unsigned tile) { return (n + tile - 1) / tile; }

template <class T>
cudaError_t plain_forward(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse);
/// delta[r, h] = sum of d_o * o over a head: the term that the gradient of softmax subtracts. The plain
/// version reads it, the other one writes it.
template <class T>
cudaError_t plain_backward(cudaStream_t stream, const AttentionShape& s, const T* d_o, const float* lse,
                           const float* delta, const T* qkv, T* dqkv);

/// Head sizes that the tensor-core kernels support: more in bf16, which needs half the shared memory.
template <class T>
bool mma_supports(std::uint32_t d) {
  return d == 32 || d == 64 || d == 96 || d == 128 || (sizeof(T) == 2 && (d == 48 || d == 80 || d == 256));
}
template <class T>  // float: operands are converted to TF32
cudaError_t mma_forward(cudaStream_t stream, const AttentionShape& s, const T* qkv, T* o, float* lse);
template <class T>
cudaError_t mma_backward(cudaStream_t stream, const AttentionShape& s, const T* d_o, const T* o,
                         const float* lse, const T* qkv, float* delta, T* dqkv);

/// The same with warpgroup products of compute capability 9.0, for bf16.
inline bool wgmma_supports(std::uint32_t d) { return d == 64 || d == 128; }
cudaError_t wgmma_forward(cudaStream_t stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse);
cudaError_t wgmma_backward(cudaStream_t stream, const AttentionShape& s, const Bf16* d_o, const Bf16* o,
                           const float* lse, const Bf16* qkv, float* delta, Bf16* dqkv);

}  // namespace trainhost::cuda::attention_detail
