// Every device operation that is not a matrix product, as a function that queues it on a stream. Arguments
// are device pointers to row-major arrays; T is the storage type, float or __nv_bfloat16; arithmetic is f32
// (f64 for sums of losses and of squares). No function allocates or waits; each returns the status of its
// launch. The bits of a result depend only on the arguments. Callers: plugins/cuda/engine/ops_*.cpp.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trainhost::cuda {

using Bf16 = __nv_bfloat16;

// ---- conversion (convert.cu)

/// to[n] = from[n], rounded to nearest, ties to even.
cudaError_t to_bf16(cudaStream_t stream, std::uint64_t n, const float* from, Bf16* to);

// ---- embedding (embedding.cu)

/// x[r, h] = table[ids[r], h].  table: [V, h]. ids must be in range; Instance::step() checks them.
template <class T>
cudaError_t embed(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                  const T* table, T* x);

/// grad[ids[r], h] += dx[r, h]; rows with the same id are added in the order of r. order[rows]: the row
/// numbers, sorted by id with a stable sort (StepInputs).
template <class T>
cudaError_t embed_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                      const std::int32_t* order, const T* dx, float* grad);

// ---- norms (norm*.cu)

/// y[r] = x[r] * rstd[r] * w, rstd = 1/sqrt(mean(x^2) + eps).  x, y: [rows, n].
template <class T>
cudaError_t rms_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x, const T* w,
                     float eps, T* y, float* rstd);

/// dx = the gradient through the norm, or dx += if `add`. partials[slots, n] = sums of dy * x * rstd, the
/// gradient of w, over the rows of each slot (slot s: rows [rows*s/slots, rows*(s+1)/slots)). Every element
/// of partials is written.
template <class T>
cudaError_t rms_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* dy, const T* x,
                         const float* rstd, const T* w, bool add, T* dx, std::uint32_t slots,
                         float* partials);

/// grad[n] = partials[0] + partials[1] + ... in this order, or grad += if not `overwrite`. Rows of partials
/// are ld floats apart.
cudaError_t sum_slots(cudaStream_t stream, std::uint32_t slots, std::uint32_t n, std::uint32_t ld,
                      const float* partials, bool overwrite, float* grad);

/// RMS norm of each q and k head over its own d elements, in place, with weights wq[d] or wk[d]. qkv: [rows,
/// (heads + 2*kv_heads) * d], q heads | k heads | v heads. pre[rows, (heads+kv_heads)*d] receives the input
/// of the norm, rstd[rows, heads+kv_heads] its scale. cudaErrorInvalidValue if d > 512 (f32, or unaligned
/// bf16) or 1024 (bf16).
template <class T>
cudaError_t qk_norm(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                    std::uint32_t d, T* qkv, const T* wq, const T* wk, float eps, T* pre, float* rstd);

/// Replaces the q and k parts of dqkv by the gradients of the input of qk_norm. partials[slots, 2d] =
/// gradients of wq | wk, by slot as in rms_norm_bwd.
template <class T>
cudaError_t qk_norm_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t kv_heads,
                        std::uint32_t d, T* dqkv, const T* pre, const float* rstd, const T* wq, const T* wk,
                        std::uint32_t slots, float* partials);

// ---- elementwise operations (elementwise.cu)

/// Rotates `heads` heads of d elements at the start of each row of ld elements: elements (a, b) = (i, i +
/// d/2) of a head become (a cos - sign b sin, b cos + sign a sin). table[pos] = cos[d/2] | sin[d/2], pos =
/// (first_pos + r) % period. sign = 1: rotation; -1: its inverse, which is also its gradient.
template <class T>
cudaError_t rope(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t d,
                 std::uint32_t ld, T* x, const float* table, std::uint64_t first_pos, std::uint64_t period,
                 float sign);

/// a[r, i] = silu(gu[r, i]) * gu[r, n + i].  gu: [rows, 2n].
template <class T>
cudaError_t swiglu(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* gu, T* a);

/// Replaces gu by its gradient, computed from da[rows, n].
template <class T>
cudaError_t swiglu_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* da, T* gu);

/// partials[slots, n] = sums of x[rows, n] over the rows of each slot: the gradient of a bias before
/// sum_slots().
template <class T>
cudaError_t column_sums(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x,
                        std::uint32_t slots, float* partials);

// ---- loss (loss.cu)

/// losses[r] = -log softmax(logits[r])[targets[r]], 0 if the target is -100. With `scale` (a double in device
/// memory) the row of logits is replaced by its gradient (softmax - onehot) * *scale, zeros if the target is
/// -100; with a null scale the logits are not changed. One pass over a row for maximum and sum, a second one
/// for the gradient.
template <class T>
cudaError_t cross_entropy(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                          const std::int32_t* targets, const double* scale, float* losses);

