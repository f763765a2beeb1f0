// Operations on single tokens, and the gradients of their weights: embedding, norms, rotary positions,
// SwiGLU. Divides the rows into tasks and adds up sums over tokens; the loops are in kernels/rows_norm.hpp
// and kernels/rows_basic.hpp. Sums use a fixed number of slots, which are added in order, so the bits do not
// depend on the number of threads.
#include <algorithm>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// grad[n] (= or +=) the sum of `count` slots of n floats, `ld` floats apart, in order. Single-threaded: n is
// the width of a norm, too little work for all threads.
void combine_slots(OpContext& ctx, const float* slots, std::uint32_t count, std::uint64_t ld, std::uint64_t n,
                   bool overwrite, float* grad) {
  if (overwrite) std::memset(grad, 0, n * sizeof(float));
  for (std::uint32_t s = 0; s < count; ++s) ctx.kernels.add(n, slots + s * ld, grad);
}

}  // namespace

template <class T>
static void embed_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t h = ctx.buffer(op[embed::kTable]).cols;
  const T* table = ctx.at<T>(op[embed::kTable]);
  T* x = ctx.at<T>(op[embed::kX]);
  // Ids are in range: executor::validate_step() has checked those of the whole step. A TP rank has a part of
  // the table.
  const std::uint64_t vocab = ctx.buffer(op[embed::kTable]).rows, first_id = ctx.tensor_rank() * vocab;
  ctx.over_rows(ctx.step.rows, h, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r) {
      const std::uint64_t id = static_cast<std::uint64_t>(ctx.step.tokens[r]) - first_id;
      if (id < vocab)
        std::memcpy(x + r * h, table + id * h, h * sizeof(T));
      else
        std::memset(x + r * h, 0, h * sizeof(T));
    }
  });
}

void run_embed(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { embed_rows<decltype(stored)>(ctx, op); });
}

// Task t owns the vocabulary entries with id % tasks == t and adds their tokens in order, so that every row
// has one writer.
template <class T>
static void embed_bwd_rows(OpContext& ctx, const step::Op& op) {
  const step::Buffer& grad = ctx.buffer(op[embed_bwd::kGradTable]);
  const std::uint64_t h = grad.cols, vocab = grad.rows, first_id = ctx.tensor_rank() * vocab;
  const T* dx = ctx.at<T>(op[embed_bwd::kDx]);
  float* table = ctx.f32(op[embed_bwd::kGradTable]);
  const bool overwrite = ctx.overwrite(op);
  const std::uint32_t tasks =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(ctx.program.traits.slots, vocab));
  ctx.pool.run(tasks, [&](std::uint32_t t, std::uint32_t) {
    if (overwrite)
      for (std::uint64_t id = t; id < vocab; id += tasks) std::memset(table + id * h, 0, h * sizeof(float));
    // Every task reads all ids, which is cheap compared with adding rows of h floats.
    for (std::uint64_t r = 0; r < ctx.step.rows; ++r) {
      // Below the part of a TP rank it wraps around.
      const std::uint64_t id = static_cast<std::uint64_t>(ctx.step.tokens[r]) - first_id;
      if (id < vocab && id % tasks == t) ctx.rows<T>().add(h, dx + r * h, table + id * h);
    }
  });
}

void run_embed_bwd(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { embed_bwd_rows<decltype(stored)>(ctx, op); });
}

// y = sum (+ residual), n elements.
static void add_residual(OpContext& ctx, std::uint64_t n, const float* sum, const float* residual, float* y) {
  std::memcpy(y, sum, n * sizeof(float));
  if (residual) ctx.kernels.add(n, residual, y);
}
static void add_residual(OpContext& ctx, std::uint64_t n, const Bf16* sum, const Bf16* residual, Bf16* y) {
  constexpr std::uint64_t kTogether = 256;
  float wide[kTogether];
  for (std::uint64_t i = 0; i < n; i += kTogether) {
    const std::uint64_t count = std::min(kTogether, n - i);
    ctx.kernels.widen(count, sum + i, wide);
    ctx.kernels.store_sums(1, count, wide, count, 1.0f, nullptr, residual ? residual + i : nullptr, y + i,
                           count);
  }
}

template <class T>
static void take_own_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t h = ctx.buffer(op[take_rows::kY]).cols, own = op.rows;
  const T *sum = ctx.at<T>(op[take_rows::kSum]) + ctx.tensor_rank() * own * h,
          *residual = ctx.at<T>(op[take_rows::kResidual]);
  T* y = ctx.at<T>(op[take_rows::kY]);
  ctx.over_rows(own, h, [&](std::uint64_t first, std::uint64_t rows) {
    const std::uint64_t at = first * h;
    add_residual(ctx, rows * h, sum + at, residual ? residual + at : nullptr, y + at);
  });
}

