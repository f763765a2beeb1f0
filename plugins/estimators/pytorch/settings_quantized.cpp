// Adapters of peft over linear layers that bitsandbytes has quantized: to 4 bits (QLoRA of transformers) or
// to 8 (LLM.int8()). Types only; the modules are in core/frameworks. QLoRA of torchtune and litgpt: their own
// files. What is described: docs/pytorch-memory.md ("QLoRA of transformers", "LLM.int8()").
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

constexpr const char* kQuantized = "quantized base weights";
constexpr const char* kQuantizedWithExperts = "quantized base weights of a model with experts";

/// "more than 99.9% of values are multiplied in 8-bit" (Dettmers et al., LLM.int8(), 2022): columns of the
/// inputs with outliers, of which nothing else is known before the run.
constexpr double kOutlierShare = 0.001;

bool in_8_bits(const RunSpec& r) { return r.memory.frozen == DType::kI8; }

/// What the 8-bit layers of bitsandbytes do not have, or what was not compared.
void require_described_8_bits(const RunSpec& r, const Options& o) {
  const std::string base = "lora.base = \"int8\"";
  if (r.parallel.zero)
    reject(base + " with sharded weights",
           "weights of bitsandbytes in 8 bits are bytes with attributes of their own, which no unit of FSDP "
           "shards",
           "leave parallel.zero out, or set lora.base to \"nf4\"");
  if (o.cut_loss)
    reject(base + " with Cut Cross Entropy", "their step was not compared with PyTorch",
           "leave plan.cross_entropy out");
  if (o.adapter_kernels_given && (o.adapter_kernels.mlp || o.adapter_kernels.qkv || o.adapter_kernels.output))
    reject("kernels of axolotl for adapters over a base in 8 bits",
           "axolotl stops with an error: they have no product with such weights",
           "leave plan.adapter_kernels out");
}

/// The engine of DeepSpeed: its stages 1 and 2 divide what is trained, and leave each rank the packed
/// weights.
void set_under_deepspeed(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                         std::vector<std::string>& notes) {
  if (r.memory.frozen != DType::kNF4)
    reject(std::string(kQuantized) + " under DeepSpeed",
           "of the quantized types of bitsandbytes only its 4-bit types were compared there",
           "set lora.base to \"nf4\" or \"bf16\"");
  if (r.parallel.zero == 3)
    reject(std::string(kQuantized) + " under ZeRO 3 of DeepSpeed",
           "parts of packed weights were not compared",
           "set parallel.zero to 1 or 2: each rank then has all packed weights");
  if (a.has_experts())
    reject(kQuantizedWithExperts, "transformers stacks their matrices, which bitsandbytes does not quantize");
  s.nf4 = true;
  s.double_quantized = r.memory.double_quantized;
  notes.push_back(
      "bitsandbytes quantizes the linear layers but the head; each rank has all packed weights. The engine "
      "casts "
      "adapters, embedding, norms and head to the type of the model.");
}

/// Experts beside quantized matrices: one parameter per layer, which stays as it is loaded or cast.
void require_described_experts(const model::Architecture& a, const RunSpec& r, const Options& o) {
  if (!a.has_experts()) return;
  if (o.quantizes_experts)
    reject("plan.quant_experts",
           "experts that are dequantized when they are read were not compared with PyTorch");
  const bool modules = o.release != frameworks::TransformersRelease::k5;  // linear layers as others
  if (r.parallel.zero && !(modules && o.flat_parameters))
    reject(std::string(kQuantizedWithExperts) + " that are sharded",
           "their step was not compared with PyTorch");
  if (in_8_bits(r))
    reject(std::string(kQuantizedWithExperts) + " in 8 bits", "their step was not compared with PyTorch");
  if (a.family != "mixtral" && a.family != "qwen3_moe")
    reject(std::string(kQuantizedWithExperts) + " of the family '" + a.family + "'",
           "their step was not compared with PyTorch");
}

