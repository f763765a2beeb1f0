// What is common to all frameworks, and the order in which settings are decided: types, recomputation,
// optimizer, then the sharding of the framework (settings_*.cpp). A run that the replay does not describe is
// refused, because a figure of another run would look as exact as a right one. Allocates and replays nothing:
// report.cpp. What is described: docs/pytorch-memory.md.
#include "plugins/estimators/pytorch/settings.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/model/adapter_rules.hpp"
#include "core/model/adapters.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

// As the user has written it, so that the message can be searched for in the run file.
std::string assigned(const char* key, DType t) {
  return std::string(key) + " = \"" + std::string(run_file_name(t)) + "\"";
}

Element element_of(DType t, const char* key) {
  switch (t) {
    case DType::kF32:
    // TF32 is an arithmetic of products; tensors are f32.
    case DType::kTF32:
      return Element::kF32;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kF16:
      return Element::kF16;
    default:
      reject(assigned(key, t), "kernels of narrower types are not replayed",
             "set it to \"fp32\", \"bf16\" or \"fp16\"");
  }
}

bool is_half(DType t) { return t == DType::kBF16 || t == DType::kF16; }

/// FSDP2, or torchtitan.
bool sharded(const RunSpec& r, const Options& o) {
  return o.framework == Framework::kPlain ? r.parallel.zero > 0 : true;
}

/// Whether FSDP may keep the shards of this run in host memory: set_fsdp().
bool offloads_shards(const RunSpec& r, const Options& o) {
  return (o.framework == Framework::kPlain && o.by_accelerate && r.parallel.zero) ||
         o.framework == Framework::kFsdp2;
}

/// A run that trains adapters on a frozen base.
bool adapts(const RunSpec& r) { return r.mode == RunMode::kLora || r.mode == RunMode::kQlora; }

/// Types of weights and of the computation: f32 weights under autocast, or everything in one type.
void set_types(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
               std::vector<std::string>& notes) {
  const bool float8 = r.compute == DType::kF8 && o.framework == Framework::kTorchtitan;
  if (r.compute != DType::kF32 && r.compute != DType::kTF32 && !is_half(r.compute) && !float8)
    reject(assigned("train.precision", r.compute), "kernels of narrower types are not replayed");
  // Of a run with adapters the frozen base is most of the weights; it may have a type of its own (lora.base).
  DType base = adapts(r) && r.memory.frozen != DType::kNone ? r.memory.frozen : r.weight;
  // The default of plan.weights follows train.precision, but the weights of Float8Linear are f32.
  if (float8 && base == DType::kF8) base = DType::kF32;
  s.weights = element_of(base, adapts(r) ? "lora.base" : "plan.weights");
  s.autocast_type = r.compute == DType::kF16 ? Element::kF16 : Element::kBF16;
  // Trained weights that are f32 compute in a half type only under autocast. Adapters are always f32.
  s.autocast = is_half(r.compute) && (adapts(r) || s.weights == Element::kF32);
  const std::string type(run_file_name(base));
  if (!adapts(r) && is_half(base) && r.master == DType::kF32) {
    // The run file has half weights and a master copy. PyTorch has one f32 parameter, which is the master
    // copy.
    s.weights = Element::kF32;
    s.autocast = true;
    notes.push_back("Mixed precision: the weights are f32, and " +
                    std::string(!sharded(r, o)      ? "autocast computes in "
                                : o.flat_parameters ? "FSDP1 gathers them in "
                                                    : "FSDP2 gathers them in ") +
                    type + "; plan.master = \"none\" plans weights in " + type + ".");
  } else if (!adapts(r) && is_half(base) && o.name == "transformers" &&
             o.release == frameworks::TransformersRelease::k5) {
    notes.push_back("The weights are in " + type +
                    ", as transformers 5 loads a model in the type of its checkpoint (dtype=\"auto\"); "
                    "plan.master = \"fp32\" plans one that is loaded in f32.");
  }
}

