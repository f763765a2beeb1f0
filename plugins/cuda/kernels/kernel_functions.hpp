// Every device operation that is no matrix product, as one function that queues it on a stream. Plain device
// pointers, rows and columns, row-major; T is the storage type of the run, float or __nv_bfloat16, arithmetic
// is f32 (sums of losses and of squares f64). Nothing here allocates, waits, or knows of plans. The bits of a
// result depend on the arguments alone: sums over rows go through a fixed number of slots, added in order; no
// atomics on floating point. Returns what the launch returned; work itself is asynchronous.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trainhost::cuda {

using Bf16 = __nv_bfloat16;

// ---- conversion
// ----------------------------------------------------------------------------------------------------

/// to[n] = from[n], rounded to nearest even.
cudaError_t to_bf16(cudaStream_t stream, std::uint64_t n, const float* from, Bf16* to);

// ---- embedding (embedding.cu)
// ----------------------------------------------------------------------------------------

/// x[r, h] = table[ids[r], h].  table: [V, h]. ids are in range: the host has checked them.
template <class T>
cudaError_t embed(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                  const T* table, T* x);

/// grad[ids[r], h] += dx[r, h], rows with one id added in the order of r. order[rows]: the row numbers sorted
/// by id, stable.
template <class T>
cudaError_t embed_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                      const std::int32_t* order, const T* dx, float* grad);

// ---- norms (norm*.cu)
// -----------------------------------------------------------------------------------------------

/// y[r] = x[r] * rstd[r] * w, rstd = 1/sqrt(mean(x^2) + eps).  x, y: [rows, n].
template <class T>
cudaError_t rms_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w,
                     float eps, T* y, float* rstd);

/// dx (= or, when add, +=) the gradient through the norm; partials[slots, n] = sums of dy * x * rstd over the
/// rows of each slot (slot s: rows [rows*s/slots, rows*(s+1)/slots)). Every entry of partials is written.
template <class T>
cudaError_t rms_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy, const T* x,
                         const float* rstd, const T* w, bool add, T* dx, std::uint32_t slots,
                         float* partials);

/// grad[n] (= when overwrite, else +=) partials[0] + partials[1] + ... in that order. Rows of partials are ld
/// floats apart.
cudaError_t sum_slots(cudaStream_t stream, std::uint32_t slots, std::uint32_t n, std::uint32_t ld,
                      const float* partials, bool overwrite, float* grad);

/// Each of the heads + kv_heads heads of d elements at the start of a row of qkv (rows of (heads +
/// 2*kv_heads)*d) is normalised over its own d, with wq[d] or wk[d]. pre[rows, (heads+kv_heads)*d] keeps what
/// was there; rstd[rows, heads+kv_heads].
template <class T>
cudaError_t qk_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                    std::uint32_t d, T* qkv, const T* wq, const T* wk, float eps, T* pre, float* rstd);

/// dqkv's q and k parts become gradients of what qk_norm read; partials[slots, 2d] = sums for wq | wk, as in
/// rms_norm_bwd.
template <class T>
cudaError_t qk_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                        std::uint32_t d, T* dqkv, const T* pre, const float* rstd, const T* wq, const T* wk,
                        std::uint32_t slots, float* partials);

// ---- element by element (elementwise.cu)
// ------------------------------------------------------------------------------

/// Turns `heads` heads of d at the start of each row of ld elements: (a, b) = elements i and i + d/2 of a
/// head become (a cos - sign b sin, b cos + sign a sin), with table[pos] = cos[d/2] | sin[d/2], pos =
/// (first_pos + r) % period.
template <class T>
cudaError_t rope(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t d,
                 std::uint32_t ld, T* x, const float* table, std::uint64_t first_pos, std::uint64_t period,
                 float sign);

/// a[r, i] = silu(gu[r, i]) * gu[r, n + i].  gu: [rows, 2n].
template <class T>
cudaError_t swiglu(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* gu, T* a);

/// gu becomes its own gradient, from da[rows, n].
template <class T>
cudaError_t swiglu_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* da, T* gu);

/// partials[slots, n] = sums of x[rows, n] over the rows of each slot (for the gradients of biases).
template <class T>
cudaError_t column_sums(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x,
                        std::uint32_t slots, float* partials);

// ---- loss (loss.cu)
// ---------------------------------------------------------------------------------------------------

/// losses[r] = -log softmax(logits[r])[targets[r]], 0 where the target is -100. With scale (one double on the
/// device) a row of logits becomes (softmax - onehot) * *scale, zeros where the target is -100; without
/// (null) it is left alone. One pass over the row for maximum and sum, one for the gradient.
template <class T>
cudaError_t cross_entropy(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                          const std::int32_t* targets, const double* scale, float* losses);

