// The facts of tests/golden/oracle as arguments of training_step(). tools/oracle/README.md describes the
// records.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/frameworks/training_step.hpp"

namespace trainhost::test {

/// folder: "" for cases of one device, "fsdp" for those of FSDP2, "torchtitan", "torchtitan-2024",
/// "torchtune", "torchtune-moved", "torchtune-qwen", "torchtune-gemma", "litgpt", "litgpt-full",
/// "litgpt-wide", "deepspeed",
/// "deepspeed3", "deepspeed-lora", "deepspeed3-lora", "deepspeed-offload", "fsdp1", "fsdp1-lora",
/// "quantized", "int8", "int8-liger", "factory", "ranks", "reentrant", "liger", "liger-gemma",
/// "liger-mixtral", "fsdp-liger", "zero-liger", "zero-quantized", "cut", "cut-kindred", "smollm3", "kindred",
/// "qwen3-moe", "quantized-moe", "gpt-oss", "experts-lora", "glm-seed", "gemma", "dpo", "trl", "eight-bit",
/// "axolotl", "sharded-quantized", "sharded-kindred", "sharded-gemma", "whole-quantized", "sharded-liger",
/// "release-4.45" and others.
inline std::vector<nlohmann::json> oracle_records(const std::string& folder = {}) {
  std::vector<nlohmann::json> records;
  const std::filesystem::path root = TRAINHOST_SOURCE_DIR "/tests/golden/oracle";
  for (const auto& file : std::filesystem::directory_iterator(root / folder)) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);)
      if (nlohmann::json r = nlohmann::json::parse(line); r.contains("n")) records.push_back(std::move(r));
  }
  return records;
}

inline model::Layer layer_of(const nlohmann::json& c, const std::string& family) {
  model::Layer l;
  model::Attention& a = l.attention;
  a.heads = c.at("heads");
  a.kv_heads = c.at("kv_heads");
  a.head_dim = c.at("head_dim");
  a.q_bias = a.k_bias = a.v_bias = family == "qwen2" || family == "glm4" || family == "seed_oss";
  if (family == "qwen3" || family == "qwen3_moe" || family == "gemma3_text")
    a.qk_norm = model::NormKind::kRms;
  if (family.starts_with("olmo")) a.qk_norm = model::NormKind::kRms, a.qk_norm_per_head = false;
  if (family == "gpt_oss") {
    a.q_bias = a.k_bias = a.v_bias = a.o_bias = a.sinks = true;
    l.experts.router_bias = l.experts.each.up_bias = l.experts.each.down_bias = true;
  }
  if (family == "mixtral" || family == "qwen3_moe" || family == "gpt_oss") {
    l.experts.count = c.at("experts");
    l.experts.active = c.at("experts_per_token");
    l.experts.each.width = c.at("intermediate");
  } else {
    l.mlp.width = c.at("intermediate");
  }
  l.norms = (family.starts_with("gemma") && family != "gemma") || family == "glm4" ? 4
            : family == "phi"                                                      ? 1
                                                                                   : 2;
  if (family == "phi" || family == "gpt_neox") {
    l.norm = model::NormKind::kLayer;
    a.q_bias = a.k_bias = a.v_bias = a.o_bias = true;
    l.mlp.gated = false;
    l.mlp.up_bias = l.mlp.down_bias = true;
  }
  return l;
}

/// Layer `index` of a model with experts of torchtitan.
inline model::Layer titan_layer_of(const nlohmann::json& c, model::Layer l, std::uint32_t index) {
  const nlohmann::json& moe = c.at("fsdp").at("moe");
  l.mlp = {}, l.experts = {};
  if (index < moe.value("dense", 0u)) {
    l.mlp.width = moe.at("dense_width");
  } else if ((index + 1) % moe.value("step", 1u)) {
    l.mlp.width = c.at("intermediate");
  } else {
    l.experts.count = c.at("experts");
    l.experts.active = c.at("experts_per_token");
    l.experts.each.width = c.at("intermediate");
    l.experts.shared.width = moe.at("shared").get<std::uint32_t>() * l.experts.each.width;
  }
  if (moe.contains("nope")) {
    model::Attention& a = l.attention;
    a.latent = true, a.q_lora_rank = moe.at("q_rank"), a.kv_lora_rank = moe.at("kv_rank");
    a.nope_head_dim = moe.at("nope"), a.rope_head_dim = moe.at("rope"), a.v_head_dim = c.at("head_dim");
  }
  return l;
}

