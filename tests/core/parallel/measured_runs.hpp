// Published peaks of training runs whose settings trainhost can express, entered by hand with their sources.
// allocated: peak of the framework's allocator, without context, libraries and gaps; reserved: with gaps.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::test {

enum class Measured { kAllocated, kReserved };

struct MeasuredRun {
  std::string what;
  model::Architecture model;
  RunSpec run;
  std::uint64_t bytes;
  Measured kind;
};

inline model::Architecture dense(std::uint32_t H, std::uint32_t I, std::uint32_t A, std::uint32_t K,
                                 std::uint64_t V, std::uint32_t L, bool tied = false) {
  model::Architecture a;
  a.family = "llama", a.vocab = V, a.hidden = H, a.tied = tied;
  model::Layer l;
  l.attention.heads = A, l.attention.kv_heads = K, l.attention.head_dim = H / A;
  l.mlp.width = I;
  a.layers = {{l, L}};
  return a;
}

/// DeepSeek: one dense layer, then L - 1 layers with experts.
inline model::Architecture deepseek(std::uint32_t H, std::uint32_t I, std::uint32_t E, std::uint32_t active,
                                    std::uint32_t each, std::uint32_t shared, std::uint64_t V,
                                    std::uint32_t L) {
  model::Architecture a;
  a.family = "deepseek_v3", a.vocab = V, a.hidden = H;
  model::Layer l;
  l.attention.latent = true, l.attention.heads = l.attention.kv_heads = 128, l.attention.q_lora_rank = 1536;
  l.attention.kv_lora_rank = 512, l.attention.rope_head_dim = 64,
  l.attention.nope_head_dim = l.attention.v_head_dim = 128;
  model::Layer experts = l;
  l.mlp.width = I;
  experts.experts.count = E, experts.experts.active = active, experts.experts.each.width = each,
  experts.experts.shared.width = shared;
  a.layers = {{l, 1}, {experts, L - 1}};
  return a;
}

struct Ranks {
  std::uint32_t tensor = 1, pipeline = 1, data = 1, context = 1, expert = 1;
};

/// Megatron-LM: bf16 weights, f32 gradients, optimizer state sharded over the data ranks (ZeRO 1), flash
/// attention, fused loss.
inline RunSpec megatron(Ranks n, std::uint32_t S) {
  RunSpec r;
  r.weight = r.compute = DType::kBF16, r.master = r.grad = r.moment = DType::kF32;
  r.micro_batch = 1, r.accumulate = 4, r.seq_len = S, r.parallel.zero = 1;
  r.parallel.tensor = n.tensor, r.parallel.pipeline = n.pipeline, r.parallel.data = n.data;
  r.parallel.context = n.context, r.parallel.expert = n.expert;
  r.parallel.sequence = n.tensor > 1;
  r.memory.vocab_multiple = 128, r.memory.cross_entropy = CrossEntropy::kInPlace;
  return r;
}

/// torchtitan FSDP2: f32 shards, bf16 compute, full recompute, f32 loss.
inline RunSpec titan(Ranks n, std::uint32_t B, std::uint32_t S) {
  RunSpec r;
  r.weight = r.grad = r.moment = DType::kF32, r.compute = DType::kBF16;
  r.micro_batch = B, r.seq_len = S, r.parallel.zero = 3, r.recompute = Recompute::kFull;
  r.parallel.tensor = n.tensor, r.parallel.pipeline = n.pipeline, r.parallel.data = n.data;
  r.parallel.context = n.context, r.parallel.sequence = n.tensor > 1,
  r.memory.cross_entropy = CrossEntropy::kPlain;
  return r;
}

/// torchtune on one device: bf16 throughout.
inline RunSpec tune(std::uint32_t B, std::uint32_t S, CrossEntropy loss, Optimizer o = Optimizer::kAdamW) {
  RunSpec r;
  r.weight = r.grad = r.moment = r.compute = DType::kBF16, r.optimizer = o;
  r.micro_batch = B, r.seq_len = S, r.memory.cross_entropy = loss;
  return r;
}

