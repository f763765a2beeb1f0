// The twenty-one kernels of a trainer, each with a struct of pointers and shapes as its argument. A class of
// kernels has one function per kernel, named in the comment of each struct. A class that inherits
// ReferenceKernels (reference_kernels.hpp) has all of them and replaces them one by one.
//
// Rules for all kernels. Matrices are row-major and packed. Pointers are aligned to the trainer's alignment,
// except those into a chunk of logits or hidden states. Outputs and scratch have undefined contents before
// the call; all of an output must be written. Operands do not overlap unless a comment says so. A pointer is
// null only if its comment says "may be null". The same arguments must give the same bits, with any number of
// threads; this is tested by kernel_check.hpp. `overwrite` of a gradient: = instead of +=, in the first
// micro-batch of an update.
#pragma once
#include <cstdint>

namespace trainhost::executor {

/// void embed(const Embed&): x[r] = table[ids[r]].
struct Embed {
  std::uint64_t rows, vocab, hidden;
  const float* table;       // [vocab, hidden]
  const std::int32_t* ids;  // [rows], each below vocab
  float* x;                 // [rows, hidden]
};
/// void embed_bwd(const EmbedBwd&): grad[ids[r]] += dx[r]; an id may occur more than once.
struct EmbedBwd {
  std::uint64_t rows, vocab, hidden;
  const float* dx;          // [rows, hidden]
  const std::int32_t* ids;  // [rows]
  float* grad;              // [vocab, hidden]
  bool overwrite;           // then rows of ids that do not occur become 0
};

/// void rms_norm(const RmsNorm&): y[r] = x[r] * rstd[r] * w, rstd[r] = 1/sqrt(mean(x[r]^2) + eps).
struct RmsNorm {
  std::uint64_t rows, cols;
  const float *x, *w;  // [rows, cols], [cols]
  float eps;
  float *y, *rstd;  // [rows, cols], [rows]
};
/// void rms_norm_bwd(const RmsNormBwd&): with n = x*rstd and g = dy*w, dx = (or +=) rstd*(g - n*mean(g*n)),
/// grad_w += sum over rows of dy*n.
struct RmsNormBwd {
  std::uint64_t rows, cols;
  const float *dy, *x, *rstd, *w;  // [rows, cols], [rows, cols], [rows], [cols]
  float* dx;                       // [rows, cols]
  bool add;                        // to dx
  float* grad_w;                   // [cols]
  bool overwrite;                  // grad_w
  float* partials;                 // scratch [slots, cols]: partial sums, for kernels that divide the rows
  std::uint32_t slots;
};

/// void linear(const Linear&): y = x w^T (+ bias) (+ residual). rows is 1 while tokens are generated.
struct Linear {
  std::uint64_t rows, outputs, inputs;
  const float *x, *w;            // [rows, inputs], [outputs, inputs]
  const float *bias, *residual;  // [outputs], [rows, outputs]; each may be null
  float* y;                      // [rows, outputs]
};
/// void linear_dx(const LinearDx&): dx = dy w.
struct LinearDx {
  std::uint64_t rows, outputs, inputs;
  const float *dy, *w;  // [rows, outputs], [outputs, inputs]
  float* dx;            // [rows, inputs]
};
/// void linear_dw(const LinearDw&): grad_w += dy^T x, grad_b += sum over rows of dy.
struct LinearDw {
  std::uint64_t rows, outputs, inputs;
  const float *dy, *x;     // [rows, outputs], [rows, inputs]
  float *grad_w, *grad_b;  // [outputs, inputs], [outputs]; grad_b may be null
  bool overwrite;          // both
};

/// A row holds: q heads | k heads | v heads, d floats each. heads / kv_heads consecutive q heads share
/// one k and v head.
struct Heads {
  std::uint64_t heads, kv_heads, d;
  std::uint64_t width() const { return (heads + 2 * kv_heads) * d; }
  std::uint64_t turned() const { return heads + kv_heads; }  // q and k
  std::uint64_t shared_by() const { return heads / kv_heads; }
};
/// void qk_norm(const QkNorm&): RMSNorm of every q and k head of a row, in place; the input is saved in pre.
struct QkNorm {
  std::uint64_t rows;
  Heads heads;
  const float *wq, *wk;  // [d] each
  float eps;
  float* qkv;         // [rows, width], q and k change
  float *pre, *rstd;  // [rows, turned*d]: q and k before the norm; [rows, turned]
};
/// void qk_norm_bwd(const QkNormBwd&): its gradient, in place; grad_wq and grad_wk as in RmsNormBwd.
struct QkNormBwd {
  std::uint64_t rows;
  Heads heads;
  const float *pre, *rstd, *wq, *wk;
  float* d_qkv;              // [rows, width], q and k change
  float *grad_wq, *grad_wk;  // [d] each
  bool overwrite;            // both
  float* partials;           // scratch [slots, 2*d]
  std::uint32_t slots;
};
/// void rope(const Rope&): rotates the pair (i, i + d/2) of every q and k head by the angle of its position,
/// in place.
struct Rope {
  std::uint64_t rows, seq, first;  // row r has position (first + r) % seq
  Heads heads;
  const float* table;  // [seq, d]: cos[d/2] | sin[d/2]
  float sign;          // -1: the inverse rotation, for the gradient
  float* qkv;          // [rows, width]
};

/// void attention(const Attention&): o = softmax(q k^T / sqrt(d)) v by head; a query sees itself and keys
/// before it in its own sequence, at most `window` of them in all. lse: log of the sum of exp of a query's
/// scores, for the gradient.
struct Attention {
  std::uint64_t sequences, seq;
  Heads heads;
  std::uint64_t window;                   // 0 = no limit
  const float* qkv;                       // [sequences*seq, width]
  float *o, *lse;                         // [sequences*seq, heads*d], [sequences*seq, heads]
  float* scratch;                         // [threads, scratch_floats]
  std::uint64_t threads, scratch_floats;  // tile_q * (2*tile_k + d + 2), from the traits
  // [sequences*seq]: a query sees no key before starts[query], the index in its sequence of the first token
  // of its document. Null: a sequence is one document. Set only for a class with document_mask (trainer.hpp).
  const std::int32_t* starts = nullptr;
};
/// void attention_bwd(const AttentionBwd&).
struct AttentionBwd {
  std::uint64_t sequences, seq;
  Heads heads;
  std::uint64_t window;
  const float *d_o, *o, *lse, *qkv;
  float* d_qkv;  // [sequences*seq, width], written completely
  float* scratch;
  std::uint64_t threads, scratch_floats;
  const std::int32_t* starts = nullptr;  // as in Attention
};
/// void attention_step(const AttentionStep&): one token at `position`; its k and v are appended to the caches
/// first.
struct AttentionStep {
  std::uint64_t position, seq;
  Heads heads;
  std::uint64_t window;
  const float* qkv;          // [width]
  float *cache_k, *cache_v;  // [seq, kv_heads*d]
  float* scratch;            // [heads, seq]
  float* o;                  // [heads*d]
};

/// void swiglu(const SwiGlu&): act = silu(gate) * up.
struct SwiGlu {
  std::uint64_t rows, cols;
  const float* gate_up;  // [rows, 2*cols]: gate | up
  float* act;            // [rows, cols]
};
/// void swiglu_bwd(const SwiGluBwd&): gate_up becomes its own gradient.
struct SwiGluBwd {
  std::uint64_t rows, cols;
  const float* d_act;  // [rows, cols]
  float* gate_up;      // [rows, 2*cols]
};

/// double cross_entropy(const CrossEntropy&): the sum of -log softmax(logits[r])[targets[r]] over counted
/// rows.
struct CrossEntropy {
  std::uint64_t rows, vocab;
  float* logits;  // [rows, vocab]; become (softmax - onehot) * scale if gradient is set, else undefined
  const std::int32_t* targets;  // [rows]; -100: the row is not counted and its gradient is 0
  float scale;
  bool gradient;
};

/// double sum_squares(const SumSquares&), in double.
struct SumSquares {
  std::uint64_t count;
  const float* x;
};
/// void adamw(const AdamW&): Kingma & Ba 2015 with decoupled decay. With g = grad*grad_scale:
/// m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g*g; w = decay*w - step_size * m /
/// (sqrt(v)*inv_sqrt_bias2 + eps).
struct AdamW {
  std::uint64_t count;
  const float* grad;
  float *w, *m, *v;
  float grad_scale;  // clip factor
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay;           // 1 - lr*weight_decay, or 1
  float step_size;       // lr / (1 - beta1^t)
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};
/// void sgd(const Sgd&): w = decay*w - lr*grad*grad_scale.
struct Sgd {
  std::uint64_t count;
  const float* grad;
  float* w;
  float grad_scale, decay, lr;
};
/// void sgd_momentum(const SgdMomentum&): m = momentum*m + grad*grad_scale; w = decay*w - lr*m.
struct SgdMomentum {
  std::uint64_t count;
  const float* grad;
  float *w, *m;
  float grad_scale, momentum, decay, lr;
};
/// void lion(const Lion&): Chen et al. 2023. With g = grad*grad_scale: w = decay*w - lr*sign(beta1*m +
/// (1-beta1)*g), where sign(0) = 0; then m = beta2*m + (1-beta2)*g. A class may lack it: that of the
/// reference is used then.
struct Lion {
  std::uint64_t count;
  const float* grad;
  float *w, *m;
  float grad_scale;  // clip factor
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay, lr;
};

}  // namespace trainhost::executor

/// The list of kernels, for code that treats all of them alike: X(function, arguments, result).
#define TRAINHOST_KERNELS(X)                                                                              \
  X(embed, Embed, void)                                                                                   \
  X(embed_bwd, EmbedBwd, void)                                                                            \
  X(rms_norm, RmsNorm, void)                                                                              \
  X(rms_norm_bwd, RmsNormBwd, void)                                                                       \
  X(linear, Linear, void)                                                                                 \
  X(linear_dx, LinearDx, void)                                                                            \
  X(linear_dw, LinearDw, void)                                                                            \
  X(qk_norm, QkNorm, void)                                                                                \
  X(qk_norm_bwd, QkNormBwd, void)                                                                         \
  X(rope, Rope, void) X(attention, Attention, void) X(attention_bwd, AttentionBwd, void)                  \
      X(attention_step, AttentionStep, void) X(swiglu, SwiGlu, void) X(swiglu_bwd, SwiGluBwd, void)       \
          X(cross_entropy, CrossEntropy, double) X(sum_squares, SumSquares, double) X(adamw, AdamW, void) \
              X(sgd, Sgd, void) X(sgd_momentum, SgdMomentum, void) X(lion, Lion, void)
