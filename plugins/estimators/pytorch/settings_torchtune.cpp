// torchtune: its recipes for full training, LoRA and QLoRA, on one device or under FSDP2. One function per
// group of settings; each refuses what the recipes do not have. Published runs and their errors:
// docs/published-runs.md ("torchtune"). The modules themselves: core/frameworks.
#include <algorithm>

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

void require_known_model(const model::Architecture& a, const RunSpec& r, const Options& o) {
  if (o.moved_logits && a.family != "llama" && a.family != "mistral")
    reject("the family '" + a.family + "' in torchtune 0.2",
           "only Llama and Mistral of that release are described", "leave plan.framework_version out");
  // One module serves Llama and Mistral, another one Qwen; other variants of these families have tensors that
  // they lack. Gemma 2 has norms behind attention and MLP too.
  const bool qwen = a.family.starts_with("qwen"), gemma2 = a.family == "gemma2",
             eager = qwen || a.family.starts_with("gemma") || a.family == "phi3";
  const auto plain = [&](const model::LayerRun& run) {
    const model::Layer& l = run.layer;
    return (qwen || (!l.attention.q_bias && l.attention.qk_norm == model::NormKind::kNone)) &&
           !l.attention.o_bias && !l.mlp.up_bias && !l.mlp.down_bias && l.experts.count == 0 &&
           l.norms == (gemma2 ? 4 : 2);
  };
  if (eager && (r.mode == RunMode::kQlora || o.compile))
    reject(std::string(o.compile ? "plan.execution = \"compile\"" : "NF4 weights") +
               (qwen ? " of Qwen in torchtune" : " of Gemma and Phi-3 in torchtune"),
           "its step was compared with PyTorch in bf16 and eager execution");
  if (!frameworks::has_builder(a.family, frameworks::ModelSource::kTorchtune) ||
      !std::ranges::all_of(a.layers, plain))
    reject("this model in torchtune",
           "of its models Llama, Mistral, Qwen 2, Qwen 3, Gemma, Gemma 2 and Phi-3 are replayed");
}

void require_bf16(const RunSpec& r, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  // kNone: the run file does not name the type.
  const auto is = [](DType t, DType other) { return t == other || t == DType::kNone; };
  if (r.compute != DType::kBF16)
    reject("train.precision other than \"bf16\" in torchtune", "its recipes were compared in bf16",
           "set train.precision to \"bf16\"");
  for (const auto& [type, key] :
       {std::pair{r.grad, "plan.gradients"}, {r.moment, "plan.moments"}, {r.weight, "plan.weights"}})
    // f32 is the default of the run file, so it may not have been asked for.
    if (!is(type, DType::kBF16) && type != DType::kF32 && r.mode == RunMode::kFull)
      reject(std::string(key) + " = \"" + std::string(run_file_name(type)) + "\"",
             "with dtype: bf16 torchtune has every tensor in bf16");
  // torchtune has one type for everything (dtype) and no autocast.
  s.weights = Element::kBF16;
  notes.push_back(
      "torchtune has weights, gradients and moments in bf16, without a copy in f32 (dtype: bf16).");
}

void choose_optimizer(const RunSpec& r, const Options& o, frameworks::StepSettings& s) {
  // 8-bit AdamW besides those of torch.optim: of torchao, or of bitsandbytes with paged moments.
  if (r.optimizer != Optimizer::kAdamW && r.optimizer != Optimizer::kAdamW8bit &&
      r.optimizer != Optimizer::kSgd && r.optimizer != Optimizer::kSgdMomentum)
    reject("optimizer.name = \"" + std::string(name(r.optimizer)) + "\"", "its temporaries are not replayed",
           "set it to \"adamw\", \"adamw-8bit\" or \"sgd\"");
  s.optimizer = r.optimizer;
  s.loop = o.loop;
  s.weight_decay = r.weight_decay != 0;
  s.paged_optimizer = o.paged_optimizer;
  s.update_in_backward = o.update_in_backward;
  if (s.update_in_backward && r.mode != RunMode::kFull)
    reject("plan.optimizer_in_backward with adapters", "the LoRA recipes of torchtune have no such setting");
  // A parameter is updated as soon as its gradient is complete, and the gradient is freed.
  if (s.update_in_backward && r.accumulate > 1)
    reject("plan.optimizer_in_backward with train.grad_accum > 1",
           "a gradient is freed before the next micro-batch");
}

void choose_adapters(const RunSpec& r, frameworks::StepSettings& s) {
  // Adapters are in bf16 like everything else; only the frozen base may be quantized.
  if (r.mode == RunMode::kQlora) {
    if (r.memory.frozen != DType::kNF4)
      reject("a base in another type than nf4", "QLoRA of torchtune has NF4 tensors of torchao");
    s.nf4 = true;
  } else if (r.mode == RunMode::kLora && r.memory.frozen != DType::kNone && r.memory.frozen != DType::kBF16) {
    reject("lora.base = \"" + std::string(run_file_name(r.memory.frozen)) + "\"",
           "torchtune has a base in bf16 or nf4");
  }
}

void choose_offload(const RunSpec& r, frameworks::StepSettings& s) {
  if (r.memory.activations_in == Tier::kDevice) return;
  // With recomputation the offloaded tensors are the inputs of layers, whose order is known.
  if (!s.checkpoint)
    reject("plan.offload_activations without recomputation",
           "which copies to host memory are complete at the peak depends on the speed of the device",
           "set train.recompute to \"full\"");
  s.offload_inputs = true;
}