/// Gradients and moments have the type of the parameter.
void require_types_of_parameters(const RunSpec& r, const Options& o, const frameworks::StepSettings& s,
                                 std::vector<std::string>& notes) {
  const Element trained = adapts(r) ? s.adapters : s.weights;
  bool assumed = false;
  // Both are allocated by PyTorch with zeros_like() or by autograd, in the type of the parameter.
  for (const auto& [type, key] : {std::pair{r.grad, "plan.gradients"}, {r.moment, "plan.moments"}}) {
    if (type == DType::kNone) continue;
    // FSDP2 has a type for the reduction of gradients, and casts them to that of the shards.
    if (sharded(r, o) && key == std::string_view("plan.gradients")) continue;
    // f32 is the default of the run file, so it may not have been asked for.
    if (type == DType::kF32)
      assumed |= trained != Element::kF32 && !adapts(r);
    else if (element_of(type, key) != trained)
      reject(assigned(key, type), "gradients and moments of torch.optim have the type of the parameter");
  }
  if (assumed) notes.push_back("Gradients and moments have the type of the weights, as in torch.optim.");
}

void set_recompute(const RunSpec& r, const Options& o, frameworks::StepSettings& s) {
  switch (r.recompute) {
    case Recompute::kFull:
      if (r.memory.recompute_every > 1)
        reject("train.recompute_every = " + std::to_string(r.memory.recompute_every),
               "every layer is recomputed by itself");
      s.checkpoint = true;
      return;
    case Recompute::kNone:
      return;
    // torchtitan alone has a mode per operator; gradient_checkpointing of transformers takes whole layers.
    case Recompute::kSelective:
      if (o.framework == Framework::kTorchtitan) {
        s.selective = true;
        return;
      }
      [[fallthrough]];
    default:
      reject("selective recomputation", "gradient_checkpointing of transformers recomputes every layer",
             "set train.recompute to \"none\" or \"full\"");
  }
}

/// Kind of the checkpoints, of a run with modules of transformers. axolotl, and LLaMA-Factory
/// (use_reentrant_gc) but under FSDP2, have reentrant ones unless the user says otherwise; so has
/// transformers 4. Replayed on one device, with DDP and under FSDP1.
void set_checkpoint_kind(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                         std::vector<std::string>& notes) {
  const bool alone = o.framework == Framework::kPlain && !r.parallel.zero;
  const bool usual = o.name == "axolotl" || (o.name == "llama-factory" && (alone || o.flat_parameters)) ||
                     o.release != frameworks::TransformersRelease::k5;
  if (!s.checkpoint || o.name == "unsloth" || !o.reentrant.value_or(usual)) return;
  s.reentrant = alone || o.flat_parameters;
  notes.push_back(
      !s.reentrant  ? "Checkpoints are reentrant, and are planned as others: under FSDP2 and DeepSpeed only "
                      "those are replayed."
      : o.reentrant ? "Checkpoints are reentrant (plan.checkpoint_reentrant): each layer is "
                      "recomputed to its end."
                    : "Checkpoints are reentrant, which is the default of " + o.name +
                          (o.name == "transformers" ? " 4" : "") + ": plan.checkpoint_reentrant.");
}

/// Kernels of Liger, in the families whose step with them was compared with PyTorch.
void set_liger(const model::Architecture& a, const RunSpec& r, const Options& o, frameworks::StepSettings& s,
               std::vector<std::string>& notes) {
  const frameworks::LigerKernels& l = o.liger;
  if (!l.loss && !l.norms && !l.rotary && !l.swiglu) return;
  // Of FSDP1 the root unit has the head, which stays gathered.
  if (o.framework == Framework::kPlain && r.parallel.zero && adapts(r) && !o.flat_parameters && l.loss)
    reject("kernels of Liger with adapters under FSDP2",
           "its loss reads the head outside of its unit, where it is not gathered, and PyTorch stops with an "
           "error",
           "set plan.fsdp_version = 1, or leave parallel.zero out");
  if (a.family == "mixtral" && (o.framework == Framework::kDeepSpeed || (r.parallel.zero && adapts(r))))
    reject(std::string("kernels of Liger in Mixtral ") +
               (o.framework == Framework::kDeepSpeed ? "under DeepSpeed" : "with sharded adapters"),
           "their step was not compared with PyTorch");
  if (!was_compared(a.family, Comparison::kLiger))
    reject("kernels of Liger in the family '" + a.family + "'",
           "its step with them was not compared with PyTorch");
  s.liger = l;
  std::string layers;
  for (const auto& [on, name] : {std::pair{l.rotary, "rope"}, {l.norms, "rms_norm"}, {l.swiglu, "swiglu"}})
    if (on) layers += (layers.empty() ? "" : ", ") + std::string(name);
  notes.push_back("Liger 0.8: " + std::string(l.loss ? "head and loss in chunks of tokens" : "") +
                  (l.loss && !layers.empty() ? "; " : "") + (layers.empty() ? "" : "kernels " + layers) +
                  (l.loss && layers.empty() ? "; no kernels in the layers (plan.liger_kernels)." : "."));
}

