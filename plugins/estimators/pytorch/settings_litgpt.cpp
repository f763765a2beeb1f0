// litgpt with precision bf16-true: finetune_lora on any number of devices, finetune_full on one. Settings
// only; its modules are in core/frameworks. Published runs: docs/pytorch-memory.md ("Published runs of
// litgpt").
#include <algorithm>
#include <string>
#include <utility>

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

/// Layers that litgpt builds from one norm class, one fused projection and LLaMAMLP or GptNeoxMLP.
bool is_described(const model::LayerRun& run) {
  const model::Layer& l = run.layer;
  const model::Attention& a = l.attention;
  const bool biases = a.q_bias == a.k_bias && a.q_bias == a.v_bias;
  const bool norms = l.norm == model::NormKind::kRms || l.norm == model::NormKind::kLayer;
  const bool qk_norm = a.qk_norm == model::NormKind::kNone || (a.qk_norm == l.norm && a.qk_norm_per_head);
  return biases && norms && qk_norm && !a.latent && l.experts.count == 0 && l.norms <= 2;
}

void check_precision(const RunSpec& r, const frameworks::StepSettings& s) {
  const auto bf16 = [](DType type) { return type == DType::kNone || type == DType::kBF16; };
  const bool adapts = r.mode != RunMode::kFull;
  if (r.compute != DType::kBF16 || (adapts && !s.nf4 && !bf16(r.memory.frozen)))
    reject("a precision other than \"bf16\" in litgpt", "its precision bf16-true was compared");
  for (const auto& [type, key] :
       {std::pair{r.grad, "plan.gradients"}, {r.moment, "plan.moments"}, {r.weight, "plan.weights"}})
    // f32 is the default of the run file, so it may not have been asked for.
    if (!bf16(type) && type != DType::kF32 && !adapts)
      reject(std::string(key) + " = \"" + std::string(run_file_name(type)) + "\"",
             "with precision bf16-true litgpt has every tensor in bf16");
}

/// On several devices finetune_lora shards with fully_shard and recomputes every layer, without a choice.
void choose_devices(const RunSpec& r, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (r.parallel.data == 1) {
    if (s.checkpoint) reject("recomputation in litgpt", "on one device litgpt keeps all activations");
    return;
  }
  if (!s.lora_rank)
    reject("full training on several ranks in litgpt",
           "the FSDP of torch with flat parameters is not replayed");
  if (s.nf4) reject("NF4 weights on several ranks", "litgpt refuses them");
  if (!s.checkpoint)
    reject("several ranks without recomputation in litgpt", "it recomputes every layer there",
           "set train.recompute to \"full\"");
  if (r.parallel.zero != 3)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with several ranks in litgpt",
           "finetune_lora shards with fully_shard", "set parallel.zero to 3");
  s.ddp.on = false;
  s.fsdp.ranks = r.parallel.data;
  s.fsdp.shards = s.fsdp.reduce = frameworks::Element::kBF16;
  s.fsdp.reduce_every_micro_batch = false;
  notes.push_back("FSDP2: " + std::to_string(s.fsdp.ranks) +
                  " ranks; every layer and the model are units, in bf16.");
}

}  // namespace

void set_litgpt(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                std::vector<std::string>& notes) {
  if (!frameworks::has_builder(a.family, frameworks::ModelSource::kLitgpt) ||
      !std::ranges::all_of(a.layers, is_described))
    reject("this model in litgpt", "of its models Llama, Mistral, Qwen2, Qwen3, Phi and Pythia are replayed");
  s.nf4 = r.mode == RunMode::kQlora && r.memory.frozen == DType::kNF4;
  s.double_quantized = r.memory.double_quantized;
  if (r.mode == RunMode::kQlora && !s.nf4)
    reject("this base of litgpt", "of quantized bases nf4 is replayed");
  check_precision(r, s);
  constexpr std::uint32_t kMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  const std::uint32_t mlp = r.lora_targets & kMlp;
  if (s.lora_rank && mlp && mlp != kMlp)
    reject("these lora.targets in litgpt", "lora_mlp adapts all matrices of the MLP",
           "name gate_proj, up_proj and down_proj, or none of them");
  choose_devices(r, s, notes);
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\"", "litgpt calls scaled_dot_product_attention");
  s.modules = frameworks::ModelSource::kLitgpt;
  s.weights = frameworks::Element::kBF16;
  notes.push_back(
      "litgpt has weights and moments in bf16 (bf16-true). Its f32 logits are kept until the next "
      "micro-batch "
      "has computed its own.");
  if (s.lora_dropout > 0)
    notes.push_back("The inputs of the adapters pass a dropout (lora.dropout), whose masks are kept.");
  if (a.tied) notes.push_back("litgpt does not tie the head to the embedding: both are counted.");
  if (s.nf4)
    notes.push_back(
        "The embedding is counted three times: litgpt keeps the one that it replaces, and the gradient of "
        "the "
        "new one.");
}

}  // namespace trainhost::pytorch