/// *sum += losses[0] + ... in f64 and in a fixed order, by one block.
cudaError_t add_losses(cudaStream_t stream, std::uint64_t rows, const float* losses, double* sum);

// ---- update (update.cu)
// Constants and results of a step are 16 doubles in device memory, the "scalars" buffer of the program,
// indexed by step::Scalar. Before a step the host writes the loss scale, lr and the bias corrections, and
// sets the sums to 0. Kernels write loss sum, squared norm, clip factor, gradient norm and kApplied: 1, or 0
// if loss or norm is not finite; then the optimizer kernels change nothing.

/// One parameter of a launch: arrays of `elements` elements, 16-byte aligned.
template <class T>
struct ParamPiece {
  std::uint64_t elements;
  const float* grad;
  T* weight;      // read by the products
  float* master;  // f32 master copy that the update changes; null if the weight itself is f32
  float *m, *v;   // moments; null if the optimizer has none
  bool decay;     // weight decay applies
};
struct GradPiece {
  std::uint64_t elements;
  const float* grad;
};
/// Parameters per launch. They are passed by value as a kernel argument, which may have at most 4 KiB.
inline constexpr std::uint32_t kMaxPieces = 32;
template <class P>
struct Pieces {
  std::uint32_t count;
  P piece[kMaxPieces];
};

/// partials[s] = sum in f64 of g^2 over the part of all pieces that slot s has, or += if not `first`. The
/// parts depend only on the sizes.
cudaError_t grad_squares(cudaStream_t stream, const Pieces<GradPiece>& pieces, std::uint32_t slots,
                         bool first, double* partials);

/// kNorm2 += partials in order; kGradNorm = sqrt(kNorm2); kClipFactor = min(1, clip_norm / (norm + 1e-6)), or
/// 1 if clip_norm is 0; kApplied as described above. By one block.
cudaError_t finish_norm(cudaStream_t stream, std::uint32_t slots, const double* partials, double clip_norm,
                        double* scalars);

struct AdamW {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;  // 1 - beta computed in double, then rounded
};
/// g' = g * clip; m = b1 m + (1-b1) g'; v = b2 v + (1-b2) g'^2; w = w * decay - step_size * m / (sqrt(v) *
/// inv_sqrt_bias2 + eps), where decay = kDecayFactor (1 - lr * weight_decay) if the piece has weight decay,
/// else 1. w is the master copy if there is one, and `weight` receives it rounded. Changes nothing if
/// kApplied is 0; so do the other optimizers.
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

/// qkv: [sequences * seq, (heads + 2*kv_heads) * d]; a row is q heads | k heads | v heads. Causal attention
/// inside each sequence. window: number of keys per query, its own position included; 0 = all up to it. Query
/// head h uses key/value head h / (heads / kv_heads). Scores are scaled by 1/sqrt(d). d is at most 256.
/// starts: [sequences * seq], for each query the first key of its document, which does not decrease within a
/// sequence; null: a sequence is one document.
struct AttentionShape {
  std::uint32_t sequences, seq, heads, kv_heads, d, window;
  const std::int32_t* starts = nullptr;
  std::uint32_t width() const { return (heads + 2 * kv_heads) * d; }
};
/// How products of f32 operands are computed: in f32, or on the tensor cores in TF32. Products of bf16
/// operands use the tensor cores where the head size permits, with sums in f32.
enum class F32Products { kExact, kTf32 };

/// o[M, heads*d]; lse[M, heads], f32 = log of the sum of exp(scaled scores).
template <class T>
cudaError_t attention(cudaStream_t stream, const AttentionShape& s, F32Products f32, const T* qkv, T* o,
                      float* lse);

/// dqkv[M, width]: every element is written. delta[M, heads]: scratch, f32. Sums over the query heads of a
/// group are computed by one block in a fixed order.
template <class T>
cudaError_t attention_bwd(cudaStream_t stream, const AttentionShape& s, F32Products f32, const T* d_o,
                          const T* o, const float* lse, const T* qkv, float* delta, T* dqkv);

/// Attention of one generated token: copies k and v of qkv[1, width] to row `position` of the caches [S,
/// kv_heads*d], and o[1, heads*d] attends to the last `window` (0: all) of rows 0..position. scores: scratch
/// f32 [heads, S].
template <class T>
cudaError_t attention_step(cudaStream_t stream, const AttentionShape& s, std::uint32_t position, const T* qkv,
                           T* cache_k, T* cache_v, float* scores, T* o);

// The .cu files instantiate every template above for float and Bf16 only.

}  // namespace trainhost::cuda