/// Format v1 of LLaMA-Factory.
void set_trainer_loss(const model::Architecture& a, const RunSpec& r, const Options& o,
                      frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (!o.trainer_loss) return;
  if (o.liger.loss || o.cut_loss)
    reject("the loss of format v1 of LLaMA-Factory with another loss", "its Trainer needs the logits",
           "leave plan.cross_entropy out");
  if (a.family == "gpt2" || s.int8)
    reject("format v1 of LLaMA-Factory with " + std::string(s.int8 ? "8-bit weights" : "GPT-2"),
           "its loss was not compared with PyTorch");
  if (r.parallel.zero) {
    notes.push_back(
        "The second loss of format v1 of LLaMA-Factory is not counted: with sharded weights it was not "
        "compared.");
    return;
  }
  s.trainer_loss = true;
  notes.push_back(
      "Format v1 of LLaMA-Factory: its Trainer computes a loss from the logits, and the model another one "
      "(plan.framework_version).");
}

/// Cut Cross Entropy, when the types of the weights are known.
void set_cut_loss(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (!o.cut_loss) return;
  if (r.parallel.zero)
    reject("Cut Cross Entropy with sharded weights",
           "its loss reads the gathered head, which was not compared");
  if (a.family == "gpt2") reject("Cut Cross Entropy in the family 'gpt2'", "it has no patch for it");
  if (s.weights == frameworks::Element::kF32)
    reject("Cut Cross Entropy with a head in f32", "its backward pass takes bf16 or f16 only",
           "set plan.master to \"none\" and train.precision to \"bf16\"");
  s.cut_loss = true;
  notes.push_back("Cut Cross Entropy (fork of axolotl, June 2026): no logits are materialised.");
}

/// The loss of TRL 1.15 and newer.
void set_tiled_loss(const model::Architecture& a, const RunSpec& r, const Options& o,
                    frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (!o.tiled_loss) return;
  if (o.release != frameworks::TransformersRelease::k5)
    reject("the fused head of TRL in transformers " + o.release_name,
           "it was compared in transformers 5 only", "leave plan.cross_entropy out");
  const bool fsdp2 = r.parallel.zero && o.by_accelerate && !o.flat_parameters;
  if (fsdp2 && r.memory.weights_in != Tier::kDevice && adapts(r) && !a.tied)
    reject("the fused head of TRL with adapters and offload under FSDP2",
           "the head is gathered from shards in host memory, which was not compared",
           "set plan.fsdp_version = 1, or leave parallel.zero out");
  s.tiled_loss = true;
  notes.push_back(
      "Head and loss are those of TRL 1.15 and newer (SFTTrainer, DPOTrainer), in tiles of 4,096 tokens and "
      "32,768 words; plan.cross_entropy = \"plain\" plans the logits of TRL before 1.7." +
      std::string(fsdp2 && adapts(r) && !a.tied
                      ? " FSDP2 gathers the head outside of its unit, and keeps it until the backward pass."
                      : ""));
  if (a.has_experts())
    notes.push_back(
        "TRL adds the load-balancing loss of the experts (router_aux_loss_coef), which is not counted: 12 "
        "bytes per token, layer, expert and chosen expert.");
  if (r.parallel.zero && (s.nf4 || s.int8))
    notes.push_back("The fused head of TRL over sharded quantized weights was not compared with PyTorch.");
}

/// A loop of one's own that keeps the model's output.
void set_kept_logits(const Options& o, frameworks::StepSettings& s) {
  if (o.kept_logits == frameworks::KeptLogits::kNone) return;
  const bool own_loop =
      o.name == "pytorch" || o.name == "transformers" || o.name == "fsdp2" || o.name == "deepspeed";
  if (!own_loop || o.prefers)
    reject("plan.keep_logits of " + std::string(o.prefers ? "DPO" : o.name),
           "its own training loop keeps the loss only", "leave it out");
  if (o.liger.loss || o.cut_loss || o.tiled_loss)
    reject("plan.keep_logits with this plan.cross_entropy", "no logits are materialised",
           "leave one of them out");
  s.kept_logits = o.kept_logits;
  s.f32_outputs = o.name == "transformers";
}

