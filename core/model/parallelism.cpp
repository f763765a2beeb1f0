// The table of settings that only planners implement: one row per run-file key with its default. A run that
// differs from a default in any row can be planned but not trained; the first such row is named in the
// message.
#include "core/model/parallelism.hpp"

#include <algorithm>
#include <iterator>
#include <variant>

#include "core/base/types.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost {
namespace {

/// Types of matrix products. TF32 exists only on devices; a trainer without it rejects it.
bool is_implemented(DType compute) {
  return compute == DType::kF32 || compute == DType::kTF32 || compute == DType::kBF16;
}

// A trainer stores weights in the type that it computes with; TF32 is stored as f32.
bool matches(DType weight, DType compute) {
  return weight == (compute == DType::kBF16 ? DType::kBF16 : DType::kF32);
}

const char* cross_entropy_name(CrossEntropy kind) {
  switch (kind) {
    case CrossEntropy::kFused:
      return "fused";
    case CrossEntropy::kPlain:
      return "plain";
    case CrossEntropy::kInPlace:
      return "in-place";
    case CrossEntropy::kLiger:
      return "liger";
    case CrossEntropy::kCut:
      return "cut";
  }
  return "";
}

/// A value in a run file. As text only where it is needed: the table is read for every plan.
using SettingValue = std::variant<bool, std::uint64_t, double, std::string_view>;

std::string text_of(const SettingValue& value) {
  if (const auto* word = std::get_if<std::string_view>(&value)) return '"' + std::string(*word) + '"';
  if (const auto* number = std::get_if<std::uint64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) return std::to_string(*number);
  return std::get<bool>(value) ? "true" : "false";
}

// bf16 weights have too few bits to add small updates to.
DType master_type(DType weight) { return weight == DType::kBF16 ? DType::kF32 : DType::kNone; }

}  // namespace

PlannedOnly planned_only_setting(const RunSpec& r) {
  const MemoryPolicy& memory = r.memory;
  const bool adapts = r.mode == RunMode::kLora || r.mode == RunMode::kQlora;
  const bool nf4 =
      r.mode == RunMode::kQlora && (memory.frozen == DType::kNone || memory.frozen == DType::kNF4);
  const auto n = [](std::uint64_t v) { return SettingValue{v}; };
  const auto quoted = [](std::string_view v) { return SettingValue{v}; };
  const auto type = [&](DType t) { return quoted(run_file_name(t)); };
  const auto target = [&](Tier t) { return quoted(offload_name(t)); };
  // A program is that of one rank; without a rank, several ranks can only be planned.
  const bool ranked = r.parallel.data_rank > 0;
  const struct {
    bool differs;
    const char* key;
    SettingValue value;
  } rows[] = {
      {r.parallel.data != 1 && !ranked, "parallel.data", n(r.parallel.data)},
      {r.parallel.tensor != 1 && (r.parallel.tensor_rank == 0 || r.mode == RunMode::kInference),
       "parallel.tensor", n(r.parallel.tensor)},
      {r.parallel.pipeline != 1, "parallel.pipeline", n(r.parallel.pipeline)},
      {r.parallel.zero > (ranked ? 3u : 0u), "parallel.zero", n(r.parallel.zero)},
      {r.parallel.sequence && r.parallel.tensor == 1, "parallel.sequence", true},
      {r.parallel.context != 1, "parallel.context", n(r.parallel.context)},
      {r.parallel.expert != 1, "parallel.expert", n(r.parallel.expert)},
      {r.parallel.virtual_stages != 1, "parallel.interleave", n(r.parallel.virtual_stages)},
      {memory.vocab_multiple != 1, "parallel.vocab_multiple", n(memory.vocab_multiple)},
      {memory.recompute_every != 1, "train.recompute_every", n(memory.recompute_every)},
      {!is_implemented(r.compute), "train.precision", type(r.compute)},
      {!matches(r.weight, r.compute), "plan.weights", type(r.weight)},
      {r.grad != DType::kF32, "plan.gradients", type(r.grad)},
      {r.master != master_type(r.weight), "plan.master", type(r.master)},
      {r.moment != DType::kF32, "plan.moments", type(r.moment)},
      {memory.attention != AttentionMemory::kFlash, "plan.attention", quoted("materialised")},
      {memory.cross_entropy != CrossEntropy::kFused, "plan.cross_entropy",
       quoted(cross_entropy_name(memory.cross_entropy))},
      {memory.weights_in != Tier::kDevice, "plan.offload_weights", target(memory.weights_in)},
      {memory.optimizer_in != Tier::kDevice, "plan.offload_optimizer", target(memory.optimizer_in)},
      {memory.gradients_in != Tier::kDevice, "plan.offload_gradients", target(memory.gradients_in)},
      {memory.activations_in != Tier::kDevice, "plan.offload_activations", target(memory.activations_in)},
      {memory.gap_permille != 200, "plan.allocator_margin", memory.gap_permille / 1000.0},
      {memory.prefill_chunk != 0, "plan.prefill_chunk", n(memory.prefill_chunk)},
      {r.parallel.expert_tensor != 0, "plan.expert_tensor", n(r.parallel.expert_tensor)},
      {r.parallel.first_stage_layers != 0, "plan.first_stage_layers", n(r.parallel.first_stage_layers)},
      {r.parallel.last_stage_layers != 0, "plan.last_stage_layers", n(r.parallel.last_stage_layers)},
      // Adapters are trained over weights in the type of the run or (RunMode::kQlora) in NF4.
      {memory.frozen != DType::kNone && memory.frozen != r.weight && !nf4, "lora.base", type(memory.frozen)},
      {memory.double_quantized && !nf4, "lora.double_quant", true},
      {memory.dora && !adapts, "lora.dora", true},
      {memory.adapts_head, "lora.targets", quoted("lm_head")},
      {memory.adapts_embedding, "lora.targets", quoted("embed_tokens")},
      {memory.saves_head, "lora.modules_to_save", quoted("lm_head")},
      {memory.saves_embedding, "lora.modules_to_save", quoted("embed_tokens")},
      {adapts != (r.lora_rank > 0), "lora.rank", n(r.lora_rank)},
      {adapts != (r.lora_targets != 0), "lora.targets", n(r.lora_targets)},
      {!adapts && r.lora_alpha != 0, "lora.alpha", double{r.lora_alpha}},
      {!adapts && memory.lora_dropout != 0, "lora.dropout", double{memory.lora_dropout}},
      {memory.kv_cache != DType::kNone, "plan.kv_cache", type(memory.kv_cache)},
      {memory.kv_page != 1, "plan.kv_page", n(memory.kv_page)},
  };
  for (const auto& row : rows)
    if (row.differs) return {row.key, text_of(row.value)};
  return {};
}

