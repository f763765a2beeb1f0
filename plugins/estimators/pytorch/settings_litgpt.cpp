// litgpt: its LoRA command on one device, with precision bf16-true.
#include <algorithm>

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {

void set_litgpt(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                std::vector<std::string>& notes) {
  const auto llama = [](const model::LayerRun& run) {
    const model::Layer& l = run.layer;
    return l.attention.heads == l.attention.kv_heads && !l.attention.q_bias && !l.mlp.up_bias &&
           l.experts.count == 0 && l.norms == 2;
  };
  if (a.family != "llama" || !std::ranges::all_of(a.layers, llama))
    reject("this model in litgpt", "of its models only Llama without grouped heads is replayed");
  s.nf4 = r.mode == RunMode::kQlora && r.memory.frozen == DType::kNF4;
  s.double_quantized = r.memory.double_quantized;
  if (r.mode != RunMode::kLora && !s.nf4)
    reject(r.mode == RunMode::kQlora ? "this base of litgpt" : "full training in litgpt",
           "of its training commands only LoRA on a base in bf16 or nf4 is replayed");
  if (r.compute != DType::kBF16 ||
      (!s.nf4 && r.memory.frozen != DType::kNone && r.memory.frozen != DType::kBF16))
    reject("a precision other than \"bf16\" in litgpt", "its precision bf16-true was compared");
  if (r.lora_targets != (frameworks::kLoraQ | frameworks::kLoraV))
    reject("these lora.targets in litgpt", "its adapters of q and v were compared",
           "set lora.targets to [\"q_proj\", \"v_proj\"]");
  if (r.parallel.data > 1) reject("several ranks in litgpt", "its FSDP strategy is not replayed");
  if (s.checkpoint) reject("recomputation in litgpt", "on one device litgpt keeps all activations");
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\"", "litgpt calls scaled_dot_product_attention");
  s.modules = frameworks::ModelSource::kLitgpt;
  s.weights = frameworks::Element::kBF16;
  s.lora_dropout = 0.05;
  notes.push_back(
      "litgpt has weights, adapters and moments in bf16 (bf16-true). Its f32 logits are kept until the next "
      "micro-batch has computed its own. Dropout of the adapters: 0.05.");
}

}  // namespace trainhost::pytorch