/// Kernels of axolotl, when the types of the weights are known. It switches them on by itself, so a run that
/// they do not describe is planned without them unless they were asked for.
void set_adapter_kernels(const model::Architecture& a, const RunSpec& r, const Options& o,
                         frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const frameworks::AdapterKernels& asked = o.adapter_kernels;
  if (!adapts(r) || s.int8 || !(asked.mlp || asked.qkv || asked.output)) return;
  const char* what = "kernels of axolotl for adapters";
  std::string reason;
  if (!was_compared(a.family, Comparison::kAdapterKernels))
    reason = "their step in the family '" + a.family + "' was not compared with PyTorch";
  else if (s.weights == Element::kF32)
    reason = "with norms in f32 they were not compared";
  if (!reason.empty()) {
    if (o.adapter_kernels_given) reject(what, reason, "leave plan.adapter_kernels out");
    notes.push_back("Planned without the kernels of axolotl for adapters, which keep less: " + reason +
                    " (plan.adapter_kernels).");
    return;
  }
  // apply_lora_kernel_patches(): each kernel needs an adapter on all of its matrices.
  constexpr std::uint32_t kMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown,
                          kQkv = frameworks::kLoraQ | frameworks::kLoraK | frameworks::kLoraV;
  const auto all = [&](std::uint32_t targets) { return (r.lora_targets & targets) == targets; };
  s.adapter_kernels = asked;
  std::string used;
  for (const auto& [on, name] : {std::pair{asked.mlp && all(kMlp), "mlp"},
                                 {asked.qkv && all(kQkv), "qkv"},
                                 {asked.output && all(frameworks::kLoraO), "o"}})
    if (on) used += (used.empty() ? "" : ", ") + std::string(name);
  if (!used.empty())
    notes.push_back("Adapters are computed by kernels of axolotl: " + used + " (plan.adapter_kernels" +
                    (o.adapter_kernels_given ? ")." : "), which it switches on by itself."));
}

/// Whether AdamW of bitsandbytes, in 8 bits or paged, is replayed.
bool has_bitsandbytes_adamw(const RunSpec& r, const Options& o) {
  return o.framework == Framework::kPlain && !r.parallel.zero &&
         (r.optimizer == Optimizer::kAdamW || r.optimizer == Optimizer::kAdamW8bit);
}

void set_optimizer(const RunSpec& r, const Options& o, frameworks::StepSettings& s) {
  // Temporaries of a step are the peak of many runs, so an optimizer whose kernels are not known is not
  // replayed.
  s.paged_optimizer = o.paged_optimizer;
  if (has_bitsandbytes_adamw(r, o) && r.optimizer == Optimizer::kAdamW8bit) {
    s.optimizer = r.optimizer;
    // create_optimizer() of the Trainer, for nn.Embedding; a loop by hand has no such rule.
    s.f32_embedding_moments = o.name != "pytorch";
    return;
  }
  if (r.optimizer != Optimizer::kAdamW && r.optimizer != Optimizer::kSgd &&
      r.optimizer != Optimizer::kSgdMomentum)
    reject("optimizer.name = \"" + std::string(name(r.optimizer)) + "\"", "its temporaries are not replayed",
           "set it to \"adamw\", \"sgd\" or \"sgd-momentum\"");
  s.optimizer = r.optimizer;
  s.loop = o.loop;
  s.weight_decay = r.weight_decay != 0;
}

