// Unsloth: adapters with its functions (core/frameworks/kernels/unsloth.hpp) on one device or with DDP.
// Layers that it compiles, those of other families and of full training, are refused. What is described:
// docs/pytorch-memory.md ("Unsloth").
#include <algorithm>

#include "core/frameworks/kernels/unsloth.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

/// _SMALL_CARD_BYTES of unsloth_zoo.
constexpr std::uint64_t kSmallDevice = std::uint64_t{49} << 29;

constexpr const char* kCompiled =
    "each layer is compiled as one region, and what it then keeps is not described";

const char* why_refused(std::string_view family) {
  if (family == "gpt_oss") return "what its own functions of attention and experts keep is not described";
  if (family == "gemma2") return "its attention with capped scores is compiled, and so is each layer";
  return kCompiled;
}

}  // namespace

void use_copy_of_unsloth(model::Architecture& a, std::vector<std::string>& notes) {
  if (a.family != "phi3" || a.tied) return;
  a.family = "llama";
  notes.push_back(
      "Unsloth loads a copy of Phi-3 and Phi-4 with the modules of Mistral or Llama (unsloth/phi-4), whose "
      "matrices are not fused.");
}

void set_unsloth(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                 std::vector<std::string>& notes) {
  if (s.lora_rank == 0) reject("full training with Unsloth", kCompiled);
  if (!was_compared(a.family, Comparison::kUnsloth))
    reject("the family '" + a.family + "' with Unsloth", why_refused(a.family));
  if (s.weights == frameworks::Element::kF32)
    reject("Unsloth with weights in f32", "its functions are described in bf16 and f16",
           "set train.precision to \"bf16\"");
  if (r.parallel.zero)
    reject("Unsloth with sharded weights", "its preparation of them is not described",
           "leave parallel.zero out");
  if (s.int8)
    reject("lora.base = \"int8\" with Unsloth", "its products with 8-bit weights are not described",
           "set lora.base to \"nf4\" or \"bf16\"");
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\" with Unsloth", "it has kernels of attention only",
           "leave plan.attention out");
  s.unsloth.on = true;
  s.unsloth.small_device = r.device_budget && r.device_budget <= kSmallDevice;
  // use_reentrant = True, whatever the arguments say.
  s.reentrant = s.checkpoint;
  const std::uint64_t input = frameworks::bytes_of(s.weights) * s.batch * s.sequence * a.hidden;
  const bool offloads = s.checkpoint && r.memory.activations_in != Tier::kDevice;
  s.unsloth.offloads = offloads && input > frameworks::kLeastOffloadedByUnsloth;
  std::string note = "Unsloth 2026.10: ";
  if (!s.checkpoint)
    note +=
        "without its checkpoints, which are on by default (train.recompute = \"full\"), all activations are "
        "kept";
  else if (s.unsloth.offloads)
    note +=
        "its checkpoints keep the inputs of all layers but the last in host memory "
        "(plan.offload_activations)";
  else if (offloads)
    note += "inputs of layers have at most 2 MiB and stay on the device";
  else
    note +=
        "the inputs of the layers stay on the device (its checkpoints are \"unsloth\" by default, which move "
        "them to host memory: plan.offload_activations)";
  const std::uint32_t attention = frameworks::kLoraQ | frameworks::kLoraK | frameworks::kLoraV,
                      mlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  const auto all = [&](std::uint32_t targets) { return (r.lora_targets & targets) == targets; };
  if (!all(attention) || !all(mlp))
    note +=
        "; its functions need adapters on q, k and v, and on gate, up and down: other matrices are computed "
        "by peft (lora.targets)";
  const model::Attention& heads = a.layers.front().layer.attention;
  notes.push_back(
      note + ". Attention is that of xformers" +
      (heads.kv_heads < heads.heads ? ", which copies keys and values for each query head." : ".") +
      " Batches are free of padding or packed, as by default; padded ones may run compiled layers, which are "
      "not replayed.");
}

}  // namespace trainhost::pytorch