void run_take_rows(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { take_own_rows<decltype(stored)>(ctx, op); });
}

template <class T>
static void rms_norm_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t h = ctx.buffer(op[rms_norm::kX]).cols;
  const T *x = ctx.at<T>(op[rms_norm::kX]), *w = ctx.at<T>(op[rms_norm::kWeight]);
  T* y = ctx.at<T>(op[rms_norm::kY]);
  float* rstd = ctx.f32(op[rms_norm::kRstd]);
  const float eps = static_cast<float>(ctx.model().norm_eps);
  ctx.over_rows(ctx.rows_of(op), h, [&](std::uint64_t r, std::uint64_t rows) {
    ctx.rows<T>().rms_norm(rows, h, x + r * h, w, eps, y + r * h, rstd + r);
  });
}

void run_rms_norm(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { rms_norm_rows<decltype(stored)>(ctx, op); });
}

template <class T>
static void rms_norm_bwd_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t h = ctx.buffer(op[rms_norm_bwd::kX]).cols;
  const T *dy = ctx.at<T>(op[rms_norm_bwd::kDy]), *x = ctx.at<T>(op[rms_norm_bwd::kX]),
          *w = ctx.at<T>(op[rms_norm_bwd::kWeight]);
  const float* rstd = ctx.f32(op[rms_norm_bwd::kRstd]);
  T* dx = ctx.at<T>(op[rms_norm_bwd::kDx]);
  float *grad_w = ctx.f32(op[rms_norm_bwd::kGradWeight]), *partial = ctx.f32(op[rms_norm_bwd::kPartials]);
  // Without kFreshDx, dx has the gradient of the residual path around the norm, and this one is added.
  const bool add = !(op.flags & step::kFreshDx);
  const std::uint32_t slots = static_cast<std::uint32_t>(ctx.buffer(op[rms_norm_bwd::kPartials]).rows);
  ctx.pool.run(slots, [&](std::uint32_t s, std::uint32_t) {
    // With fewer rows than slots some slots are empty: their sums become 0.
    Range r = part(ctx.rows_of(op), s, slots);
    std::memset(partial + s * h, 0, h * sizeof(float));
    ctx.rows<T>().rms_norm_bwd(r.size(), h, dy + r.begin * h, x + r.begin * h, rstd + r.begin, w,
                               dx + r.begin * h, add, partial + s * h);
  });
  if (grad_w)
    combine_slots(ctx, partial, slots, h, h, ctx.overwrite(op), grad_w);  // null: the weight is frozen
}

void run_rms_norm_bwd(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { rms_norm_bwd_rows<decltype(stored)>(ctx, op); });
}

// Each of the A+K heads of q and k is normalised over its own D elements; the input is saved in `pre` for the
// backward pass.
template <class T>
static void qk_norm_rows(OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const std::uint64_t d = m.head_dim, a = m.heads, k = m.kv_heads, ld = m.qkv_width(), n = (a + k) * d;
  T *qkv = ctx.at<T>(op[qk_norm::kQkv]), *pre = ctx.at<T>(op[qk_norm::kPre]);
  float* rstd = ctx.f32(op[qk_norm::kRstd]);
  const T *wq = ctx.at<T>(op[qk_norm::kQWeight]), *wk = ctx.at<T>(op[qk_norm::kKWeight]);
  const float eps = static_cast<float>(m.norm_eps);
  ctx.over_rows(ctx.step.rows, n, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r) {
      // A row is q heads | k heads | v heads; v is neither normalised nor saved.
      T *row = qkv + r * ld, *kept = pre + r * n;
      std::memcpy(kept, row, n * sizeof(T));
      // From the copy back to the row: the heads of one row are `a` or `k` rows of d floats to the kernel.
      ctx.rows<T>().rms_norm(a, d, kept, wq, eps, row, rstd + r * (a + k));
      ctx.rows<T>().rms_norm(k, d, kept + a * d, wk, eps, row + a * d, rstd + r * (a + k) + a);
    }
  });
}

void run_qk_norm(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { qk_norm_rows<decltype(stored)>(ctx, op); });
}