void reject_other_kinds(const RunSpec& r, const Options& o) {
  if (r.mode == RunMode::kInference) reject("inference", "it replays a training step");
  const bool torchtune = o.framework == Framework::kTorchtune;
  // One sentence per run: the first setting that is not described is reported.
  const Parallelism& p = r.parallel;
  const bool titan = o.framework == Framework::kTorchtitan, megatron = o.framework == Framework::kMegatron;
  for (const auto& [ranks, key, described] : {std::tuple{p.tensor, "tensor", titan || megatron},
                                              {p.pipeline, "pipeline", titan || megatron},
                                              {p.context, "context", titan || megatron},
                                              {p.expert, "expert", titan || megatron}})
    if (ranks > 1 && !described)
      reject("parallel." + std::string(key) + " = " + std::to_string(ranks),
             titan ? "of torchtitan data, context, tensor and pipeline parallelism are replayed"
                   : "this run is data-parallel only");
  if (p.zero && o.name == "axolotl")
    reject("FSDP of axolotl", "its own preparation of the model was not compared");
  if (p.zero && o.framework == Framework::kPlain && !o.by_accelerate)
    reject("parallel.zero = " + std::to_string(p.zero),
           "a plain PyTorch run shards nothing; FSDP2 is the framework fsdp2");
  if (o.paged_optimizer && !torchtune && !has_bitsandbytes_adamw(r, o))
    reject("plan.optimizer_paged of this run", "it is replayed for torchtune, and for AdamW without sharding",
           "leave it out");
  if (o.int8_outliers && !(adapts(r) && r.memory.frozen == DType::kI8))
    reject("plan.int8_outliers of this run", "it is a setting of lora.base = \"int8\"", "leave it out");
  if (o.product_type && (torchtune || titan || megatron || o.framework == Framework::kLitgpt))
    reject("plan.quant_compute of " + o.name, "it is a setting of bitsandbytes in models of transformers",
           "leave it out");
  if (o.offload_gradients && o.framework == Framework::kPlain && !offloads_shards(r, o))
    reject("plan.offload_gradients", "this run keeps everything on the device", "leave it out");
  if (r.memory.dora) reject("lora.dora", "the operators of DoRA are not replayed");
  if (r.memory.cross_entropy == CrossEntropy::kInPlace && !megatron)
    reject("plan.cross_entropy = \"in-place\"", "transformers materialises logits and gradient");
  for (const auto& [tier, key] : {std::pair{r.memory.weights_in, "weights"},
                                  {r.memory.optimizer_in, "optimizer"},
                                  {r.memory.activations_in, "activations"}})
    if (tier != Tier::kDevice && !torchtune &&
        !(offloads_shards(r, o) && std::string_view(key) != "activations") &&
        !(o.name == "unsloth" && std::string_view(key) == "activations") &&
        !(o.framework == Framework::kDeepSpeed && std::string_view(key) != "activations"))
      reject("plan.offload_" + std::string(key), "this run keeps everything on the device");
}

constexpr std::uint32_t kAttentionTargets =
    frameworks::kLoraQ | frameworks::kLoraK | frameworks::kLoraV | frameworks::kLoraO;

/// peft 0.21 adapts the stacked weights of Mixtral and Qwen3-MoE by a parametrization, whatever wrote the
/// names of their matrices.
void check_adapters_of_experts(const model::Architecture& a, const RunSpec& r, const Options& o,
                               std::vector<std::string>& notes) {
  constexpr std::uint32_t kUp = frameworks::kLoraGate | frameworks::kLoraUp;
  const std::uint32_t up = r.lora_targets & kUp;
  if (a.family == "gpt_oss") {
    if (!(r.lora_targets & kAttentionTargets))
      reject("adapters of the experts of gpt-oss alone", "peft finds no module with these names",
             "add matrices of attention to lora.targets, as q_proj");
    notes.push_back(
        "The experts of gpt-oss have no adapters: their weights are parameters, which lora.targets and "
        "\"all-linear\" of peft do not find.");
    return;
  }
  if (a.family != "mixtral" && a.family != "qwen3_moe")
    reject("adapters of the experts of this model", "those of Mixtral and Qwen3-MoE were compared",
           "leave gate_proj, up_proj and down_proj out of lora.targets");
  if (up != 0 && up != kUp)
    reject("adapters of one of gate_proj and up_proj of experts", "peft refuses one without the other",
           "name both in lora.targets");
  if (r.memory.lora_dropout > 0)
    reject("lora.dropout with adapters of experts", "peft refuses it", "set lora.dropout to 0");
  if (r.parallel.zero || o.framework != Framework::kPlain)
    reject("adapters of experts over sharded weights", "they were compared on one device",
           "leave gate_proj, up_proj and down_proj out of lora.targets");
  notes.push_back(
      "Adapters of experts: peft 0.21 makes a copy of all experts of a layer with their adapters in each "
      "call, "
      "which autograd keeps until the backward pass of this layer, and a gradient of its size. Gate and up "
      "are "
      "one stacked matrix, whose adapter has rank " +
      std::to_string(2 * r.lora_rank) +
      ", more than the number of trained parameters says. Those of the router, to which \"all-linear\" adds "
      "one, "
      "are not counted.");
}