bool trains_by_program(const ModelSpec& m, const RunSpec& r) {
  return trainable_family(m.family) && r.mode != RunMode::kInference && !planned_only_setting(r);
}

PackedWeights packed_weights_of(std::string_view framework, std::string_view storage, bool flat) {
  // NF4Tensor of torchao, which torchtune has: FSDP2 shards its scales too.
  if (framework.empty() || framework == "trainhost" || framework == "torchtune")
    return PackedWeights::kSharded;
  if (framework == "deepspeed") return PackedWeights::kScalesWhole;
  const bool bytes = storage.empty() ? framework != "llama-factory" && !flat : storage == "uint8";
  return bytes ? PackedWeights::kWhole : PackedWeights::kScalesWhole;
}

void set_quantized_base(std::string_view framework, std::optional<bool> quantize_experts, RunSpec& r) {
  MemoryPolicy& memory = r.memory;
  memory.dequantizes = !framework.empty() && framework != "trainhost";
  constexpr std::string_view kOfTransformers[] = {"pytorch",   "transformers",  "fsdp2",
                                                  "deepspeed", "llama-factory", "axolotl"};
  const bool stacked = std::ranges::find(kOfTransformers, framework) != std::end(kOfTransformers);
  const bool packed = r.mode == RunMode::kQlora || memory.frozen == DType::kNF4 ||
                      memory.frozen == DType::kI4 || memory.frozen == DType::kI8;
  memory.stacks_quantized_experts = stacked && packed && quantize_experts.value_or(false);
  memory.frozen_experts = DType::kNone;
  if (!stacked || !packed || quantize_experts.value_or(false)) return;
  // Units of FSDP have one type, DeepSpeed casts the model, and LLaMA-Factory does not call that function.
  // axolotl casts back no more than embeddings, norms and the head.
  const bool half = r.compute == DType::kBF16 || r.compute == DType::kF16;
  const bool casts = r.parallel.zero == 0 &&
                     (framework == "axolotl" ||
                      ((framework == "transformers" || framework == "pytorch") && r.master != DType::kNone));
  memory.frozen_experts = half && !casts ? r.compute : DType::kF32;
}

}  // namespace trainhost