void require_described(const model::Architecture& a, const RunSpec& r, const Options& o) {
  if (o.framework != Framework::kPlain || (r.parallel.zero && !o.by_accelerate))
    reject(
        std::string(kQuantized) + " that are sharded",
        "units with packed weights are replayed as accelerate prepares them",
        "plan with --for transformers or llama-factory, or leave parallel.zero out: each rank then has all "
        "weights");
  if (r.parallel.zero && r.compute != DType::kBF16 && r.compute != DType::kF16)
    reject(std::string(kQuantized) + " that are sharded in f32", "their step was not compared with PyTorch",
           "set train.precision to \"bf16\"");
  if (r.parallel.zero && o.flat_parameters && o.packed_as_bytes.value_or(false))
    reject("plan.quant_storage = \"uint8\" under FSDP1",
           "the weights of a unit have one type, and FSDP1 stops with an error",
           "set plan.quant_storage to \"compute\", or leave it out");
  // FSDP1 casts the shards of trained weights to f32; FSDP2 does not where weights are quantized.
  if (r.parallel.zero && !o.flat_parameters && r.grad == DType::kBF16)
    reject("adapters in bf16 over sharded " + std::string(kQuantized),
           "under FSDP2 they were not compared with PyTorch", "leave plan.gradients out");
  if (in_8_bits(r)) require_described_8_bits(r, o);
  require_described_experts(a, r, o);
  if (r.memory.frozen != DType::kNF4 && !in_8_bits(r))
    reject("lora.base = \"" + std::string(run_file_name(r.memory.frozen)) + "\"",
           "of the quantized types of bitsandbytes its 4-bit and 8-bit types are replayed",
           "set lora.base to \"nf4\", \"int8\" or \"bf16\"");
  if (a.family == "gpt2")
    reject(std::string(kQuantized) + " of GPT-2", "its transposed layers were not compared");
}

/// Whether the embedding, the norms and the head stay in the type in which the model is loaded. peft's
/// prepare_model_for_kbit_training() casts them to f32; LLaMA-Factory does not call it, and axolotl casts
/// them back (ModelLoader._configure_embedding_dtypes()).
bool keeps_loaded_type(const RunSpec& r, const Options& o) {
  if (r.weight == DType::kF32) return false;
  return o.name == "axolotl" || o.name == "llama-factory" || o.name == "unsloth" || r.master == DType::kNone;
}

/// The number of outliers, and what checkpoints do not save.
void add_notes_of_8_bits(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                         std::vector<std::string>& notes) {
  s.outliers = o.int8_outliers;
  s.outlier_share = kOutlierShare;
  notes.push_back(o.int8_outliers ? std::to_string(*o.int8_outliers) +
                                        " columns of each input of a product have outliers "
                                        "(plan.int8_outliers)."
                                  : "Columns of the inputs with outliers (6.0 or more) depend on the data; "
                                    "0.1 % of them are planned, "
                                    "rounded up (plan.int8_outliers).");
  if (r.recompute == Recompute::kFull && !s.reentrant)
    notes.push_back(
        "Products in 8 bits keep their inputs although the layers are recomputed; reentrant checkpoints "
        "(plan.checkpoint_reentrant) do not keep them.");
}

/// Whether FSDP2 leaves each rank all packed weights, as accelerate excludes those that are bytes. They are
/// by default; LLaMA-Factory sets another type.
bool keeps_whole(const Options& o) {
  return !o.flat_parameters && o.packed_as_bytes.value_or(o.name != "llama-factory");
}

/// SFTTrainer of TRL before 1.0 casts embedding and head back after prepare_model_for_kbit_training(), and
/// leaves the norms in f32.
void set_f32_norms(const model::Architecture& a, const RunSpec& r, const Options& o,
                   frameworks::StepSettings& s) {
  const std::string what = "plan.norms = \"fp32\"";
  if (r.parallel.zero)
    reject(what + " with sharded weights", "a unit of FSDP has one type", "leave plan.norms out");
  if (s.int8 || !s.autocast)
    reject(what + (s.int8 ? " over weights in 8 bits" : " without mixed precision"),
           "its step was not compared with PyTorch", "leave plan.norms out");
  if (a.has_experts() && o.release == frameworks::TransformersRelease::k5)
    reject(what + " with experts", "the type of their weights was not compared", "leave plan.norms out");
  s.norm_weights = frameworks::Element::kF32;
}

}  // namespace

