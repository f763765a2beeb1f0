// FSDP2: `fully_shard` on each decoder layer and on the model of transformers, by hand or by accelerate,
// FSDP1 by accelerate, and torchtitan with its tensor, context and pipeline parallelism. Differences between
// its versions: docs/pytorch-memory.md ("torchtitan"). Sets the policy only; what a unit allocates is in
// core/frameworks.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

const char* name_of(Element e) { return e == Element::kF32 ? "f32" : e == Element::kBF16 ? "bf16" : "f16"; }

Element half_of(DType t) { return t == DType::kF16 ? Element::kF16 : Element::kBF16; }

/// The models that are replayed as torchtitan has them: Llama 3, and Qwen3 without experts.
void require_own_model(const model::Architecture& a, const Options& o, std::uint32_t stages) {
  const bool qwen3 = a.family == "qwen3";
  const model::NormKind of_heads = qwen3 ? model::NormKind::kRms : model::NormKind::kNone;
  // Configurations of both families may have biases or other norms, which torchtitan's modules do not have.
  const auto plain = [&](const model::LayerRun& run) {
    const model::Layer& l = run.layer;
    return !l.attention.q_bias && !l.attention.o_bias && !l.mlp.up_bias && !l.mlp.down_bias &&
           l.attention.qk_norm == of_heads && l.experts.count == 0 && l.norms == 2;
  };
  if ((a.family != "llama" && !qwen3) || !std::ranges::all_of(a.layers, plain))
    reject("this model in torchtitan", "of its models Llama 3 and Qwen3 without experts are replayed");
  if (qwen3 && o.version != TorchtitanVersion::k02)
    reject("Qwen3 in a release of torchtitan before 0.2", "0.2 is the first that has it",
           "leave plan.framework_version out");
  if (qwen3 && a.tied && stages > 1)
    reject("parallel.pipeline = " + std::to_string(stages) + " with an embedding that is the head too",
           "they are in different stages, and torchtitan's Qwen3 shares one weight");
}

void set_compile(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                 std::vector<std::string>& notes) {
  if (!o.compile) return;
  // With recomputation the layer decides what is kept, without it the compiler does.
  if (r.recompute == Recompute::kNone)
    reject("plan.execution = \"compile\" without recomputation", "the compiler chooses what a layer keeps",
           "set train.recompute to \"selective\" or \"full\"");
  s.compiles_layers = true;
  s.compiles_loss = o.compiles_loss;
  notes.push_back(
      std::string(
          "torch.compile: selective recomputation keeps no result that the backward pass does not need") +
      (o.compiles_loss
           ? ", and the loss is computed from logits in bf16 (plan.cross_entropy = \"plain\": in f32)"
           : "") +
      ". Temporaries inside of compiled layers are counted as in eager execution.");
}

/// torchao's Float8Linear with dynamic scales: it keeps its input in bf16, and computes its product in 8
/// bits.
void set_float8(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                std::vector<std::string>& notes) {
  if (r.compute != DType::kF8) return;
  if (!o.compile)
    reject("train.precision = \"fp8\" in eager execution",
           "the casts of Float8Linear are fused only by torch.compile", "set plan.execution to \"compile\"");
  s.float8_layers = true;
  // enable_fsdp_float8_all_gather has an effect with data_parallel_shard_degree > 1 only.
  s.float8_gather = o.float8_gather && r.parallel.data > 1;
  notes.push_back(
      "float8: the linear layers of the decoder layers multiply in 8 bits and keep inputs and results in "
      "bf16; FSDP2 gathers their weights in " +
      std::string(s.float8_gather    ? "8 bits (plan.float8_gather)"
                  : !o.float8_gather ? "bf16 (plan.float8_gather)"
                                     : "bf16, as parallel.data is 1") +
      ". The head stays in bf16.");
}

/// Sequence parallelism between the matrices, and logits whose vocabulary is divided.
void set_tensor_parallelism(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s) {
  const std::uint32_t ranks = r.parallel.tensor;
  if (ranks < 2) return;
  if (!r.parallel.sequence)
    reject("parallel.tensor = " + std::to_string(ranks) + " without sequence parallelism",
           "torchtitan divides the tokens between the matrices", "set parallel.sequence = true");
  // The replay has one size for all ranks.
  const auto divides = [&](std::uint64_t n, const std::string& what) {
    if (n % ranks)
      reject("parallel.tensor = " + std::to_string(ranks) + " with " + std::to_string(n) + " " + what,
             "the ranks have equal parts");
  };
  // Sequence parallelism divides the tokens that context parallelism leaves to a rank.
  divides(r.seq_len / r.parallel.context, "tokens");
  divides(a.vocab, "tokens of the vocabulary");
  for (const model::LayerRun& run : a.layers) {
    divides(run.layer.attention.heads, "heads");
    divides(run.layer.attention.kv_heads, "key and value heads");
    divides(run.layer.mlp.width, "features of the MLP");
  }
  s.tensor = ranks;
}

