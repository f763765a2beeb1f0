// litgpt: finetune_full and finetune_lora with precision bf16-true, bf16-mixed or 32-true. Settings only; its
// modules are in core/frameworks. Published runs: docs/published-runs.md ("litgpt").
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

/// Precisions of Lightning Fabric. "bf16-true" is also what train.precision = "bf16" alone means; with
/// adapters lora.base = "fp32" means "bf16-mixed".
enum class Precision { kBf16True, kBf16Mixed, k32True };

Precision precision_of(const RunSpec& r, const frameworks::StepSettings& s) {
  const auto bf16 = [](DType type) { return type == DType::kNone || type == DType::kBF16; };
  const bool adapts = r.mode != RunMode::kFull;
  const bool f32 = r.compute == DType::kF32 || r.compute == DType::kTF32;
  if (r.compute != DType::kBF16 && !f32)
    reject("a precision other than \"bf16\" and \"fp32\" in litgpt", "of Fabric bf16 and f32 were compared");
  if (adapts) {
    const DType base = r.memory.frozen;
    if (s.nf4 && f32) reject("NF4 weights in f32", "litgpt quantizes with precision bf16-true only");
    if (!s.nf4 && !bf16(base) && base != DType::kF32)
      reject("lora.base = \"" + std::string(run_file_name(base)) + "\" in litgpt",
             "it trains adapters over a base in bf16, f32 or nf4");
    if (f32 && bf16(base) && base != DType::kNone)
      reject("lora.base = \"bf16\" with train.precision = \"fp32\" in litgpt",
             "with its precision 32-true every tensor is in f32");
    return f32 ? Precision::k32True : base == DType::kF32 ? Precision::kBf16Mixed : Precision::kBf16True;
  }
  const Precision precision = f32                       ? Precision::k32True
                              : r.weight == DType::kF32 ? Precision::kBf16Mixed
                                                        : Precision::kBf16True;
  for (const auto& [type, key] :
       {std::pair{r.grad, "plan.gradients"}, {r.moment, "plan.moments"}, {r.weight, "plan.weights"}})
    // f32 is the default of the run file, so it may not have been asked for.
    if (type != DType::kF32 && (precision != Precision::kBf16True || !bf16(type)) && type != DType::kNone)
      reject(std::string(key) + " = \"" + std::string(run_file_name(type)) + "\"",
             precision == Precision::kBf16True ? "with precision bf16-true litgpt has every tensor in bf16"
                                               : "litgpt has f32 weights, gradients and moments");
  return precision;
}

void set_types(Precision precision, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  using frameworks::Element;
  s.weights = precision == Precision::kBf16True ? Element::kBF16 : Element::kF32;
  s.autocast = precision == Precision::kBf16Mixed;
  const char* const logits = " Its f32 logits are kept until the next micro-batch has computed its own.";
  notes.push_back((precision == Precision::kBf16True ? "litgpt has weights and moments in bf16 (bf16-true)."
                   : s.autocast ? "litgpt has weights and moments in f32 and autocast to bf16 (bf16-mixed)."
                                : std::string("litgpt has every tensor in f32 (32-true).")) +
                  logits);
}

