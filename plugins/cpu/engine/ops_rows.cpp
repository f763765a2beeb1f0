// Operations on single tokens, and the gradients of their weights: embedding, norms, rotary positions,
// SwiGLU. Sums over tokens use a fixed number of slots, which are added in order.
#include <algorithm>
#include <cstring>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/exec.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

// grad[i] (= or +=) the sum of slots [slots, n] in order.
void combine_slots(Exec& e, const float* slots, std::uint32_t count, std::uint64_t ld, std::uint64_t n,
                   bool overwrite, float* grad) {
  if (overwrite) std::memset(grad, 0, n * sizeof(float));
  for (std::uint32_t s = 0; s < count; ++s) e.kernels.add(n, slots + s * ld, grad);
}

}  // namespace

void run_embed(Exec& e, const step::Op& op) {
  const std::uint64_t h = e.buffer(op[embed::kTable]).cols;
  const float* table = e.f32(op[embed::kTable]);
  float* x = e.f32(op[embed::kX]);
  e.over_rows(e.step.rows, h, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r)
      std::memcpy(x + r * h, table + std::uint64_t(e.step.tokens[r]) * h, h * sizeof(float));
  });
}

// Task t owns the vocabulary entries with id % tasks == t and adds their tokens in order, so that every row
// has one writer.
void run_embed_bwd(Exec& e, const step::Op& op) {
  const step::Buffer& grad = e.buffer(op[embed_bwd::kGradTable]);
  const std::uint64_t h = grad.cols, vocab = grad.rows;
  const float* dx = e.f32(op[embed_bwd::kDx]);
  float* table = e.f32(op[embed_bwd::kGradTable]);
  const bool overwrite = e.overwrite(op);
  const std::uint32_t tasks =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(e.program.traits.slots, vocab));
  e.pool.run(tasks, [&](std::uint32_t t, std::uint32_t) {
    if (overwrite)
      for (std::uint64_t id = t; id < vocab; id += tasks) std::memset(table + id * h, 0, h * sizeof(float));
    for (std::uint64_t r = 0; r < e.step.rows; ++r) {
      std::uint64_t id = static_cast<std::uint64_t>(e.step.tokens[r]);
      if (id % tasks == t) e.kernels.add(h, dx + r * h, table + id * h);
    }
  });
}

void run_rms_norm(Exec& e, const step::Op& op) {
  const std::uint64_t h = e.buffer(op[rms_norm::kX]).cols;
  const float *x = e.f32(op[rms_norm::kX]), *w = e.f32(op[rms_norm::kWeight]);
  float *y = e.f32(op[rms_norm::kY]), *rstd = e.f32(op[rms_norm::kRstd]);
  const float eps = static_cast<float>(e.model().norm_eps);
  e.over_rows(e.step.rows, h, [&](std::uint64_t r, std::uint64_t rows) {
    e.kernels.rms_norm(rows, h, x + r * h, w, eps, y + r * h, rstd + r);
  });
}

void run_rms_norm_bwd(Exec& e, const step::Op& op) {
  const std::uint64_t h = e.buffer(op[rms_norm_bwd::kX]).cols;
  const float *dy = e.f32(op[rms_norm_bwd::kDy]), *x = e.f32(op[rms_norm_bwd::kX]),
              *rstd = e.f32(op[rms_norm_bwd::kRstd]), *w = e.f32(op[rms_norm_bwd::kWeight]);
  float *dx = e.f32(op[rms_norm_bwd::kDx]), *grad_w = e.f32(op[rms_norm_bwd::kGradWeight]),
        *partial = e.f32(op[rms_norm_bwd::kPartials]);
  const bool add = !(op.flags & step::kFreshDx);
  const std::uint32_t slots = static_cast<std::uint32_t>(e.buffer(op[rms_norm_bwd::kPartials]).rows);
  e.pool.run(slots, [&](std::uint32_t s, std::uint32_t) {
    Range r = part(e.step.rows, s, slots);
    std::memset(partial + s * h, 0, h * sizeof(float));
    e.kernels.rms_norm_bwd(r.size(), h, dy + r.begin * h, x + r.begin * h, rstd + r.begin, w,
                           dx + r.begin * h, add, partial + s * h);
  });
  combine_slots(e, partial, slots, h, h, e.overwrite(op), grad_w);
}