void set_quantized(const model::Architecture& a, const RunSpec& r, const Options& o,
                   frameworks::StepSettings& s, std::vector<std::string>& notes) {
  using frameworks::Element;
  if (o.framework == Framework::kDeepSpeed) return set_under_deepspeed(a, r, s, notes);
  require_described(a, r, o);
  if (r.compute != DType::kF32 && r.compute != DType::kTF32 && r.compute != DType::kBF16 &&
      r.compute != DType::kF16)
    reject("train.precision = \"" + std::string(run_file_name(r.compute)) + "\"",
           "kernels of narrower types are not replayed");
  s.int8 = in_8_bits(r);
  s.nf4 = !s.int8;
  s.double_quantized = s.nf4 && r.memory.double_quantized;
  s.autocast_type = r.compute == DType::kF16 ? Element::kF16 : Element::kBF16;
  s.autocast = r.compute == DType::kF16 || r.compute == DType::kBF16;
  // The weights of a unit have one type, that of the packed elements.
  const bool narrow = s.autocast && (r.parallel.zero || o.f32_norms || keeps_loaded_type(r, o));
  if (o.f32_norms) set_f32_norms(a, r, o, s);
  s.weights = narrow ? s.autocast_type : Element::kF32;
  if (s.nf4 && !s.autocast) s.product_type = o.product_type;
  const std::string type(run_file_name(r.compute));
  if (s.autocast && r.grad == DType::kBF16 && !r.parallel.zero) {
    s.adapters = Element::kBF16;
    notes.push_back(
        "Adapters, their gradients and moments are in bf16 (plan.gradients), as SFTTrainer of TRL casts "
        "them.");
  }
  std::string note =
      "bitsandbytes quantizes the linear layers but the head, and computes their products in " +
      (s.int8           ? "8 bits (LLM.int8())"
       : s.autocast     ? type
       : s.product_type ? std::string(*s.product_type == Element::kF16 ? "fp16" : "bf16")
                        : "fp32") +
      ". Embedding, norms and head are in ";
  if (r.parallel.zero)
    note += type + ", as the model is loaded.";
  else if (narrow)
    note += type + (o.name == "axolotl"         ? ", to which axolotl casts them."
                    : o.name == "llama-factory" ? ", as LLaMA-Factory loads them."
                    : o.name == "unsloth"       ? ", as Unsloth loads them."
                    : o.f32_norms               ? ", to which TRL casts them, but norms in fp32 (plan.norms)."
                                                : " (plan.master = \"none\"), as the model is loaded.");
  else if (s.autocast && r.weight != DType::kF32)
    note +=
        "fp32, as prepare_model_for_kbit_training() of peft casts them; plan.master = \"none\" plans them "
        "in " +
        type + ".";
  else
    note += "fp32.";
  notes.push_back(note);
  if (a.has_experts() && o.release == frameworks::TransformersRelease::k5) {
    // axolotl casts embeddings, norms and the head back, no other parameter.
    if (narrow && o.name == "axolotl") s.expert_weights = Element::kF32;
    notes.push_back(
        "Experts and routers are parameters of their own, which bitsandbytes does not quantize: "
        "they are in " +
        (narrow && !s.expert_weights ? type : std::string("fp32")) +
        (s.expert_weights ? ", to which prepare_model_for_kbit_training() of peft casts them." : "."));
  }
  if (s.int8) add_notes_of_8_bits(r, o, s, notes);
  s.whole_packed = r.parallel.zero && keeps_whole(o);
  if (s.whole_packed)
    notes.push_back(
        "Each rank has all packed weights: they are bytes (plan.quant_storage = \"uint8\", the default of "
        "bnb_4bit_quant_storage), which FSDP2 does not shard. \"compute\" shards them as elements of " +
        type + ".");
  else if (r.parallel.zero)
    notes.push_back("Packed weights are sharded as elements of " + type +
                    " (plan.quant_storage = \"compute\", which is bnb_4bit_quant_storage). Their scales are "
                    "not sharded.");
  // axolotl passes its own gradient_checkpointing on, which is off by default.
  if (!s.checkpoint && o.name != "axolotl" && o.name != "unsloth")
    notes.push_back(
        "Planned without gradient checkpointing, which " +
        std::string(o.name == "llama-factory" ? "LLaMA-Factory" : "prepare_model_for_kbit_training()") +
        " turns on by default: train.recompute = \"full\".");
}

}  // namespace trainhost::pytorch