/// *sum += losses[0] + ... in a fixed order, in f64. One block.
cudaError_t add_losses(cudaStream_t stream, std::uint64_t rows, const float* losses, double* sum);

// ---- update (update.cu)
// ------------------------------------------------------------------------------------------------- The
// constants and results of a step are 16 doubles on the device: the program's "scalars" buffer
// (step::Scalar). The host writes losses = norm2 = 0, the loss scale, lr and the bias corrections before a
// step; kernels leave loss sum, norm2, clip factor, gradient norm, and applied = 1, or 0 when loss or norm is
// not finite: then no weight and no moment changes.

/// One parameter in a launch over many. Arrays of `elements`; 16-byte aligned.
template <class T>
struct ParamPiece {
  std::uint64_t elements;
  const float* grad;
  T* weight;      // what the products read
  float* master;  // f32 copy that the update works on; null where weight itself is f32
  float *m, *v;   // null where the optimizer has none
  bool decay;     // weight decay applies
};
struct GradPiece {
  std::uint64_t elements;
  const float* grad;
};
inline constexpr std::uint32_t kMaxPieces = 32;  // of a launch: they travel by value with it
template <class P>
struct Pieces {
  std::uint32_t count;
  P piece[kMaxPieces];
};

/// partials[s] (= when first, else +=) the sum in f64 of g^2 over slot s's share of all pieces; shares depend
/// on sizes alone.
cudaError_t grad_squares(cudaStream_t stream, const Pieces<GradPiece>& pieces, std::uint32_t slots,
                         bool first, double* partials);

/// norm2 += partials in order; gradient norm = sqrt(norm2); clip factor = min(1, clip_norm / (norm + 1e-6)),
/// or 1 when clip_norm is 0; applied as said above. One block.
cudaError_t finish_norm(cudaStream_t stream, std::uint32_t slots, const double* partials, double clip_norm,
                        double* scalars);

struct AdamW {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;  // 1 - beta in double, then rounded
};
/// g' = g * clip; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; w = w * decay - step_size * m / (sqrt(v) *
/// inv_sqrt_bias2 + eps) with decay = scalars.decay_factor (1 - lr * weight_decay) where the piece has it,
/// else 1. On the master copy where there is one; weight then gets it rounded. Nothing at all when applied is
/// 0.
template <class T>
cudaError_t adamw(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const AdamW& c,
                  const double* scalars);

/// w = w * decay - lr * g'
template <class T>
cudaError_t sgd(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const double* scalars);

/// m = momentum * m + g'; w = w * decay - lr * m
template <class T>
cudaError_t sgd_momentum(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, float momentum,
                         const double* scalars);

// ---- attention (attention_*.cu)
// -------------------------------------------------------------------------------------------

/// qkv: [sequences * seq, (heads + 2*kv_heads) * d], a row is q heads | k heads | v heads. Causal, each
/// sequence by itself; window: keys a query sees, itself included, 0 = all before it. Query head h uses key
/// head h / (heads / kv_heads). Scores are scaled by 1/sqrt(d).
struct AttentionShape {
  std::uint32_t sequences, seq, heads, kv_heads, d, window;
  std::uint32_t width() const { return (heads + 2 * kv_heads) * d; }
};
/// How products of f32 operands are computed. bf16 operands: always on the tensor cores, sums in f32.
enum class F32Products { kExact, kTf32 };

/// o[M, heads*d], lse[M, heads] = log of the sum of exp(scaled scores), f32.
template <class T>
cudaError_t attention(cudaStream_t stream, const AttentionShape& s, F32Products f32, const T* qkv, T* o,
                      float* lse);

/// dqkv[M, width]: every entry is written. delta[M, heads]: scratch, f32. No atomics: sums over query heads
/// of a group and over blocks are made by one block in a fixed order.
template <class T>
cudaError_t attention_bwd(cudaStream_t stream, const AttentionShape& s, F32Products f32, const T* d_o,
                          const T* o, const float* lse, const T* qkv, float* delta, T* dqkv);

/// One generated token at `position`: k and v of qkv[1, width] go to rows `position` of the caches [S,
/// kv_heads*d], and o[1, heads*d] attends to what `window` leaves of rows 0..position. scores: scratch f32
/// [heads, S].
template <class T>
cudaError_t attention_step(cudaStream_t stream, const AttentionShape& s, std::uint32_t position, const T* qkv,
                           T* cache_k, T* cache_v, float* scores, T* o);

// Every template above is instantiated for float and Bf16 in its .cu file, and for nothing else.

}  // namespace trainhost::cuda