// Each of the A+K heads of q and k is normalised over its own D elements; the input is saved in `pre` for the
// backward pass.
void run_qk_norm(Exec& e, const step::Op& op) {
  const ModelSpec& m = e.model();
  const std::uint64_t d = m.head_dim, a = m.heads, k = m.kv_heads, ld = m.qkv_width(), n = (a + k) * d;
  float *qkv = e.f32(op[qk_norm::kQkv]), *pre = e.f32(op[qk_norm::kPre]), *rstd = e.f32(op[qk_norm::kRstd]);
  const float *wq = e.f32(op[qk_norm::kQWeight]), *wk = e.f32(op[qk_norm::kKWeight]),
              eps = static_cast<float>(m.norm_eps);
  e.over_rows(e.step.rows, n, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r) {
      float *row = qkv + r * ld, *kept = pre + r * n;
      std::memcpy(kept, row, n * sizeof(float));
      e.kernels.rms_norm(a, d, kept, wq, eps, row, rstd + r * (a + k));
      e.kernels.rms_norm(k, d, kept + a * d, wk, eps, row + a * d, rstd + r * (a + k) + a);
    }
  });
}

void run_qk_norm_bwd(Exec& e, const step::Op& op) {
  const ModelSpec& m = e.model();
  const std::uint64_t d = m.head_dim, a = m.heads, k = m.kv_heads, ld = m.qkv_width();
  float *dqkv = e.f32(op[qk_norm_bwd::kDQkv]), *partial = e.f32(op[qk_norm_bwd::kPartials]);
  const float *pre = e.f32(op[qk_norm_bwd::kPre]), *rstd = e.f32(op[qk_norm_bwd::kRstd]),
              *wq = e.f32(op[qk_norm_bwd::kQWeight]), *wk = e.f32(op[qk_norm_bwd::kKWeight]);
  const std::uint32_t slots = e.program.traits.slots;
  e.pool.run(slots, [&](std::uint32_t s, std::uint32_t) {
    Range range = part(e.step.rows, s, slots);
    float *gq = partial + s * 2 * d, *gk = gq + d;
    std::memset(gq, 0, 2 * d * sizeof(float));
    for (std::uint64_t r = range.begin; r < range.end; ++r) {
      float* row = dqkv + r * ld;
      const float *kept = pre + r * (a + k) * d, *scale = rstd + r * (a + k);
      e.kernels.rms_norm_bwd(a, d, row, kept, scale, wq, row, false, gq);
      e.kernels.rms_norm_bwd(k, d, row + a * d, kept + a * d, scale + a, wk, row + a * d, false, gk);
    }
  });
  combine_slots(e, partial, slots, 2 * d, d, e.overwrite(op), e.f32(op[qk_norm_bwd::kGradQWeight]));
  combine_slots(e, partial + d, slots, 2 * d, d, e.overwrite(op), e.f32(op[qk_norm_bwd::kGradKWeight]));
}

void run_rope(Exec& e, const step::Op& op, float sign) {
  const ModelSpec& m = e.model();
  const std::uint64_t ld = m.qkv_width();
  float* x = e.f32(op[rope::kQkv]);
  const float* table = e.f32(op[rope::kTable]);
  const std::uint32_t heads = m.heads + m.kv_heads;
  e.over_rows(e.step.rows, heads * m.head_dim, [&](std::uint64_t r, std::uint64_t rows) {
    e.kernels.rope(rows, heads, m.head_dim, ld, x + r * ld, table, e.step.position + r, e.program.run.seq_len,
                   sign);
  });
}

void run_swiglu(Exec& e, const step::Op& op) {
  const std::uint64_t n = e.buffer(op[swiglu::kGateUp]).cols / 2;
  const float* gu = e.f32(op[swiglu::kGateUp]);
  float* a = e.f32(op[swiglu::kAct]);
  e.over_rows(e.step.rows, 2 * n, [&](std::uint64_t r, std::uint64_t rows) {
    e.kernels.swiglu(rows, n, gu + r * 2 * n, a + r * n);
  });
}

void run_swiglu_bwd(Exec& e, const step::Op& op) {
  const std::uint64_t n = e.buffer(op[swiglu_bwd::kGateUp]).cols / 2;
  const float* da = e.f32(op[swiglu_bwd::kDAct]);
  float* gu = e.f32(op[swiglu_bwd::kGateUp]);
  e.over_rows(e.step.rows, 2 * n, [&](std::uint64_t r, std::uint64_t rows) {
    e.kernels.swiglu_bwd(rows, n, da + r * n, gu + r * 2 * n);
  });
}

}  // namespace trainhost::cpu