/// fsdp_cpu_offload: CPUOffloadPolicy of FSDP2 moves all of a rank's part to host memory.
void choose_cpu_offload(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                        std::vector<std::string>& notes) {
  const bool weights = r.memory.weights_in != Tier::kDevice,
             optimizer = r.memory.optimizer_in != Tier::kDevice;
  if (!weights && !optimizer && !o.offload_gradients) return;
  if (!weights || !optimizer || (!o.offload_gradients && r.mode == RunMode::kFull) || !s.fsdp.ranks)
    reject("this offload in torchtune",
           "fsdp_cpu_offload of its distributed recipes moves weights, gradients and optimizer together",
           "set plan.offload_weights, plan.offload_gradients and plan.offload_optimizer to \"cpu\", and "
           "parallel.data");
  if (r.memory.weights_in == Tier::kDisk || r.memory.optimizer_in == Tier::kDisk)
    reject("offload to \"nvme\" in torchtune", "CPUOffloadPolicy has host memory only");
  if (s.optimizer == Optimizer::kAdamW8bit || s.paged_optimizer || s.update_in_backward)
    reject("this optimizer with weights in host memory", "it needs weights on the device",
           "set optimizer.name to \"adamw\"");
  s.fsdp.offloads = true;
  notes.push_back(
      "Weights, gradients and the optimizer are in host memory (fsdp_cpu_offload): the device has gathered "
      "weights and activations. Not compared with PyTorch.");
}

void choose_ranks(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (r.parallel.data < 2) {
    if (o.separate_ends)
      notes.push_back("plan.separate_ends has no effect on one device: nothing is sharded.");
    return;
  }
  if (r.parallel.zero < 2)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with several ranks in torchtune",
           "its distributed recipes shard with fully_shard",
           "set parallel.zero to 3, or to 2 for fsdp_reshard_after_forward: False");
  // No DDP: the distributed recipes shard at every number of ranks.
  s.ddp.on = false;
  s.fsdp.ranks = r.parallel.data;
  s.fsdp.reshard_after_forward = r.parallel.zero == 3;
  s.fsdp.separate_ends = s.fsdp.frees_last = o.separate_ends;
  // One type for shards, gathered weights and reduction (dtype: bf16).
  s.fsdp.shards = s.fsdp.reduce = s.weights;
  if (o.moved_logits) {
    // FullyShardedDataParallel: ModuleWrapPolicy({TransformerDecoderLayer}), and lora_fsdp_wrap_policy().
    if (o.separate_ends)
      reject("plan.separate_ends in torchtune 0.2",
             "the units of memory_efficient_fsdp_wrap are not replayed", "leave it out");
    if (s.nf4) reject("NF4 weights on several ranks in torchtune 0.2", "FSDP1 does not shard them");
    s.fsdp.flat = true;
    s.fsdp.backward_prefetch = frameworks::BackwardPrefetch::kBefore;
    notes.push_back("FSDP1: " + std::to_string(s.fsdp.ranks) + " ranks; every layer and the model are units" +
                    (s.lora_rank ? ", and each matrix of an adapter" : "") +
                    ", in bf16. Memory of flat parameters that other streams "
                    "still use after its last use is not counted.");
    return;
  }
  notes.push_back("FSDP2: " + std::to_string(s.fsdp.ranks) + " ranks; every layer" +
                  (o.separate_ends ? ", the embedding, the head" : "") +
                  " and the model are units, in bf16.");
  if (o.separate_ends && a.tied)
    reject("plan.separate_ends with an embedding that is the head too", "two units would share it",
           "leave plan.separate_ends out");
  if (s.nf4)
    notes.push_back(
        "Ranks share the NF4 weights and their scales, which FSDP2 gathers (not compared with PyTorch).");
}

}  // namespace

void set_torchtune(const model::Architecture& a, const RunSpec& r, const Options& o,
                   frameworks::StepSettings& s, std::vector<std::string>& notes) {
  require_known_model(a, r, o);
  // Without eager attention a run file that asks for materialised scores has no equivalent.
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\"", "torchtune calls scaled_dot_product_attention");
  s.modules = frameworks::ModelSource::kTorchtune;
  require_bf16(r, s, notes);
  choose_adapters(r, s);
  choose_optimizer(r, o, s);
  choose_offload(r, s);
  s.tunes_with_clones = o.torch_of_2024 && s.optimizer == Optimizer::kAdamW8bit && !s.paged_optimizer;
  choose_ranks(a, r, o, s, notes);
  choose_cpu_offload(r, o, s, notes);
  s.loss = o.loss;
  s.compiles_layers = s.compiles_loss = o.compile;
  // Rows are packed with several examples: positions are an input, and the table of angles has the length of
  // the model. The attention of Gemma 2 takes no masks of packed rows, and 0.1 had no packing.
  s.packed = a.family != "gemma2" && !o.moved_logits;
  if (a.family == "gemma2")
    notes.push_back(
        "Gemma 2 of torchtune computes its scores in separate operators, as they are capped; rows are not "
        "packed (dataset.packed: False).");
  s.positions = static_cast<std::uint32_t>(std::max<std::uint64_t>(a.max_positions, s.sequence));
  note_emulated_bf16(o, s, notes);
}

}  // namespace trainhost::pytorch