/// torchtune's LoRA on one device: rank 8 on q, v, o and the MLP; full recompute, chunked loss.
inline RunSpec lora(RunMode mode, DType base) {
  RunSpec r = tune(2, 2048, CrossEntropy::kFused);
  r.mode = mode, r.lora_rank = 8, r.lora_targets = 0b1111101, r.recompute = Recompute::kFull;
  r.memory.frozen = base, r.memory.double_quantized = base == DType::kNF4;
  return r;
}

/// SimuMax@4dcaae5, docs/b200/b200_release_v1.2_summary.json: Megatron-LM with Transformer Engine on 8 x
/// B200, max over ranks.
inline std::vector<MeasuredRun> megatron_runs() {
  const auto l70 = [] { return dense(8192, 28672, 64, 8, 128256, 12); };
  const auto l405 = [] { return dense(16384, 53248, 128, 16, 128256, 4); };
  const Measured k = Measured::kAllocated;
  return {
      {"llama3-70b l12 pp2 dp4", l70(), megatron({1, 2, 4}, 4096), 71459614208, k},
      {"llama3-70b l12 tp4 dp2", l70(), megatron({4, 1, 2}, 4096), 41953287680, k},
      {"deepseek-v2 l4 ep8", deepseek(5120, 12288, 160, 6, 1536, 3072, 102400, 4),
       megatron({1, 1, 8, 1, 8}, 4096), 48999958016, k},
      {"deepseek-v3 l4 ep8", deepseek(7168, 18432, 256, 8, 2048, 2048, 129280, 4),
       megatron({1, 1, 8, 1, 8}, 4096), 111991906304, k},
      {"llama3-405b l4 pp2 dp4", l405(), megatron({1, 2, 4}, 4096), 93505086464, k},
      {"llama3-405b l4 tp4 dp2", l405(), megatron({4, 1, 2}, 4096), 56788897280, k},
      {"llama3-70b l12 tp2 cp4 32k", l70(), megatron({2, 1, 1, 4}, 32768), 73474310656, k},
      {"llama3-405b l4 tp2 cp4 32k", l405(), megatron({2, 1, 1, 4}, 32768), 93442593280, k},
      {"llama3-70b l12 tp2 cp4 128k", l70(), megatron({2, 1, 1, 4}, 131072), 120976285184, k},
      {"llama3-405b l4 tp2 cp4 128k", l405(), megatron({2, 1, 1, 4}, 131072), 126838386176, k},
  };
}

/// torchtune's README (Llama-3.2-3B, A100) and torchtitan's H100 tables (December 2024).
inline std::vector<MeasuredRun> torch_runs() {
  const auto l3 = [] { return dense(3072, 8192, 24, 8, 128256, 28, true); };
  const auto l8 = [] { return dense(4096, 14336, 32, 8, 128256, 32); };
  return {
      {"tune 3b", l3(), tune(2, 4096, CrossEntropy::kPlain), 64424509440, Measured::kAllocated},
      {"tune 3b chunked loss", l3(), tune(2, 4096, CrossEntropy::kFused), 46063524249, Measured::kAllocated},
      {"tune 8b lora", l8(), lora(RunMode::kLora, DType::kNone), 17394617548, Measured::kAllocated},
      {"tune 8b qlora", l8(), lora(RunMode::kQlora, DType::kNF4), 7945689497, Measured::kAllocated},
      {"titan 8b cp2 64k", l8(), titan({1, 1, 4, 2}, 1, 65536), 90409061580, Measured::kReserved},
      {"titan 8b cp8 256k", l8(), titan({1, 1, 1, 8}, 1, 262144), 90731184128, Measured::kReserved},
      {"titan 70b tp8", dense(8192, 28672, 64, 8, 128256, 80), titan({8, 1, 32}, 16, 8192), 77202036326,
       Measured::kReserved},
  };
}

}  // namespace trainhost::test
