// See convert_structs.hpp. Every field appears once in each direction, in the order of the C struct;
// tests/core/abi converts random values there and back, so a forgotten field fails a test.
// Reading: a plugin built with older headers may pass a shorter struct. TH_READ reads a field only if all of
// its bytes are within struct_size; otherwise the C++ field keeps its default. Where zero is not a valid
// value it means "not set", because a caller that does not know a field leaves it zero.
#include "core/abi/convert_structs.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/abi/enums.hpp"

namespace trainhost::abi {
namespace {

/// `value`, or `otherwise` if `value` is zero, which means unset. Only for fields in which zero is no value.
template <class T>
T set_or(T value, T otherwise) {
  return value == T{} ? otherwise : value;
}

/// The enum of that number; `otherwise` if the number is zero (unset) or unknown. An unknown number comes
/// from a newer minor version; casting it would give an enum without an enumerator.
template <class E>
E enum_or(std::uint32_t value, E last, E otherwise) {
  return value == 0 || value > static_cast<std::uint32_t>(last) ? otherwise : static_cast<E>(value);
}

/// Truncates silently: names are for display, and a field without a NUL would be read beyond its end.
template <std::size_t N>
void copy_name(char (&to)[N], const std::string& from) {
  std::size_t n = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

/// strnlen: a plugin may fill the field completely, without a NUL.
template <std::size_t N>
std::string name_from(const char (&from)[N]) {
  return std::string(from, ::strnlen(from, N));
}

/// 0 means "not offloaded", which is what a struct without this field means.
std::uint32_t offloaded_to(Tier t) { return t == Tier::kDevice ? 0u : static_cast<std::uint32_t>(t); }

}  // namespace

/// Strings are borrowed from `m` (see the header), so nothing is allocated on the way to a plugin.
th_model to_c(const ModelSpec& m) {
  th_model c{};
  c.struct_size = sizeof c;
  // Booleans are bits: the size of bool is not fixed in C.
  c.flags = (m.tied ? TH_MODEL_TIED_EMBEDDINGS : 0u) | (m.qkv_bias ? TH_MODEL_QKV_BIAS : 0u) |
            (m.o_bias ? TH_MODEL_O_BIAS : 0u) | (m.mlp_bias ? TH_MODEL_MLP_BIAS : 0u) |
            (m.qk_norm ? TH_MODEL_QK_NORM : 0u);
  c.family = m.family.c_str();
  c.name = m.name.c_str();
  c.vocab = m.vocab;
  c.max_positions = m.max_positions;
  c.hidden = m.hidden;
  c.layers = m.layers;
  c.heads = m.heads;
  c.kv_heads = m.kv_heads;
  c.head_dim = m.head_dim;
  c.intermediate = m.intermediate;
  c.sliding_window = m.sliding_window;
  c.first_window_layer = m.first_window_layer;
  c.rope_theta = m.rope_theta;
  c.norm_eps = m.norm_eps;
  c.initializer_range = m.initializer_range;
  c.rope_kind = static_cast<std::uint32_t>(m.rope.kind);
  c.rope_factor = m.rope.factor;
  c.rope_low_freq_factor = m.rope.low_freq_factor;
  c.rope_high_freq_factor = m.rope.high_freq_factor;
  c.rope_original_max_positions = m.rope.original_max_positions;
  // Null instead of "": a plugin can tell "no config.json" from an empty file.
  c.config_json = m.config_json.empty() ? nullptr : m.config_json.c_str();
  return c;
}

/// Dimensions are not checked here; validate() (core/model/model_spec.hpp) does that, for every caller.
ModelSpec from_c(const th_model& c) {
  ModelSpec m;
  auto has = [&](std::size_t end) { return c.struct_size >= end; };
#define TH_READ(field, ...) \
  if (has(offsetof(th_model, field) + sizeof c.field)) __VA_ARGS__
  TH_READ(flags, {
    m.tied = c.flags & TH_MODEL_TIED_EMBEDDINGS;
    m.qkv_bias = c.flags & TH_MODEL_QKV_BIAS;
    m.o_bias = c.flags & TH_MODEL_O_BIAS;
    m.mlp_bias = c.flags & TH_MODEL_MLP_BIAS;
    m.qk_norm = c.flags & TH_MODEL_QK_NORM;
  });
  TH_READ(family, m.family = c.family ? c.family : "");
  TH_READ(name, m.name = c.name ? c.name : "");
  TH_READ(vocab, m.vocab = c.vocab);
  TH_READ(max_positions, m.max_positions = set_or(c.max_positions, m.max_positions));
  TH_READ(hidden, m.hidden = c.hidden);
  TH_READ(layers, m.layers = c.layers);
  TH_READ(heads, m.heads = c.heads);
  TH_READ(kv_heads, m.kv_heads = c.kv_heads);
  TH_READ(head_dim, m.head_dim = c.head_dim);
  TH_READ(intermediate, m.intermediate = c.intermediate);
  TH_READ(sliding_window, m.sliding_window = c.sliding_window);
  TH_READ(first_window_layer, m.first_window_layer = c.first_window_layer);
  TH_READ(rope_theta, m.rope_theta = set_or(c.rope_theta, m.rope_theta));
  TH_READ(norm_eps, m.norm_eps = set_or(c.norm_eps, m.norm_eps));
  // 0 is valid: weights that start at zero.
  TH_READ(initializer_range, m.initializer_range = c.initializer_range);
  TH_READ(rope_kind, m.rope.kind = enum_or(c.rope_kind, RopeKind::kLlama3, RopeKind::kDefault));
  TH_READ(rope_factor, m.rope.factor = set_or(c.rope_factor, m.rope.factor));
  TH_READ(rope_low_freq_factor,
          m.rope.low_freq_factor = set_or(c.rope_low_freq_factor, m.rope.low_freq_factor));
  TH_READ(rope_high_freq_factor,
          m.rope.high_freq_factor = set_or(c.rope_high_freq_factor, m.rope.high_freq_factor));
  TH_READ(rope_original_max_positions, m.rope.original_max_positions = set_or(c.rope_original_max_positions,
                                                                              m.rope.original_max_positions));
  TH_READ(config_json, m.config_json = c.config_json ? c.config_json : "");
#undef TH_READ
  return m;
}

/// Fields of parallelism and recomputation are in two places of the struct, because its order is frozen.
th_run to_c(const RunSpec& r) {
  th_run c{};
  c.struct_size = sizeof c;
  c.mode = static_cast<std::uint32_t>(r.mode);
  c.micro_batch = r.micro_batch;
  c.seq_len = r.seq_len;
  c.accumulate = r.accumulate;
  c.dt_weight = static_cast<std::uint32_t>(r.weight);
  c.dt_grad = static_cast<std::uint32_t>(r.grad);
  c.dt_master = static_cast<std::uint32_t>(r.master);
  c.dt_moment = static_cast<std::uint32_t>(r.moment);
  c.dt_compute = static_cast<std::uint32_t>(r.compute);
  c.optimizer = static_cast<std::uint32_t>(r.optimizer);
  c.recompute = static_cast<std::uint32_t>(r.recompute);
  c.zero_stage = r.parallel.zero;
  c.data_parallel = r.parallel.data;
  c.tensor_parallel = r.parallel.tensor;
  c.pipeline_parallel = r.parallel.pipeline;
  c.lora_rank = r.lora_rank;
  c.lora_targets = r.lora_targets;
  c.lora_alpha = r.lora_alpha;
  c.beta1 = r.beta1;
  c.beta2 = r.beta2;
  c.eps = r.eps;
  c.weight_decay = r.weight_decay;
  c.clip_norm = r.clip_norm;
  c.seed = r.seed;
  c.device_budget = r.device_budget;
  c.host_budget = r.host_budget;
  // Numbers of layers, counted from the first layer; used if recompute is TH_RC_LAYERS.
  c.recompute_full = r.recompute_layers.full;
  c.recompute_mlp = r.recompute_layers.mlp;
  c.recompute_selective = r.recompute_layers.selective;
  const MemoryPolicy& memory = r.memory;
  c.layout_flags = (r.parallel.sequence ? TH_LAYOUT_SEQUENCE_PARALLEL : 0u) |
                   (memory.double_quantized ? TH_LAYOUT_DOUBLE_QUANTIZED : 0u) |
                   (memory.dora ? TH_LAYOUT_DORA : 0u);
  c.context_parallel = r.parallel.context;
  c.expert_parallel = r.parallel.expert;
  c.interleave = r.parallel.virtual_stages;
  c.vocab_multiple = memory.vocab_multiple;
  c.recompute_every = memory.recompute_every;
  c.attention = static_cast<std::uint32_t>(memory.attention);
  // The kinds that th_run does not have are nearest to the fused one: no logits of all tokens.
  const CrossEntropy loss =
      memory.cross_entropy > CrossEntropy::kInPlace ? CrossEntropy::kFused : memory.cross_entropy;
  c.cross_entropy = static_cast<std::uint32_t>(loss);
  c.weights_tier = offloaded_to(memory.weights_in);
  c.optimizer_tier = offloaded_to(memory.optimizer_in);
  c.activations_tier = offloaded_to(memory.activations_in);
  c.dt_frozen = static_cast<std::uint32_t>(memory.frozen);
  c.dt_kv_cache = static_cast<std::uint32_t>(memory.kv_cache);
  c.kv_page = memory.kv_page;
  c.trainable = r.trainable.empty() ? nullptr : r.trainable.c_str();
  c.lora_dropout = memory.lora_dropout;
  c.document_mask = r.document_mask;
  c.data_rank = r.parallel.data_rank;
  c.tensor_rank = r.parallel.tensor_rank;
  c.lora_rules = r.lora_rules.empty() ? nullptr : r.lora_rules.c_str();
  return c;
}

/// Parallel sizes of 0 are 1, so code that divides by them is safe for every caller.
RunSpec from_c(const th_run& c) {
  RunSpec r;
  auto has = [&](std::size_t end) { return c.struct_size >= end; };
#define TH_READ(field, ...) \
  if (has(offsetof(th_run, field) + sizeof c.field)) __VA_ARGS__
  TH_READ(mode, r.mode = enum_or(c.mode, RunMode::kInference, r.mode));
  TH_READ(micro_batch, r.micro_batch = set_or(c.micro_batch, r.micro_batch));
  TH_READ(seq_len, r.seq_len = set_or(c.seq_len, r.seq_len));
  TH_READ(accumulate, r.accumulate = set_or(c.accumulate, r.accumulate));
  // kI4 is the last number type of this minor version, so larger numbers are unknown here.
  TH_READ(dt_weight, r.weight = enum_or(c.dt_weight, DType::kI4, r.weight));
  TH_READ(dt_grad, r.grad = enum_or(c.dt_grad, DType::kI4, r.grad));
  TH_READ(dt_master, r.master = enum_or(c.dt_master, DType::kI4, DType::kNone));
  TH_READ(dt_moment, r.moment = enum_or(c.dt_moment, DType::kI4, r.moment));
  TH_READ(dt_compute, r.compute = enum_or(c.dt_compute, DType::kI4, r.compute));
  TH_READ(optimizer, r.optimizer = enum_or(c.optimizer, Optimizer::kAdamW8bit, r.optimizer));
  TH_READ(recompute, r.recompute = enum_or(c.recompute, Recompute::kLayers, r.recompute));
  // ZeRO stage 0 is a value, unlike the sizes below, of which 0 means 1.
  TH_READ(zero_stage, r.parallel.zero = c.zero_stage);
  TH_READ(data_parallel, r.parallel.data = set_or(c.data_parallel, r.parallel.data));
  TH_READ(tensor_parallel, r.parallel.tensor = set_or(c.tensor_parallel, r.parallel.tensor));
  TH_READ(pipeline_parallel, r.parallel.pipeline = set_or(c.pipeline_parallel, r.parallel.pipeline));
  // Zero is a valid value of these fields: rank 0 means no adapters, beta 0 no moment.
  TH_READ(lora_rank, r.lora_rank = c.lora_rank);
  TH_READ(lora_targets, r.lora_targets = c.lora_targets);
  TH_READ(lora_alpha, r.lora_alpha = c.lora_alpha);
  TH_READ(beta1, r.beta1 = c.beta1);
  TH_READ(beta2, r.beta2 = c.beta2);
  TH_READ(eps, r.eps = c.eps);
  TH_READ(weight_decay, r.weight_decay = c.weight_decay);
  TH_READ(clip_norm, r.clip_norm = c.clip_norm);
  TH_READ(seed, r.seed = c.seed);
  TH_READ(device_budget, r.device_budget = c.device_budget);
  TH_READ(host_budget, r.host_budget = c.host_budget);
  // 0 is valid: no layer has this policy.
  TH_READ(recompute_full, r.recompute_layers.full = c.recompute_full);
  TH_READ(recompute_mlp, r.recompute_layers.mlp = c.recompute_mlp);
  TH_READ(recompute_selective, r.recompute_layers.selective = c.recompute_selective);
  TH_READ(layout_flags, {
    r.parallel.sequence = c.layout_flags & TH_LAYOUT_SEQUENCE_PARALLEL;
    r.memory.double_quantized = c.layout_flags & TH_LAYOUT_DOUBLE_QUANTIZED;
    r.memory.dora = c.layout_flags & TH_LAYOUT_DORA;
  });
  TH_READ(context_parallel, r.parallel.context = set_or(c.context_parallel, 1u));
  TH_READ(expert_parallel, r.parallel.expert = set_or(c.expert_parallel, 1u));
  TH_READ(interleave, r.parallel.virtual_stages = set_or(c.interleave, 1u));
  TH_READ(vocab_multiple, r.memory.vocab_multiple = set_or(c.vocab_multiple, 1u));
  TH_READ(recompute_every, r.memory.recompute_every = set_or(c.recompute_every, 1u));
  TH_READ(attention,
          r.memory.attention = enum_or(c.attention, AttentionMemory::kMaterialised, r.memory.attention));
  TH_READ(cross_entropy,
          r.memory.cross_entropy = enum_or(c.cross_entropy, CrossEntropy::kInPlace, r.memory.cross_entropy));
  TH_READ(weights_tier, r.memory.weights_in = enum_or(c.weights_tier, Tier::kDisk, Tier::kDevice));
  TH_READ(optimizer_tier, r.memory.optimizer_in = enum_or(c.optimizer_tier, Tier::kDisk, Tier::kDevice));
  TH_READ(activations_tier,
          r.memory.activations_in = enum_or(c.activations_tier, Tier::kDisk, Tier::kDevice));
  TH_READ(dt_frozen, r.memory.frozen = enum_or(c.dt_frozen, DType::kI4, DType::kNone));
  TH_READ(dt_kv_cache, r.memory.kv_cache = enum_or(c.dt_kv_cache, DType::kI4, DType::kNone));
  TH_READ(kv_page, r.memory.kv_page = set_or(c.kv_page, 1u));
  TH_READ(trainable, r.trainable = c.trainable ? c.trainable : "");
  TH_READ(lora_rules, r.lora_rules = c.lora_rules ? c.lora_rules : "");
  TH_READ(lora_dropout, r.memory.lora_dropout = c.lora_dropout);
  TH_READ(document_mask, r.document_mask = c.document_mask != 0);
  TH_READ(data_rank, r.parallel.data_rank = c.data_rank);
  TH_READ(tensor_rank, r.parallel.tensor_rank = c.tensor_rank);
#undef TH_READ
  return r;
}

/// The traits of a trainer (th_profile in C). Names are copied: the struct outlives the call in the host.
th_profile to_c(const TrainerTraits& p) {
  th_profile c{};
  c.struct_size = sizeof c;
  c.alignment = p.alignment;
  c.head_chunk_tokens = p.head_chunk_tokens;
  c.attention_tile_q = p.attention_tile_q;
  c.attention_tile_k = p.attention_tile_k;
  c.threads = p.threads;
  c.slots = p.slots;
  c.tier = static_cast<std::uint32_t>(p.tier);
  c.workspace_bytes = p.workspace_bytes;
  // Fixed arrays in C, so that the struct owns its names.
  copy_name(c.trainer, p.trainer);
  copy_name(c.mode, p.mode);
  c.flags = p.f32_storage ? TH_PROFILE_F32_STORAGE : 0;
  c.recompute_full = p.recompute_layers.full;
  c.recompute_mlp = p.recompute_layers.mlp;
  c.recompute_selective = p.recompute_layers.selective;
  c.runtime_bytes = p.runtime_bytes;
  return c;
}

/// A newer trainer's mode name is kept as text, so the host can print modes that it does not know.
TrainerTraits from_c(const th_profile& c) {
  TrainerTraits p;
  auto has = [&](std::size_t end) { return c.struct_size >= end; };
#define TH_READ(field, ...) \
  if (has(offsetof(th_profile, field) + sizeof c.field)) __VA_ARGS__
  // head_chunk_tokens and workspace_bytes are read as they are: 0 is a valid value of both.
  TH_READ(alignment, p.alignment = set_or(c.alignment, p.alignment));
  TH_READ(head_chunk_tokens, p.head_chunk_tokens = c.head_chunk_tokens);
  TH_READ(attention_tile_q, p.attention_tile_q = set_or(c.attention_tile_q, p.attention_tile_q));
  TH_READ(attention_tile_k, p.attention_tile_k = set_or(c.attention_tile_k, p.attention_tile_k));
  TH_READ(threads, p.threads = set_or(c.threads, p.threads));
  TH_READ(slots, p.slots = set_or(c.slots, p.slots));
  TH_READ(tier, p.tier = enum_or(c.tier, Tier::kDisk, p.tier));
  TH_READ(workspace_bytes, p.workspace_bytes = c.workspace_bytes);
  TH_READ(trainer, p.trainer = name_from(c.trainer));
  TH_READ(mode, p.mode = name_from(c.mode));
  TH_READ(flags, p.f32_storage = c.flags & TH_PROFILE_F32_STORAGE);
  TH_READ(recompute_full, p.recompute_layers.full = c.recompute_full);
  TH_READ(recompute_mlp, p.recompute_layers.mlp = c.recompute_mlp);
  TH_READ(recompute_selective, p.recompute_layers.selective = c.recompute_selective);
  TH_READ(runtime_bytes, p.runtime_bytes = c.runtime_bytes);
#undef TH_READ
  return p;
}

}  // namespace trainhost::abi
