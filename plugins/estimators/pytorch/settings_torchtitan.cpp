// torchtitan: its models, compilation, products in 8 bits, and tensor, context, expert and pipeline
// parallelism under FSDP2. Differences between its versions: docs/pytorch-memory.md ("Releases of
// torchtitan"). Sets the policy only; what a unit allocates is in core/frameworks.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/plural.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

bool has_experts(const model::Architecture& a) {
  return a.family.starts_with("llama4") || a.family == "qwen3_moe" || a.family == "deepseek_v2" ||
         a.family == "deepseek_v3";
}

/// The models that are replayed as torchtitan has them: Llama 3, Qwen3, and DeepSeek V2 and V3.
void require_own_model(const model::Architecture& a, const RunSpec& r, const Options& o) {
  const bool latent = a.family.starts_with("deepseek_v"), qwen3 = a.family.starts_with("qwen3");
  // torchtitan's Llama 4 has no norms of q and k; those of its files have no weights, and some layers none.
  const bool llama4 = a.family.starts_with("llama4");
  const auto own_norms = [&](model::NormKind kind) {
    return kind == (qwen3 ? model::NormKind::kRms : model::NormKind::kNone) ||
           (llama4 && kind == model::NormKind::kUnscaled);
  };
  // Configurations of these families may have biases or other norms, which torchtitan's modules do not have.
  const auto own = [&](const model::LayerRun& run) {
    const model::Layer& l = run.layer;
    return !l.attention.q_bias && !l.attention.o_bias && !l.mlp.up_bias && !l.mlp.down_bias &&
           own_norms(l.attention.qk_norm) && l.attention.latent == latent &&
           (l.experts.count == 0 || has_experts(a)) && l.norms == 2;
  };
  if ((a.family != "llama" && a.family != "qwen3" && !has_experts(a)) || !std::ranges::all_of(a.layers, own))
    reject("this model in torchtitan", "of its models Llama 3 and 4, Qwen3 and DeepSeek V3 are replayed");
  if (a.family != "llama" && o.version < TorchtitanVersion::k02)
    reject("this model in a release of torchtitan before 0.2", "0.2 is the first that is described with it",
           "leave plan.framework_version out");
  const std::uint32_t stages = r.parallel.pipeline;
  if (qwen3 && a.tied && stages > 1)
    reject("parallel.pipeline = " + std::to_string(stages) + " with an embedding that is the head too",
           "they are in different stages, and torchtitan's Qwen3 shares one weight");
}

/// Experts on all ranks, or on those of expert parallelism, which are a part of those of FSDP.
void set_torchtitan_experts(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                            std::vector<std::string>& notes) {
  const std::uint32_t ranks = r.parallel.expert;
  if (!has_experts(a)) {
    if (ranks > 1)
      reject("parallel.expert = " + std::to_string(ranks) + " of a model without experts",
             "there is nothing to divide", "leave it out");
    return;
  }
  if (r.parallel.context > 1)
    reject("parallel.context = " + std::to_string(r.parallel.context) + " of a model with experts",
           "ring attention of these models is not replayed");
  if (ranks > 1 && r.parallel.expert_tensor > 1)
    reject("plan.expert_tensor = " + std::to_string(r.parallel.expert_tensor),
           "with expert parallelism tensor-parallel ranks divide the rows, not the experts");
  if (s.float8_layers)
    reject("train.precision = \"fp8\" of a model with experts",
           "products of experts in 8 bits are not replayed");
  if (s.compiles_layers && s.selective)
    notes.push_back(
        "What compiled layers with experts keep under selective recomputation was not compared with "
        "PyTorch.");
  const std::uint32_t tensor = r.parallel.tensor, together = s.fsdp.ranks * tensor;
  if (together % ranks || (ranks > 1 && ranks % tensor))
    reject("parallel.expert = " + std::to_string(ranks) + " with " + std::to_string(together) +
               " data- and tensor-parallel ranks",
           "the expert-parallel ranks are a part of them, and contain all tensor-parallel ranks");
  for (const model::LayerRun& run : a.layers)
    if (run.layer.experts.count % ranks)
      reject("parallel.expert = " + std::to_string(ranks) + " with " +
                 std::to_string(run.layer.experts.count) + " experts",
             "the ranks have equal parts");
  s.expert = ranks;
  notes.push_back("Experts: " +
                  std::string(ranks > 1 ? std::to_string(ranks) +
                                              " ranks share them, and every rank receives as many rows "
                                              "as it sends; one that receives more needs more. "
                                        : "each rank has all of them. ") +
                  "A grouped product computes them, and rows are padded by 8 per expert.");
}