/// 1F1B; the estimator asks for each stage in turn.
void set_pipeline(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const std::uint32_t stages = r.parallel.pipeline;
  if (stages < 2) return;
  if (r.parallel.virtual_stages > 1)
    reject("parallel.interleave = " + std::to_string(r.parallel.virtual_stages),
           "of the pipeline schedules only 1F1B is replayed");
  // Every micro-batch of a pipeline is replayed, because the number in flight changes: a bound on the time.
  constexpr std::uint32_t kMostMicroBatches = 1024;
  if (r.accumulate > kMostMicroBatches)
    reject("train.grad_accum = " + std::to_string(r.accumulate) + " with parallel.pipeline",
           "at most 1,024 micro-batches of a pipeline are replayed");
  s.stage.stages = stages;
  s.stage.ends_count = o.version != TorchtitanVersion::k00;
  if (a.layer_count() + (s.stage.ends_count ? 2 : 0) < 2 * stages)
    reject("parallel.pipeline = " + std::to_string(stages) + " with " + std::to_string(a.layer_count()) +
               " layers",
           "each stage has two layers at least, of which embedding and head may be one");
  // Not two, as elsewhere: see step_settings().
  s.accumulate = r.accumulate;
  s.fsdp.reduces_at_end = true;
  s.fsdp.keeps_last_layer = false;
  s.fsdp.keeps_last_reduction = o.version == TorchtitanVersion::k00;
  s.stage.buffers = o.version == TorchtitanVersion::k00   ? frameworks::StageBuffers::kUntilNextStep
                    : o.version == TorchtitanVersion::k01 ? frameworks::StageBuffers::kOutputsOfLastStage
                                                          : frameworks::StageBuffers::kUntilSent;
  notes.push_back(
      "Pipeline: 1F1B with " + std::to_string(r.accumulate) +
      " micro-batches per step; the weights of a stage stay gathered, and its gradients are summed in f32 "
      "and reduced at the end.");
}

/// Families whose step was compared with PyTorch to the byte (docs/pytorch-memory.md, "Accuracy").
void require_compared_family(const model::Architecture& a, const Options& o,
                             const frameworks::StepSettings& s) {
  const std::string name = o.flat_parameters ? "FSDP1" : "FSDP2";
  if (was_compared(a.family, Comparison::kSharded) && !(o.flat_parameters && a.family == "qwen3_moe")) return;
  constexpr const char* kReason = "its step was not compared with PyTorch";
  if (!was_compared(a.family, Comparison::kByAccelerate))
    reject(name + " of the family '" + a.family + "'", kReason);
  if (!o.by_accelerate)
    reject(name + " of the family '" + a.family + "'",
           "its step was compared with PyTorch as accelerate prepares it", "plan with --for transformers");
  const frameworks::LigerKernels& l = s.liger;
  if (l.loss || l.norms || l.rotary || l.swiglu)
    reject("kernels of Liger in the family '" + a.family + "' under " + name, kReason,
           "leave plan.cross_entropy and plan.liger_kernels out");
  if (s.nf4 || s.int8)
    reject("quantized weights of the family '" + a.family + "' under " + name, kReason,
           "set lora.base to \"bf16\"");
}

}  // namespace