inline model::Architecture architecture_of(const nlohmann::json& c) {
  model::Architecture a;
  a.family = c.at("family");
  if (a.family == "gemma3") a.family = "gemma3_text";
  a.vocab = c.at("vocab");
  a.hidden = c.at("hidden");
  a.tied = c.at("tied");
  if (a.family == "gpt2") a.learned_positions = c.at("sequence");
  const model::Layer l = layer_of(c, a.family);
  if (a.family == "phi" || a.family == "gpt_neox") a.final_norm = l.norm;
  a.head_bias = a.family == "phi";
  for (std::uint32_t i = 0; i < c.at("layers").get<std::uint32_t>(); ++i) {
    a.layers.push_back({l, 1});
    if (c.contains("fsdp") && c.at("fsdp").contains("moe")) a.layers.back().layer = titan_layer_of(c, l, i);
    if (a.family == "smollm3") a.layers.back().layer.attention.rotary = i % 2 == 0;
    if ((!a.family.starts_with("gemma") && a.family != "olmo3" && a.family != "gpt_oss") || i % 2 == 0)
      a.layers.back().layer.attention.window = c.at("window");
  }
  return a;
}

inline frameworks::StepSettings settings_of(const nlohmann::json& c) {
  using namespace frameworks;
  StepSettings s;
  s.batch = c.at("batch");
  s.sequence = c.at("sequence");
  s.accumulate = c.at("accumulate");
  s.weights = c.at("precision") == "bf16" ? Element::kBF16 : Element::kF32;
  s.autocast = c.at("precision") == "autocast";
  s.attention = c.at("attention") == "eager" ? AttentionKernel::kEager : AttentionKernel::kSdpa;
  s.checkpoint = c.at("checkpoint");
  s.reentrant = c.value("reentrant", false);
  if (c.value("liger", false)) s.liger = {true, true, true, true};
  s.cut_loss = c.value("cut", false);
  s.tiled_loss = c.value("fused", false);
  s.trainer_loss = c.value("factory", false);
  const std::string release = c.value("release", "");
  s.release = release == "4.45"   ? TransformersRelease::k445
              : release == "4.48" ? TransformersRelease::k446
              : release == "4.57" ? TransformersRelease::k454
                                  : TransformersRelease::k5;
  if (c.contains("dpo")) {
    s.batch *= 2;  // pairs
    s.preferences.trainer =
        c.at("dpo").at("trainer") == "trl" ? PreferenceTrainer::kTrl : PreferenceTrainer::kFactory;
    s.preferences.reference = c.at("dpo").at("reference");
    const bool mixed = s.autocast || (c.contains("fsdp") && c.at("fsdp").at("param") != "");
    if (mixed && s.preferences.trainer == PreferenceTrainer::kFactory && c.at("lora") == 0)
      s.preferences.reference_type = Element::kBF16;
  }
  if (c.contains("axolotl")) {
    s.autocast = true;
    for (const std::string kernel : c.at("axolotl"))
      (kernel == "mlp"   ? s.adapter_kernels.mlp
       : kernel == "qkv" ? s.adapter_kernels.qkv
                         : s.adapter_kernels.output) = true;
  }
  if (c.contains("quantized") && c.at("quantized").contains("adapters")) s.adapters = Element::kBF16;
  s.optimizer = c.at("optimizer") == "sgd"          ? Optimizer::kSgd
                : c.at("optimizer") == "adamw-8bit" ? Optimizer::kAdamW8bit
                                                    : Optimizer::kAdamW;
  s.f32_embedding_moments = s.optimizer == Optimizer::kAdamW8bit;
  s.loop = c.at("optimizer") == "adamw-fused" ? OptimizerLoop::kFused : OptimizerLoop::kForeach;
  s.lora_rank = c.at("lora");
  std::string targets = c.at("lora_targets");
  const std::uint32_t all = c.at("experts") == 0 ? 127 : kLoraQ | kLoraK | kLoraV | kLoraO;
  s.lora_targets = targets == "qv" ? kLoraQ | kLoraV : targets == "all" ? all : 0;
  if (targets.starts_with("experts"))
    s.lora_targets = targets == "experts" ? kLoraGate | kLoraUp | kLoraDown : 127;
  if (c.contains("ranks")) {
    constexpr const char* kNames[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                      "gate_proj", "up_proj", "down_proj"};
    for (int layer = 0; layer < c.at("layers").get<int>(); ++layer) {
      auto& ranks = s.lora_ranks.emplace_back();
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const std::string name = kNames[i], full = "layers." + std::to_string(layer) + ".self_attn." + name;
        ranks[i] = c.at("ranks").value(name, c.at("ranks").value(full, s.lora_rank));
      }
    }
  }
  s.lora_dropout = c.at("lora_dropout");
  s.dropout = c.at("dropout");
  if (c.contains("fsdp")) {
    const nlohmann::json& f = c.at("fsdp");
    const auto type = [&](const char* key, Element otherwise) {
      return f.at(key) == "" ? otherwise : f.at(key) == "bf16" ? Element::kBF16 : Element::kF32;
    };
    s.fsdp.ranks = f.at("world");
    s.fsdp.shards = s.weights;
    s.weights = type("param", s.weights);
    s.fsdp.reduce = type("reduce", s.fsdp.shards);
    s.fsdp.casts_output = f.at("output") != "";
    s.fsdp.reshard_after_forward = f.at("reshard");
    s.fsdp.reduce_every_micro_batch = f.at("sync") == "every";
    s.fsdp.separate_ends = f.contains("prepare");  // by accelerate
    if (s.lora_rank != 0 && s.fsdp.separate_ends) {
      s.fsdp.frozen = s.fsdp.shards;
      s.fsdp.shards = Element::kF32;  // adapters
      s.fsdp.reduce = type("reduce", s.fsdp.shards);
    }
    if (f.contains("flat")) {
      const nlohmann::json& flat = f.at("flat");
      s.fsdp.separate_ends = false;
      if (f.at("param") != "") s.fsdp.shards = Element::kF32;
      s.fsdp.flat = true;
      s.fsdp.original_parameters = flat.at("orig");
      s.fsdp.prefetches_forward = flat.at("forward");
      s.fsdp.backward_prefetch = flat.at("backward") == "pre"    ? BackwardPrefetch::kBefore
                                 : flat.at("backward") == "post" ? BackwardPrefetch::kAfter
                                                                 : BackwardPrefetch::kNone;
    }
    if (f.contains("modules")) {
      s.modules = ModelSource::kTorchtitan;
      s.tensor = f.value("tensor", 1u);
      if (f.contains("moe")) s.expert = f.at("moe").at("ep");
      const bool early = f.value("release", "0.2") == "0.0";
      s.fsdp.separate_ends = !early;
      s.fsdp.keeps_last_layer = s.composite_norms = early;
      s.checkpoint = f.at("recompute") == "full";
      s.selective = f.at("recompute") == "selective";
      const std::string recompute = f.at("recompute");
      if (recompute == "2" || recompute == "3") s.recomputed_layers = recompute == "2" ? 2 : 3;
    }
  }
  if (c.contains("zero")) {
    const nlohmann::json& z = c.at("zero");
    s.zero.stage = z.at("stage");
    s.zero.ranks = z.at("world");
    s.zero.rank = z.at("rank");
    s.zero.bucket = z.at("bucket");
    s.zero.overlap = z.at("overlap");
    s.zero.separate_vectors = z.at("groups") == 2;
    if (z.at("stage") == 3) {
      s.zero.sub_group = z.at("sub_group");
      s.zero.prefetch = z.at("prefetch");
      s.zero.persistence = z.at("persistence");
      s.zero.max_live = z.at("max_live");
      s.zero.reuse_distance = z.at("reuse");
    }
    if (z.contains("offload")) {
      s.zero.offload_optimizer = z.at("offload").at("optimizer");
      s.zero.offload_parameters = z.at("offload").at("param");
      s.zero.pinned = z.at("offload").at("pin");
    }
  }
  if (c.contains("tune")) {
    const nlohmann::json& tune = c.at("tune");
    s.modules = ModelSource::kTorchtune;
    s.loss = tune.at("loss") == "plain"     ? LossKind::kPlain
             : tune.at("loss") == "moved"   ? LossKind::kMovedLogits
             : tune.at("loss") == "chunked" ? LossKind::kChunkedLogits
                                            : LossKind::kChunkedHead;
    s.update_in_backward = tune.at("in_backward");
    s.nf4 = tune.at("nf4");
    s.packed = tune.at("packed");
    s.positions = s.sequence + 7;
    const bool mlp = targets.ends_with("+mlp");
    targets = targets.substr(0, targets.find('+'));
    s.lora_targets = targets.empty() ? 0u : kLoraQ | kLoraV;
    if (targets == "most" || targets == "all") s.lora_targets |= kLoraO;
    if (targets == "all") s.lora_targets |= kLoraK;
    if (mlp) s.lora_targets |= kLoraGate | kLoraUp | kLoraDown;
  }
  if (c.contains("litgpt")) {
    s.modules = ModelSource::kLitgpt;
    // "bf16-mixed" of Fabric is autocast, also where FSDP1 gathers in bf16.
    if (s.fsdp.flat && s.fsdp.is_mixed()) s.autocast = true;
    s.lora_targets = targets.ends_with("+mlp") ? kLoraGate | kLoraUp | kLoraDown : 0u;
    for (const char target : targets.substr(0, targets.find('+')))
      s.lora_targets |= target == 'q' ? kLoraQ : target == 'k' ? kLoraK : target == 'v' ? kLoraV : kLoraO;
  }
  if (c.contains("quantized")) {
    const nlohmann::json& q = c.at("quantized");
    if (q.at("type") == "int8") {
      s.int8 = true;
      s.outliers = q.at("outliers").get<std::uint32_t>();
    } else {
      s.nf4 = true;
      s.double_quantized = q.at("double");
    }
    s.whole_packed = q.value("whole", false);
    s.autocast = q.at("autocast");
    if (q.at("prepared") == "trl")
      s.norm_weights = Element::kF32;
    else if (q.at("prepared") == "axolotl")
      s.expert_weights = Element::kF32;
    else if (q.at("prepared"))
      s.weights = Element::kF32;
  }
  // The oracle runs fake tensors on the CPU, and does not see inside kernels.
  s.machine = {.subclass_gradients = true,
               .kernel_temporaries = false,
               .counters_on_device = true,
               .multiprocessors = 1};
  return s;
}

}  // namespace trainhost::test