/// Adapters of a model whose file fuses or stacks the matrices that lora.targets names.
void check_adapters(const model::Architecture& a, const RunSpec& r, const Options& o,
                    std::vector<std::string>& notes) {
  if (!adapts(r)) return;
  // In the plan of a run of trainhost that compares both; else they are options (pytorch.cpp).
  if (adapts_head(r)) throw usage_error("the estimator 'pytorch' does not describe adapters of the LM head");
  if (adapts_embedding(r))
    throw usage_error("the estimator 'pytorch' does not describe adapters of the embedding");
  // peft adapts single matrices. Where the model file has a fused or stacked matrix, another tensor is
  // adapted.
  constexpr std::uint32_t kMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  if (a.has_experts() && (r.lora_targets & kMlp)) check_adapters_of_experts(a, r, o, notes);
  if (a.family == "phi3" || a.family == "gpt2")
    notes.push_back("Matrices that the model fuses (q, k and v; gate and up) have one adapter together.");
  if (a.family == "glm4")
    notes.push_back("gate_proj and up_proj are one matrix (gate_up_proj), which has one adapter.");
}

/// Adapters that differ: the rank of each matrix.
void set_adapter_ranks(const model::Architecture& a, const RunSpec& r, const Options& o,
                       frameworks::StepSettings& s) {
  if (!adapts(r) || r.lora_rules.empty()) return;
  const bool fused = a.family == "phi3" || a.family == "gpt2" || a.family == "glm4";
  if (o.framework != Framework::kPlain || r.parallel.zero || fused || a.has_experts())
    reject("lora.targets, lora.rank_pattern with patterns",
           "adapters of different ranks are replayed for models whose matrices are not fused, on one device "
           "or with DDP");
  constexpr TensorRole kMatrices[] = {TensorRole::kQ,    TensorRole::kK,  TensorRole::kV,   TensorRole::kO,
                                      TensorRole::kGate, TensorRole::kUp, TensorRole::kDown};
  for (std::int32_t layer = 0; layer < static_cast<std::int32_t>(a.layer_count()); ++layer) {
    auto& ranks = s.lora_ranks.emplace_back();
    for (std::size_t i = 0; i < std::size(kMatrices); ++i)
      if (r.lora_targets >> i & 1) ranks[i] = size_of_adapter(r, adapted_module(kMatrices[i], layer)).rank;
  }
}

/// FSDP that reduces in the last micro-batch has three kinds of them: the first, those that add to gradients
/// of all weights, and the last, which frees these gradients one unit after the other.
void keep_middle_micro_batch(const RunSpec& r, frameworks::StepSettings& s) {
  if (s.fsdp.ranks && !s.fsdp.reduce_every_micro_batch && s.stage.stages == 1)
    s.accumulate = std::min(r.accumulate, 3u);
}

}  // namespace

void reject(const std::string& what, const std::string& why, const std::string& hint) {
  throw usage_error("the estimator 'pytorch' does not describe " + what + ": " + why, hint);
}

