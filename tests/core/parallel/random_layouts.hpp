// Random decoders and runs that validate() accepts: every kind of attention, MLP and norm, every parallelism
// and memory policy.
#pragma once
#include "core/parallel/rank_memory.hpp"
#include "tests/support/properties.hpp"

namespace trainhost::test {

struct Case {
  model::Architecture a;
  RunSpec r;
};

inline bool coin(const Draw& draw) { return draw(0, 1); }
inline std::uint32_t power(const Draw& draw, std::uint64_t most) { return 1u << draw(0, most); }

inline model::Attention random_attention(const Draw& draw) {
  model::Attention t;
  t.heads = 8 * power(draw, 2), t.kv_heads = t.heads / power(draw, 3),
  t.head_dim = 2 * static_cast<std::uint32_t>(draw(1, 20));
  t.q_bias = coin(draw), t.k_bias = coin(draw), t.o_bias = coin(draw);
  if (draw(0, 3) == 0) {
    t.latent = true, t.kv_heads = t.heads, t.q_lora_rank = coin(draw) ? 24 : 0,
    t.q_bias = t.q_lora_rank && t.q_bias;
    t.kv_lora_rank = 16, t.rope_head_dim = 8, t.nope_head_dim = 12, t.v_head_dim = 10;
    return t;
  }
  t.v_bias = coin(draw), t.window = coin(draw) ? 0 : static_cast<std::uint32_t>(draw(1, 64));
  t.qk_norm = static_cast<model::NormKind>(coin(draw) ? 3 : draw(0, 2)), t.qk_norm_per_head = coin(draw);
  t.sinks = coin(draw), t.chunked = t.window && coin(draw);
  if (draw(0, 2) == 0)
    t.gated = coin(draw), t.v_norm = coin(draw), t.v_is_k = coin(draw), t.reuses_kv = coin(draw);
  return t;
}

inline model::LinearAttention random_linear_attention(const Draw& draw) {
  model::LinearAttention t;
  t.value_heads = 8 * power(draw, 2), t.key_heads = t.value_heads / power(draw, 3);
  t.key_dim = static_cast<std::uint32_t>(draw(1, 20)), t.value_dim = static_cast<std::uint32_t>(draw(1, 20));
  t.kernel = static_cast<std::uint32_t>(draw(1, 4)), t.chunk = power(draw, 6),
  t.delta = t.norm_per_head = coin(draw);
  t.gates = t.delta ? 2 : 1, t.head_weights = t.delta ? 2 : 3;
  t.convolution_bias = coin(draw), t.in_bias = coin(draw), t.out_bias = coin(draw);
  return t;
}

inline model::Layer random_layer(const Draw& draw, bool experts) {
  model::Layer l;
  // One of attention, linear attention and, in a third of the rest, neither.
  if (draw(0, 3))
    l.attention = random_attention(draw);
  else if (draw(0, 2))
    l.linear = random_linear_attention(draw);
  l.per_layer_width = draw(0, 5) ? 0 : 8;
  l.norm = static_cast<model::NormKind>(draw(0, 3)), l.norms = coin(draw) ? 2
                                                               : coin(draw)
                                                                   ? 1
                                                                   : static_cast<std::uint32_t>(draw(4, 7));
  const model::Mlp mlp{coin(draw), coin(draw), coin(draw), 8 * static_cast<std::uint32_t>(draw(1, 40))};
  if (!experts) return l.mlp = mlp, l;
  l.experts.count = 8 * static_cast<std::uint32_t>(draw(1, 3)),
  l.experts.active = static_cast<std::uint32_t>(draw(1, 4)), l.experts.each = mlp;
  if (coin(draw)) l.experts.shared = mlp, l.experts.shared_gate = coin(draw);
  l.experts.router_bias = coin(draw), l.experts.router_scale = coin(draw);
  if (draw(0, 3) == 0)
    l.experts.latent = 8 * static_cast<std::uint32_t>(draw(1, 4)), l.experts.latent_bias = coin(draw);
  return l;
}

inline model::Architecture random_model(const Draw& draw) {
  model::Architecture a;
  a.family = "random", a.vocab = draw(1, 5000), a.hidden = 8 * static_cast<std::uint32_t>(draw(1, 40));
  const bool experts = coin(draw);
  for (std::uint64_t kinds = draw(1, 3), i = 0; i < kinds; ++i)
    a.layers.push_back(
        {random_layer(draw, experts && i + 1 == kinds), static_cast<std::uint32_t>(draw(1, 9))});
  a.tied = coin(draw), a.head_bias = coin(draw), a.learned_positions = coin(draw) ? 0 : draw(1, 2000);
  a.embedding_width = draw(0, 3) ? 0 : a.hidden / 2;
  if (draw(0, 5) == 0) a.per_layer_vocab = draw(1, 5000), a.per_layer_width = 8;
  a.final_norm = static_cast<model::NormKind>(draw(0, 3));
  a.embedding_norm = draw(0, 3) ? model::NormKind::kNone : model::NormKind::kLayer;
  return a;
}

inline RunSpec random_run(const Draw& draw, const model::Architecture& a) {
  constexpr DType kWeights[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8},
                  kSums[] = {DType::kF32, DType::kBF16},
                  kFrozen[] = {DType::kNone, DType::kNF4, DType::kI8, DType::kBF16, DType::kI4},
                  kCache[] = {DType::kNone, DType::kF8, DType::kI8, DType::kI4};
  RunSpec r;
  r.weight = kWeights[draw(0, 3)], r.grad = kSums[draw(0, 1)], r.moment = kSums[draw(0, 1)],
  r.compute = kSums[draw(0, 1)];
  r.master = coin(draw) ? DType::kF32 : DType::kNone;
  r.optimizer = static_cast<Optimizer>(draw(1, 7)),
  r.mode = draw(0, 2) ? RunMode::kFull : static_cast<RunMode>(draw(2, 4));
  if (r.mode == RunMode::kLora || r.mode == RunMode::kQlora)
    r.lora_rank = static_cast<std::uint32_t>(draw(1, 16)),
    r.lora_targets = static_cast<std::uint32_t>(draw(1, 127)), r.memory.frozen = kFrozen[draw(0, 4)];
  r.micro_batch = static_cast<std::uint32_t>(draw(1, 5)),
  r.accumulate = static_cast<std::uint32_t>(draw(1, 12)),
  r.seq_len = 8 * static_cast<std::uint32_t>(draw(1, 50));
  r.parallel.data = power(draw, 3), r.parallel.tensor = power(draw, 3),
  r.parallel.zero = static_cast<std::uint32_t>(draw(0, 3));
  MemoryPolicy& memory = r.memory;
  r.parallel.context = power(draw, 3), r.parallel.sequence = coin(draw) && r.parallel.tensor > 1,
  memory.vocab_multiple = power(draw, 7);
  if (a.has_experts() && a.layers.size() == 1)
    r.parallel.expert = std::min(power(draw, 3), r.parallel.data * r.parallel.context);
  const std::uint32_t layers = a.layer_count();
  r.parallel.pipeline = static_cast<std::uint32_t>(draw(1, std::min(layers, 6u)));
  if (r.parallel.pipeline > 1)
    r.parallel.virtual_stages = static_cast<std::uint32_t>(draw(1, layers / r.parallel.pipeline));
  constexpr Recompute kPolicies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull,
                                     Recompute::kLayers};
  r.recompute = kPolicies[draw(0, 3)];
  if (r.recompute == Recompute::kFull) memory.recompute_every = static_cast<std::uint32_t>(draw(1, 4));
  if (r.recompute == Recompute::kLayers)
    r.recompute_layers = {static_cast<std::uint32_t>(draw(0, 3)), static_cast<std::uint32_t>(draw(0, 3)),
                          static_cast<std::uint32_t>(draw(0, 3))};
  memory.attention = coin(draw) ? AttentionMemory::kFlash : AttentionMemory::kMaterialised;
  memory.cross_entropy = static_cast<CrossEntropy>(draw(1, 3));
  constexpr Tier kHomes[] = {Tier::kDevice, Tier::kDevice, Tier::kHost, Tier::kDisk};
  memory.weights_in = kHomes[draw(0, 3)];
  if (r.mode == RunMode::kInference)
    memory.kv_cache = kCache[draw(0, 3)], memory.kv_page = power(draw, 6);
  else
    memory.optimizer_in = kHomes[draw(0, 3)], memory.activations_in = kHomes[draw(0, 3)];
  if (r.mode == RunMode::kLora || r.mode == RunMode::kQlora) {
    memory.dora = coin(draw);
    memory.double_quantized = coin(draw) && (memory.frozen == DType::kNF4 ||
                                             (memory.frozen == DType::kNone && r.mode == RunMode::kQlora));
  }
  return r;
}

inline Case random_case(const Draw& draw) {
  Case c;
  c.a = random_model(draw), c.r = random_run(draw, c.a);
  parallel::validate(c.a, c.r);
  return c;
}

}  // namespace trainhost::test
