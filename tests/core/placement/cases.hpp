// Models and runs for the tests of core/step and core/placement: one small case to compute by hand, and
// random cases that cover every family option, recompute policy and mode. Pure functions of a seed.
#pragma once
#include <array>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>

#include "core/model/tensor_parts.hpp"
#include "core/model/trainable.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::placement::test {

struct Case {
  ModelSpec model;
  RunSpec run;
  TrainerTraits traits;
  Program build() const { return build_program(model, run, traits); }
};

/// Two layers, grouped heads, untied; all other options off.
inline Case small_case() {
  Case c;
  ModelSpec& m = c.model;
  m.family = "llama", m.name = "small";
  m.vocab = 32, m.hidden = 8, m.layers = 2, m.heads = 4, m.kv_heads = 2, m.head_dim = 2, m.intermediate = 12;
  m.max_positions = 64;
  c.run.micro_batch = 2, c.run.seq_len = 6;
  c.traits.trainer = "test", c.traits.threads = 2, c.traits.slots = 3, c.traits.head_chunk_tokens = 5;
  c.traits.attention_tile_q = 4, c.traits.attention_tile_k = 4;
  return c;
}

/// Biases, q/k norms, tied: every optional buffer exists.
inline Case everything_case() {
  Case c = small_case();
  c.model.qkv_bias = c.model.o_bias = c.model.mlp_bias = c.model.qk_norm = c.model.tied = true;
  c.model.family = "qwen3", c.model.name = "everything";
  c.traits.workspace_bytes = 100;
  return c;
}

inline Case random_case(std::uint64_t seed) {
  std::mt19937_64 g(seed);
  const auto pick = [&](std::uint64_t lo, std::uint64_t hi) {
    return static_cast<std::uint32_t>(lo + g() % (hi - lo + 1));
  };
  const auto flip = [&] { return g() % 2 == 0; };
  Case c;
  ModelSpec& m = c.model;
  static const char* const kFamilies[] = {"llama", "mistral", "qwen2", "qwen3"};
  m.family = kFamilies[pick(0, 3)];
  m.name = "random " + std::to_string(seed);
  m.vocab = pick(1, 300), m.hidden = pick(1, 40), m.layers = pick(1, 7), m.kv_heads = pick(1, 3);
  m.heads = m.kv_heads * pick(1, 4), m.head_dim = 2 * pick(1, 8), m.intermediate = pick(1, 90);
  m.tied = flip(), m.qkv_bias = flip(), m.o_bias = flip(), m.mlp_bias = flip(), m.qk_norm = flip();
  m.sliding_window = flip() ? pick(1, 9) : 0;
  RunSpec& r = c.run;
  r.micro_batch = pick(1, 5), r.seq_len = pick(1, 33), r.accumulate = pick(1, 3);
  r.mode = pick(0, 7) == 0 ? RunMode::kInference : RunMode::kFull;
  r.optimizer = static_cast<Optimizer>(pick(1, 7));
  constexpr Recompute kPolicies[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull,
                                     Recompute::kLayers};
  r.recompute = kPolicies[pick(0, 3)];
  if (r.recompute == Recompute::kLayers) {
    auto& n = r.recompute_layers;
    n.full = pick(0, m.layers), n.mlp = pick(0, m.layers - n.full),
    n.selective = pick(0, m.layers - n.full - n.mlp);
  }
  TrainerTraits& p = c.traits;
  p.trainer = "test";
  p.alignment = 8u << pick(0, 6), p.head_chunk_tokens = flip() ? 0 : pick(1, 64), p.threads = pick(1, 5),
  p.slots = pick(1, 16);
  p.attention_tile_q = pick(1, 64), p.attention_tile_k = pick(1, 64),
  p.workspace_bytes = flip() ? 0 : pick(1, 5000);
  return c;
}

/// The same run with adapters of random rank and targets instead of all weights.
inline Case with_adapters(Case c, std::uint64_t seed) {
  std::mt19937_64 g(seed + 1000);
  c.run.mode = RunMode::kLora;
  c.run.lora_rank = static_cast<std::uint32_t>(1 + g() % 9);
  c.run.lora_targets = static_cast<std::uint32_t>(1 + g() % 127);
  c.run.lora_alpha = 16;
  c.run.memory.lora_dropout = seed % 2 ? 0.25 : 0;
  c.run.memory.dora = seed % 5 > 2;
  // Another size in every product of a layer, or none.
  if (seed % 3 == 1) {
    const std::uint32_t layers = static_cast<std::uint32_t>(g() % 5);
    set_adapters(
        c.model,
        [&](const AdaptableMatrix& x) -> AdapterSize {
          if (x.target > 64) return {};  // outside the layers
          const std::uint32_t layer = static_cast<std::uint32_t>(std::stoul(x.module.substr(13))),
                              group = x.target < 8    ? 0u
                                      : x.target == 8 ? 1u
                                      : x.target < 64 ? 2u
                                                      : 3u;
          if (layer > layers && group % 2) return {};
          return {1 + (layer + 5 * group) % 9, 16.0 - group};
        },
        c.run);
  }
  c.model.name += c.run.memory.dora ? ", DoRA" : ", LoRA";
  return c;
}

