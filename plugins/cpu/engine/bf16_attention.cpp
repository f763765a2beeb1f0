// Divides attention in bf16 into tasks, as ops_attention.cpp does in f32: forward a block of queries of one
// head; backward one key/value head with all query heads that share it, so that its gradients have one
// writer. Kernels: kernels/attention_amx.hpp. Each task uses its thread's part of the workspace.
#include "plugins/cpu/engine/bf16_attention.hpp"

#include <cmath>

#include "core/step/operands.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

Bf16Attention attention_shape(const OpContext& ctx, const step::Op& op) {
  const ModelSpec& m = ctx.model();
  Bf16Attention s{};
  s.seq = ctx.program.run.seq_len, s.d = m.head_dim;
  s.window = m.window(static_cast<std::uint32_t>(op.layer));
  s.group = m.heads / m.kv_heads;
  s.ld = m.qkv_width(), s.ld_o = std::uint64_t{m.heads} * m.head_dim, s.ld_lse = m.heads;
  s.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(m.head_dim)));
  return s;
}
// Floats for dot(o, d_o) of each query of a group, before the memory of the kernels.
std::uint64_t delta_floats(const Bf16Attention& s) { return up_to(std::uint64_t{s.group} * s.seq, 16); }

}  // namespace

bool computes_attention_in_bf16(OpContext& ctx, const step::Op& op) {
  if (!ctx.bf16 || !ctx.bf16->attention || !ctx.stores_bf16()) return false;
  const Bf16Attention s = attention_shape(ctx, op);
  return delta_floats(s) * sizeof(float) + ctx.bf16->attention->bytes(s) <=
         worker_floats(ctx.model(), ctx.program.run, ctx.program.traits) * sizeof(float);
}

void bf16_attention(OpContext& ctx, const step::Op& op) {
  const Bf16Attention all = attention_shape(ctx, op);
  const Bf16* qkv = ctx.at<Bf16>(op[attention::kQkv]);
  Bf16* o = ctx.at<Bf16>(op[attention::kO]);
  float* lse = ctx.f32(op[attention::kLse]);
  const std::uint64_t heads = ctx.model().heads, kv_heads = ctx.model().kv_heads,
                      sequences = ctx.step.rows / all.seq;
  const std::uint32_t blocks = (all.seq + kBf16AttentionQueries - 1) / kBf16AttentionQueries;
  ctx.pool.run(static_cast<std::uint32_t>(sequences * heads * blocks), [&](std::uint32_t i,
                                                                           std::uint32_t worker) {
    const std::uint32_t begin = i % blocks * kBf16AttentionQueries;
    const std::uint64_t head = i / blocks % heads, row0 = i / blocks / heads * all.seq, kv = head / all.group;
    Bf16Attention s = all;
    s.starts = ctx.step.starts ? ctx.step.starts + row0 : nullptr;
    const Bf16* base = qkv + row0 * s.ld;
    ctx.bf16->attention->forward(
        s, base + head * s.d, base + (heads + kv) * s.d, base + (heads + kv_heads + kv) * s.d, begin,
        std::min(begin + kBf16AttentionQueries, s.seq), o + row0 * s.ld_o + head * s.d,
        lse + row0 * heads + head, ctx.worker_workspace(worker));
  });
}

void bf16_attention_bwd(OpContext& ctx, const step::Op& op) {
  const Bf16Attention all = attention_shape(ctx, op);
  const Bf16 *d_o = ctx.at<Bf16>(op[attention_bwd::kDO]), *o = ctx.at<Bf16>(op[attention_bwd::kO]),
             *qkv = ctx.at<Bf16>(op[attention_bwd::kQkv]);
  const float* lse = ctx.f32(op[attention_bwd::kLse]);
  Bf16* dqkv = ctx.at<Bf16>(op[attention_bwd::kDQkv]);
  const std::uint64_t heads = ctx.model().heads, kv_heads = ctx.model().kv_heads,
                      sequences = ctx.step.rows / all.seq;
  ctx.pool.run(static_cast<std::uint32_t>(sequences * kv_heads), [&](std::uint32_t i, std::uint32_t worker) {
    const std::uint64_t row0 = i / kv_heads * all.seq, kv = i % kv_heads, head = kv * all.group;
    Bf16Attention s = all;
    s.starts = ctx.step.starts ? ctx.step.starts + row0 : nullptr;
    float* const delta = ctx.worker_workspace(worker);
    const std::uint64_t at_q = row0 * s.ld + head * s.d, at_k = row0 * s.ld + (heads + kv) * s.d,
                        at_v = at_k + kv_heads * s.d, at_o = row0 * s.ld_o + head * s.d;
    for (std::uint32_t h = 0; h < s.group; ++h)
      ctx.rows<Bf16>().row_dots(s.seq, s.d, d_o + at_o + h * s.d, s.ld_o, o + at_o + h * s.d, s.ld_o,
                                delta + std::uint64_t{h} * s.seq);
    ctx.bf16->attention->backward(s, qkv + at_q, qkv + at_k, qkv + at_v, d_o + at_o,
                                  lse + row0 * heads + head, delta, dqkv + at_q, dqkv + at_k, dqkv + at_v,
                                  delta + delta_floats(s));
  });
}

}  // namespace trainhost::cpu