void set_fsdp(const model::Architecture& a, const RunSpec& r, const Options& o, frameworks::StepSettings& s,
              std::vector<std::string>& notes) {
  require_compared_family(a, o, s);
  const std::string name = o.flat_parameters ? "FSDP1" : "FSDP2";
  const bool adapters = r.mode != RunMode::kFull;
  if (adapters && !o.by_accelerate)
    reject("adapters under FSDP2",
           "units that hold frozen and trained weights are replayed as accelerate prepares them",
           "plan with --for transformers");
  if (r.parallel.data * r.parallel.context < 2)
    reject("parallel.data = 1 with " + name,
           o.flat_parameters ? "it divides the weights among data-parallel ranks"
                             : "fully_shard divides the weights among data-parallel ranks",
           "set parallel.data, or plan one device with --for pytorch");
  if (r.parallel.zero < 2)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with " + name,
           o.flat_parameters ? "it divides weights and gradients too"
                             : "fully_shard divides weights and gradients too",
           o.flat_parameters ? "set parallel.zero to 3, or to 2 for SHARD_GRAD_OP"
                             : "set parallel.zero to 3, or to 2 for reshard_after_forward = false");
  const bool half = r.compute == DType::kBF16 || r.compute == DType::kF16 || r.compute == DType::kF8;
  frameworks::FsdpPolicy& f = s.fsdp;
  // Context-parallel ranks have equal weights, so fully_shard divides them over these ranks too.
  f.ranks = r.parallel.data * r.parallel.context;
  f.reshard_after_forward = r.parallel.zero != 2;
  f.shards = s.weights;  // f32 also where master weights are f32: see set_types()
  // peft keeps adapters in f32. The base has its own type.
  if (adapters) f.frozen = std::exchange(f.shards, Element::kF32);
  // Mixed precision is MixedPrecisionPolicy of FSDP2: weights are cast when they are gathered.
  s.autocast = false;
  s.ddp.on = false;
  const bool mixed = half && f.shards == Element::kF32;
  if (mixed) s.weights = half_of(r.compute);
  // MixedPrecisionPolicy without reduce_dtype reduces in the type of the shards.
  f.reduce = f.shards;
  if (r.grad == DType::kBF16) f.reduce = Element::kBF16;
  f.reduce_every_micro_batch = !o.no_sync;
  if (o.by_accelerate) {
    // Its policy has one type for weights, reduction and outputs, which FSDP1 does not cast.
    f.separate_ends = !o.flat_parameters;
    f.casts_output = mixed && !o.flat_parameters;
    f.reduce = mixed ? s.weights : f.shards;
  }
  f.flat = o.flat_parameters;
  if (f.flat) {
    f.original_parameters = o.original_parameters;
    f.backward_prefetch = o.backward_prefetch;
    f.prefetches_forward = o.forward_prefetch;
  }
  if (o.framework == Framework::kTorchtitan) {
    require_own_model(a, o, r.parallel.pipeline);
    s.modules = frameworks::ModelSource::kTorchtitan;
    // The table of versions in docs/pytorch-memory.md, line by line.
    f.separate_ends = o.version == TorchtitanVersion::k02;
    f.keeps_last_layer = !f.separate_ends;
    f.sums_by_unit = !f.separate_ends;
    s.composite_norms = o.version == TorchtitanVersion::k00;
    // In this order, as float8 needs compiled layers.
    set_compile(r, o, s, notes);
    set_float8(r, o, s, notes);
    set_tensor_parallelism(a, r, s);
    set_pipeline(a, r, o, s, notes);
    // Each rank has its share of the tokens, and a shard of the weights.
    if (const std::uint32_t ranks = r.parallel.context; ranks > 1) {
      if (s.sequence % ranks)
        reject("data.seq_len = " + std::to_string(s.sequence) +
                   " with parallel.context = " + std::to_string(ranks),
               "the context-parallel ranks share the tokens evenly");
      s.context = ranks;
      notes.push_back(
          "Context parallelism: " + std::to_string(s.sequence / ranks) +
          " tokens per rank; buffers of its attention, which are smaller than those of the loss, do not "
          "count.");
    }
    if (s.attention == frameworks::AttentionKernel::kEager)
      reject("plan.attention = \"materialised\"", "torchtitan calls scaled_dot_product_attention");
  }
  notes.push_back(
      name + ": " + std::to_string(f.ranks) + " ranks with " + name_of(f.shards) + " shards" +
      (f.flat ? " of flat parameters" : "") +
      (f.frozen ? std::string(" of the adapters and ") + name_of(*f.frozen) + " shards of the base" : "") +
      "; weights are gathered in " + name_of(s.weights) +
      (s.float8_gather ? ", those of linear layers in 8 bits," : "") + " and gradients reduced in " +
      name_of(f.reduce) + "; the weights of a layer are " + (f.reshard_after_forward ? "" : "not ") +
      "freed after its forward pass" +
      (s.stage.stages > 1 ? "."
       : !o.no_sync || r.accumulate < 2
           ? "; every micro-batch reduces."
           : "; the last micro-batch reduces, and until then each rank keeps the "
             "gradients of all weights (plan.no_sync)."));
  if (f.flat)
    notes.push_back(
        "Memory of flat parameters that other streams still use after its last use is not counted.");
  if (a.tied && o.framework == Framework::kTorchtitan && a.family == "llama")
    notes.push_back("torchtitan's Llama does not share embedding and head: both are counted.");
}

}  // namespace trainhost::pytorch