void set_compile(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                 std::vector<std::string>& notes) {
  s.compiles_loss = o.compiles_loss;
  if (!o.compile) {
    if (o.compiles_loss)
      notes.push_back("The loss is compiled, and computed from logits in bf16; the layers run eagerly.");
    return;
  }
  // With recomputation the layer decides what is kept, without it the compiler does.
  if (r.recompute == Recompute::kNone)
    reject("plan.execution = \"compile\" without recomputation", "the compiler chooses what a layer keeps",
           "set train.recompute to \"selective\" or \"full\"");
  s.compiles_layers = true;
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
    if (!run.layer.attention.latent) divides(run.layer.attention.kv_heads, "key and value heads");
    divides(run.layer.mlp.width, "features of the MLP");
    divides(run.layer.experts.each.width, "features of an expert");
  }
  s.tensor = ranks;
}

/// 1F1B, or the interleaved one; the estimator asks for each stage in turn.
void set_pipeline(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const std::uint32_t stages = r.parallel.pipeline;
  if (stages < 2) return;
  const std::uint32_t per_rank = r.parallel.virtual_stages;
  // Every micro-batch of a pipeline is replayed, because the number in flight changes: a bound on the time.
  constexpr std::uint32_t kMostMicroBatches = 1024;
  if (r.accumulate > kMostMicroBatches)
    reject("train.grad_accum = " + std::to_string(r.accumulate) + " with parallel.pipeline",
           "at most 1,024 micro-batches of a pipeline are replayed");
  s.stage.stages = stages * per_rank;
  s.stage.per_rank = per_rank;
  s.stage.ends_count = o.version != TorchtitanVersion::k00;
  if (per_rank > 1) {
    if (a.layer_count() + (s.stage.ends_count ? 2 : 0) < s.stage.stages)
      reject("parallel.interleave = " + std::to_string(per_rank) + " with " +
                 std::to_string(a.layer_count()) + " layers",
             "each of the " + std::to_string(s.stage.stages) + " stages has a layer at least");
    const std::uint32_t rounds = frameworks::rounds_of_schedule(s.stage, r.accumulate);
    if (r.accumulate % rounds)
      reject("train.grad_accum = " + std::to_string(r.accumulate) + " with parallel.interleave",
             "torch divides the micro-batches into " + std::to_string(rounds) + " equal rounds");
  } else if (a.layer_count() + (s.stage.ends_count ? 2 : 0) < 2 * stages)
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
  notes.push_back(std::string("Pipeline: ") +
                  (per_rank > 1 ? "interleaved 1F1B, " + std::to_string(per_rank) + " stages per rank, with "
                                : "1F1B with ") +
                  plural(r.accumulate, "micro-batch") +
                  " per step; the weights of a stage stay gathered, and its gradients are summed in f32 "
                  "and reduced at the end.");
}

}  // namespace

void set_torchtitan(const model::Architecture& a, const RunSpec& r, const Options& o,
                    frameworks::StepSettings& s, std::vector<std::string>& notes) {
  frameworks::FsdpPolicy& f = s.fsdp;
  require_own_model(a, r, o);
  s.modules = frameworks::ModelSource::kTorchtitan;
  // The table of versions in docs/pytorch-memory.md, line by line.
  f.separate_ends = o.version >= TorchtitanVersion::k02;
  // 0.2.0 computes attention by cuDNN, which is not in its list of what selective recomputation keeps.
  s.recomputes_attention = o.version == TorchtitanVersion::k020;
  f.keeps_last_layer = !f.separate_ends;
  f.sums_by_unit = !f.separate_ends;
  s.composite_norms = o.version == TorchtitanVersion::k00;
  if (o.fsdp_replicas > 1) {
    if (r.parallel.data % o.fsdp_replicas || f.ranks < 2)
      reject("plan.fsdp_replicas = " + std::to_string(o.fsdp_replicas) + " with " +
                 std::to_string(r.parallel.data) + " data-parallel ranks",
             "each replica has an equal number of them, and shards its weights");
    notes.push_back(std::to_string(o.fsdp_replicas) +
                    " replicas sum their sharded gradients, which needs no further memory.");
  }
  if (o.selective_layers && s.selective) {
    if (o.compile)
      reject("plan.selective_layers with plan.execution = \"compile\"",
             "the compiler chooses what the other layers keep", "leave plan.selective_layers out");
    s.selective = false;
    s.recomputed_layers = o.selective_layers;
    if (o.selective_layers > 1)
      notes.push_back("Of every " + std::to_string(o.selective_layers) +
                      " layers one is recomputed whole, the others are not (plan.selective_layers).");
  } else if (o.selective_layers) {
    notes.push_back("plan.selective_layers has no effect without selective recomputation.");
  }
  // In this order, as float8 needs compiled layers.
  set_compile(r, o, s, notes);
  set_float8(r, o, s, notes);
  set_torchtitan_experts(a, r, s, notes);
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
  if (a.tied && a.family == "llama")
    notes.push_back("torchtitan's Llama does not share embedding and head: both are counted.");
}

}  // namespace trainhost::pytorch