template <class T>
static void qk_norm_bwd_rows(OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  const std::uint64_t d = m.head_dim, a = m.heads, k = m.kv_heads, ld = m.qkv_width();
  T* dqkv = ctx.at<T>(op[qk_norm_bwd::kDQkv]);
  float* partial = ctx.f32(op[qk_norm_bwd::kPartials]);
  const T *pre = ctx.at<T>(op[qk_norm_bwd::kPre]), *wq = ctx.at<T>(op[qk_norm_bwd::kQWeight]),
          *wk = ctx.at<T>(op[qk_norm_bwd::kKWeight]);
  const float* rstd = ctx.f32(op[qk_norm_bwd::kRstd]);
  const std::uint32_t slots = ctx.program.traits.slots;
  ctx.pool.run(slots, [&](std::uint32_t s, std::uint32_t) {
    Range range = part(ctx.step.rows, s, slots);
    // A slot has 2D floats: the gradient of the weights of q, then of k.
    float *gq = partial + s * 2 * d, *gk = gq + d;
    std::memset(gq, 0, 2 * d * sizeof(float));
    for (std::uint64_t r = range.begin; r < range.end; ++r) {
      T* row = dqkv + r * ld;
      const T* kept = pre + r * (a + k) * d;
      const float* scale = rstd + r * (a + k);
      // In place: dx may be dy, because the kernel reads an element before it writes it.
      ctx.rows<T>().rms_norm_bwd(a, d, row, kept, scale, wq, row, false, gq);
      ctx.rows<T>().rms_norm_bwd(k, d, row + a * d, kept + a * d, scale + a, wk, row + a * d, false, gk);
    }
  });
  if (op[qk_norm_bwd::kGradQWeight] == step::kNoBuffer) return;  // the weights are frozen
  combine_slots(ctx, partial, slots, 2 * d, d, ctx.overwrite(op), ctx.f32(op[qk_norm_bwd::kGradQWeight]));
  combine_slots(ctx, partial + d, slots, 2 * d, d, ctx.overwrite(op), ctx.f32(op[qk_norm_bwd::kGradKWeight]));
}

void run_qk_norm_bwd(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { qk_norm_bwd_rows<decltype(stored)>(ctx, op); });
}

template <class T>
static void rope_rows(OpContext& ctx, const step::Op& op, float sign) {
  const ModelSpec& m = ctx.model();
  const std::uint64_t ld = m.qkv_width();
  T* x = ctx.at<T>(op[rope::kQkv]);
  const float* table = ctx.f32(op[rope::kTable]);
  // q and k heads are neighbours at the start of a row and are rotated as one group.
  const std::uint32_t heads = m.heads + m.kv_heads;
  ctx.over_rows(ctx.step.rows, heads * m.head_dim, [&](std::uint64_t r, std::uint64_t rows) {
    // Positions are modulo seq_len; ctx.step.position is 0 except for a generated token.
    ctx.rows<T>().rope(rows, heads, m.head_dim, ld, x + r * ld, table, ctx.step.position + r,
                       ctx.program.run.seq_len, sign);
  });
}

void run_rope(OpContext& ctx, const step::Op& op, float sign) {
  ctx.by_storage([&](auto stored) { rope_rows<decltype(stored)>(ctx, op, sign); });
}

template <class T>
static void swiglu_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t n = ctx.buffer(op[swiglu::kGateUp]).cols / 2;
  const T* gu = ctx.at<T>(op[swiglu::kGateUp]);
  T* a = ctx.at<T>(op[swiglu::kAct]);
  ctx.over_rows(ctx.step.rows, 2 * n, [&](std::uint64_t r, std::uint64_t rows) {
    ctx.rows<T>().swiglu(rows, n, gu + r * 2 * n, a + r * n);
  });
}

void run_swiglu(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { swiglu_rows<decltype(stored)>(ctx, op); });
}

template <class T>
static void swiglu_bwd_rows(OpContext& ctx, const step::Op& op) {
  const std::uint64_t n = ctx.buffer(op[swiglu_bwd::kGateUp]).cols / 2;
  const T* da = ctx.at<T>(op[swiglu_bwd::kDAct]);
  T* gu = ctx.at<T>(op[swiglu_bwd::kGateUp]);
  ctx.over_rows(ctx.step.rows, 2 * n, [&](std::uint64_t r, std::uint64_t rows) {
    // In place: gate | up become their gradients, which the next product reads.
    ctx.rows<T>().swiglu_bwd(rows, n, da + r * n, gu + r * 2 * n);
  });
}

void run_swiglu_bwd(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { swiglu_bwd_rows<decltype(stored)>(ctx, op); });
}

}  // namespace trainhost::cpu