frameworks::StepSettings step_settings(const model::Architecture& a, const RunSpec& r, const Options& given,
                                       std::vector<std::string>& notes) {
  const Options o = options_of_preferences(given, notes);
  reject_other_kinds(r, o);
  check_adapters(a, r, o, notes);
  frameworks::StepSettings s;
  s.batch = r.micro_batch;
  s.sequence = r.seq_len;
  s.accumulate = std::min(r.accumulate, 2u);  // every later micro-batch is like the second; but see below
  s.attention = r.memory.attention == AttentionMemory::kMaterialised ? frameworks::AttentionKernel::kEager
                                                                     : frameworks::AttentionKernel::kSdpa;
  if (a.family == "gpt_oss") {
    s.attention = frameworks::AttentionKernel::kEager;
    notes.push_back(
        "gpt-oss has no SDPA in transformers, because its softmax has a sink: attention is eager, and its "
        "scores exist. Kernels of flash attention with sinks (attn_implementation) are not described.");
  }
  s.lora_rank = adapts(r) ? r.lora_rank : 0;
  s.lora_targets = r.lora_targets & (a.family == "gpt_oss" ? kAttentionTargets : ~0u);
  set_adapter_ranks(a, r, o, s);
  s.dropout = o.dropout;
  // finetune_lora of litgpt has a dropout by default.
  const double usual_dropout = o.framework == Framework::kLitgpt ? 0.05 : 0;
  s.lora_dropout = s.lora_rank ? o.lora_dropout.value_or(usual_dropout) : 0;
  // Several ranks are DDP until a framework says that it shards; it then turns DDP off.
  s.ddp = {r.parallel.data > 1, o.ddp_bucket, o.gradient_as_bucket_view};
  if (!r.parallel.zero)
    for (const std::string& key : o.fsdp_keys)
      notes.push_back(key + " has no effect: " +
                      (s.ddp.on ? "with parallel.zero = 0 each rank has all weights (DDP)."
                                : "one device shards nothing."));
  if (!s.ddp.on || r.parallel.zero)
    for (const std::string& key : o.ddp_keys)
      notes.push_back(key + " has no effect: " +
                      (s.ddp.on ? "the state is sharded, without DDP." : "one device has no DDP."));
  set_device(o, s, notes);
  set_kept_logits(o, s);
  if (o.compile && o.framework != Framework::kTorchtitan && o.framework != Framework::kTorchtune)
    reject("plan.execution = \"compile\"",
           "what compiled graphs keep is described for torchtitan and torchtune only");
  if (o.framework == Framework::kMegatron) {
    set_megatron(a, r, o, s, notes);
    return s;
  }
  // litgpt and torchtune set the types themselves: every tensor is bf16, whatever the defaults of the run
  // file say.
  if (o.framework == Framework::kLitgpt) {
    set_recompute(r, o, s);
    set_optimizer(r, o, s);
    set_litgpt(a, r, o, s, notes);
    keep_middle_micro_batch(r, s);
    return s;
  }
  if (o.framework == Framework::kTorchtune) {
    set_recompute(r, o, s);
    set_torchtune(a, r, o, s, notes);
    return s;
  }
  set_recompute(r, o, s);
  if (o.framework != Framework::kTorchtitan) set_checkpoint_kind(r, o, s, notes);
  if (o.framework == Framework::kPlain || o.framework == Framework::kDeepSpeed) set_liger(a, r, o, s, notes);
  // DeepSpeed too has rules of its own for types: the engine casts the model and updates f32 weights.
  if (r.mode == RunMode::kQlora || (adapts(r) && r.memory.frozen == DType::kI8))
    set_quantized(a, r, o, s, notes);
  else if (o.framework != Framework::kDeepSpeed)
    set_types(r, o, s, notes);
  if (o.product_type && !s.product_type)
    reject(
        "plan.quant_compute",
        "it is the type of products over a base in 4 bits without mixed precision, and not under DeepSpeed",
        "leave it out: mixed precision multiplies in train.precision");
  if (o.f32_norms && !s.norm_weights)
    reject("plan.norms = \"fp32\"",
           "norms have a type of their own over a base in 4 bits only, and not under DeepSpeed",
           "leave it out");
  set_cut_loss(a, r, o, s, notes);
  set_tiled_loss(a, r, o, s, notes);
  set_trainer_loss(a, r, o, s, notes);
  if (o.framework == Framework::kPlain) set_adapter_kernels(a, r, o, s, notes);
  if (o.name == "unsloth") set_unsloth(a, r, s, notes);
  set_preferences(a, r, o, s, notes);
  set_attention_kernels(a, r, o, s, notes);
  if (o.name == "transformers") set_release(a, r, o, s, notes);
  if (o.framework != Framework::kDeepSpeed) require_types_of_parameters(r, o, s, notes);
  set_optimizer(r, o, s);
  if (o.framework == Framework::kDeepSpeed)
    set_deepspeed(a, r, o, s, notes);
  else if (sharded(r, o))
    set_fsdp(a, r, o, s, notes);
  keep_middle_micro_batch(r, s);
  return s;
}

}  // namespace trainhost::pytorch