/// On several devices finetune_lora shards with fully_shard, before August 2025 with FSDPStrategy of Fabric,
/// as finetune_full does; both recompute every layer, without a choice.
void choose_devices(const RunSpec& r, LitgptRelease release, frameworks::StepSettings& s,
                    std::vector<std::string>& notes) {
  if (r.parallel.data == 1) {
    if (s.checkpoint) reject("recomputation in litgpt", "on one device litgpt keeps all activations");
    return;
  }
  if (s.nf4) reject("NF4 weights on several ranks", "litgpt refuses them");
  if (!s.checkpoint)
    reject("several ranks without recomputation in litgpt",
           "its finetune commands recompute every layer there, and pretrain compiles the model",
           "set train.recompute to \"full\"");
  if (r.parallel.zero != 3)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with several ranks in litgpt",
           "its finetune commands shard weights, gradients and moments", "set parallel.zero to 3");
  s.ddp.on = false;
  frameworks::FsdpPolicy& f = s.fsdp;
  f.ranks = r.parallel.data;
  f.shards = s.weights;
  f.reduce_every_micro_batch = false;
  const std::string ranks = std::to_string(f.ranks) + " ranks; every layer and the model are units";
  if (s.lora_rank && release == LitgptRelease::kNewest) {
    f.reduce = s.weights;
    notes.push_back("FSDP2: " + ranks +
                    (s.weights == frameworks::Element::kBF16 ? ", in bf16." : ", in f32."));
    return;
  }
  // FSDPStrategy: FULL_SHARD, use_orig_params, and the defaults of torch otherwise.
  f.flat = f.original_parameters = true;
  f.backward_prefetch = frameworks::BackwardPrefetch::kBefore;
  // FSDPPrecision: in bf16-mixed weights are gathered and gradients reduced in bf16.
  if (s.autocast) s.weights = frameworks::Element::kBF16;
  f.reduce = s.weights;
  notes.push_back("FSDP1: " + ranks + " of flat parameters. Gradients are reduced in the last micro-batch" +
                  (f.is_mixed() ? ", in bf16; shards are f32." : "."));
  if (s.lora_rank)
    notes.push_back(
        "A layer has one flat parameter of frozen and trained weights (litgpt before August 2025), so the "
        "gradients of frozen weights are computed too: without reduction each rank keeps those of all "
        "layers.");
  if (s.lora_rank && release == LitgptRelease::k2023)
    notes.push_back(
        "Every micro-batch is planned with data.seq_len tokens. The longest example is in the first one, "
        "which finds no gradients: set data.seq_len to the longest example behind it.");
  notes.push_back(
      "Memory of flat parameters that other streams still use after its last use is not counted.");
}

}  // namespace

void set_litgpt(const model::Architecture& a, const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                std::vector<std::string>& notes) {
  if (!frameworks::has_builder(a.family, frameworks::ModelSource::kLitgpt) ||
      !std::ranges::all_of(a.layers, is_described))
    reject("this model in litgpt", "of its models Llama, Mistral, Qwen2, Qwen3, Phi and Pythia are replayed");
  if (r.seq_len < 2)
    reject("data.seq_len = 1 in litgpt", "the loss predicts the next token", "set it to 2 or more");
  s.nf4 = r.mode == RunMode::kQlora && r.memory.frozen == DType::kNF4;
  s.double_quantized = r.memory.double_quantized;
  s.stable_embedding = o.litgpt_release >= LitgptRelease::k05;
  // With sharded weights later micro-batches exist beside the gradients of all weights.
  if (o.litgpt_release == LitgptRelease::k2023 && r.parallel.data == 1) {
    s.longest_is_first = true, s.steps = 1;
    notes.push_back(
        "The finetune commands of lit-gpt until February 2024 begin with the longest example; shorter "
        "micro-batches that follow it are not counted.");
  }
  if (r.mode == RunMode::kQlora && !s.nf4)
    reject("this base of litgpt", "of quantized bases nf4 is replayed");
  set_types(precision_of(r, s), s, notes);
  constexpr std::uint32_t kMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  const std::uint32_t mlp = r.lora_targets & kMlp;
  if (s.lora_rank && mlp && mlp != kMlp)
    reject("these lora.targets in litgpt", "lora_mlp adapts all matrices of the MLP",
           "name gate_proj, up_proj and down_proj, or none of them");
  choose_devices(r, o.litgpt_release, s, notes);
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\"", "litgpt calls scaled_dot_product_attention");
  s.modules = frameworks::ModelSource::kLitgpt;
  note_emulated_bf16(o, s, notes);
  if (s.lora_dropout > 0)
    notes.push_back("The inputs of the adapters pass a dropout (lora.dropout), whose masks are kept.");
  if (a.tied) notes.push_back("litgpt does not tie the head to the embedding: both are counted.");
  if (s.nf4 && s.stable_embedding)
    notes.push_back(
        "The embedding is counted three times: litgpt keeps the one that it replaces, and the gradient of "
        "the "
        "new one.");
}

}  // namespace trainhost::pytorch