/// The same run with adapters of the LM head, of the embedding or of both, alone or beside those of layers.
inline Case with_adapters_outside_layers(Case c, std::uint64_t seed) {
  c = with_adapters(std::move(c), seed);
  if (seed % 4 == 0) c.run.lora_targets = 0, c.run.lora_rules.clear();
  c.run.lora_targets |= std::array{128u, 256u, 384u}[seed % 3];
  if (seed % 5 == 0) c.run.lora_rules += (c.run.lora_rules.empty() ? "" : "\n") + std::string("lm_head 5 3");
  if (c.model.tied && seed % 3 != 0 && seed % 2)  // one adapter of both
    c.run.lora_targets = (c.run.lora_targets & ~kTargetHead) | kTargetEmbedding | kTiedAdapter;
  c.model.name += ties_adapter(c.run) ? " of a tied vocabulary" : " outside the layers";
  return c;
}

/// Rules that freeze something: of each place in the model one, and mixtures of them.
inline constexpr const char* kFreezing[] = {"-model.embed_tokens*",
                                            "-model.layers.0.*",
                                            "-*\n+model.layers.0.*",
                                            "-*\n+*norm*",
                                            "-*\n+*layernorm.weight",
                                            "-*.mlp.*",
                                            "-*.self_attn.*\n-model.embed_tokens*",
                                            "-*\n+*.down_proj*",
                                            "-*\n+*.o_proj*\n-model.layers.0.*\n+model.norm.weight",
                                            "-*\n+model.norm.weight",
                                            "-*\n+*.gate_proj*\n+*.up_proj*",
                                            "-*\n+*q_norm*\n+*k_norm*\n+model.norm.weight",
                                            "-*\n+lm_head*\n+model.embed_tokens*",
                                            "-*.bias",
                                            "-model.norm.weight",
                                            "-*\n+*.post_attention_layernorm.weight",
                                            "-*\n+*.q_proj*\n+*.k_proj*\n+*.v_proj*"};

/// The same run with frozen weights.
inline Case with_frozen(Case c, std::uint64_t seed) {
  c.run.trainable = kFreezing[seed % std::size(kFreezing)];
  c.model.name += ", trains " + c.run.trainable;
  return c;
}

/// The same run with modules of the model that are trained with its adapters of q and v.
inline Case with_saved_modules(Case c, std::uint64_t seed) {
  const bool inference = c.run.mode == RunMode::kInference;
  c = with_adapters(std::move(c), seed);
  static const std::vector<std::string> kModules[] = {{"norm"},
                                                      {"down_proj", "post_attention_layernorm"},
                                                      {"gate_proj", "up_proj"},
                                                      {"o_proj"},
                                                      {"lm_head"},
                                                      {"embed_tokens", "lm_head"}};
  if (inference) return c;
  const std::vector<std::string>& modules = kModules[seed % std::size(kModules)];
  c.run.lora_targets = 0x5, c.model.tied = c.model.tied && modules.front() == "embed_tokens";
  c.run.trainable = rules_of_modules(modules);
  c.model.name += ", saves " + c.run.trainable;
  return c;
}

/// The same run on several data-parallel ranks, as the first of them.
inline Case on_ranks(Case c, std::uint64_t ranks, std::uint32_t zero) {
  c.run.parallel.data = static_cast<std::uint32_t>(ranks), c.run.parallel.data_rank = 1;
  c.run.parallel.zero = zero;
  c.model.name += ", " + std::to_string(ranks) + " ranks" + (zero ? ", ZeRO " + std::to_string(zero) : "");
  return c;
}

/// A run on tensor-parallel ranks, as one of them, whose part of the model is that of the case; with
/// data-parallel ranks.
inline Case on_tensor_ranks(Case c, std::uint32_t tensor, std::uint32_t rank, std::uint64_t data,
                            std::uint32_t zero) {
  if (data > 1) c = on_ranks(std::move(c), data, zero);
  c.run.parallel.data_rank = 1, c.run.parallel.tensor = tensor, c.run.parallel.tensor_rank = rank;
  c.model = whole_of_model(c.model, c.run.parallel);
  c.model.name += ", rank " + std::to_string(rank) + " of " + std::to_string(tensor) + " TP ranks";
  return c;
}

/// A run of tensor-parallel ranks with sequence parallelism, with as many times the tokens as there are
/// ranks.
inline Case with_sequence_parallelism(Case c) {
  c.run.parallel.sequence = true, c.run.micro_batch *= c.run.parallel.tensor;
  c.model.name += ", sequence parallelism";
  return c;
}

/// The same run with several documents per sequence.
inline Case with_documents(Case c) {
  c.run.document_mask = true;
  c.model.name += ", documents";
  return c;
}

/// The same run with the weights under its adapters in NF4.
inline Case with_nf4(Case c, std::uint64_t seed) {
  c = with_adapters(std::move(c), seed);
  c.run.mode = RunMode::kQlora;
  c.run.memory.double_quantized = seed % 2 == 0;
  c.model.name += " of NF4";
  return c;
}

/// The same run for a trainer with a device, in one of its precisions.
inline Case on_device(Case c, std::uint64_t seed, const char* mode = "resident") {
  RunSpec& r = c.run;
  if (seed % 3 == 1) r.compute = DType::kTF32;
  if (seed % 3 == 2) r.compute = r.weight = DType::kBF16, r.master = DType::kF32;
  c.traits.tier = Tier::kDevice, c.traits.alignment = 256, c.traits.mode = mode;
  c.model.name += std::string(" on a device, ") + mode;
  return c;
}

}  // namespace trainhost::placement::test
