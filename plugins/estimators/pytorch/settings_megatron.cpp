// Megatron-LM with the layers of Transformer Engine.
#include <algorithm>
#include <string>
#include <tuple>

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

/// Layers as --swiglu, --normalization RMSNorm and --disable-bias-linear make them.
bool is_described_layer(const model::LayerRun& run) {
  const model::Layer& l = run.layer;
  const model::Attention& a = l.attention;
  const model::Mlp& mlp = l.experts.count ? l.experts.each : l.mlp;
  return !a.q_bias && !a.k_bias && !a.v_bias && !a.o_bias && mlp.gated && !mlp.up_bias && !mlp.down_bias &&
         a.qk_norm == model::NormKind::kNone && l.norm == model::NormKind::kRms && l.norms == 2 &&
         !l.experts.shared_gate;
}

Element narrow_type(const RunSpec& r) {
  const bool bf16 = r.compute == DType::kBF16;
  if ((!bf16 && r.compute != DType::kF16) || (r.weight != DType::kNone && r.weight != r.compute))
    reject("train.precision = \"" + std::string(run_file_name(r.compute)) + "\" in Megatron-LM",
           "weights and activations in bf16 or fp16 are replayed", "set train.precision to \"bf16\"");
  return bf16 ? Element::kBF16 : Element::kF16;
}

void set_types(const RunSpec& r, frameworks::StepSettings& s) {
  s.weights = narrow_type(r);
  if (r.master != DType::kF32 && r.master != DType::kNone)
    reject("plan.master in Megatron-LM", "f32 weights are replayed");
  if (r.moment != DType::kF32 && r.moment != DType::kNone)
    reject("plan.moments in Megatron-LM", "the precision-aware optimizer is not replayed");
  s.megatron.gradients = r.grad == DType::kF32 || r.grad == DType::kNone ? Element::kF32 : s.weights;
  if (s.megatron.gradients != Element::kF32 && r.grad != r.compute)
    reject("plan.gradients in Megatron-LM", "they are f32 or have the type of the weights");
}

void check_parallelism(const model::Architecture& a, const RunSpec& r) {
  const Parallelism& p = r.parallel;
  if (p.zero > 1)
    reject("parallel.zero = " + std::to_string(p.zero) + " in Megatron-LM",
           "its FSDP is not replayed; 1 is the distributed optimizer");
  if (p.virtual_stages > 1)
    reject("parallel.interleave = " + std::to_string(p.virtual_stages) + " in Megatron-LM",
           "of the pipeline schedules 1F1B is replayed");
  const auto divides = [](std::uint64_t n, std::uint64_t parts, const std::string& what, const char* key) {
    if (n % parts)
      reject("parallel." + std::string(key) + " = " + std::to_string(parts) + " with " + std::to_string(n) +
                 " " + what,
             "the ranks have equal parts");
  };
  divides(a.layer_count(), p.pipeline, "layers", "pipeline");
  divides(r.seq_len, p.context, "tokens", "context");
  if (p.sequence) divides(r.seq_len / p.context, p.tensor, "tokens", "tensor");
  divides(a.vocab, p.tensor, "tokens of the vocabulary", "tensor");
  for (const model::LayerRun& run : a.layers) {
    divides(run.layer.attention.heads, p.tensor, "heads", "tensor");
    divides(run.layer.attention.kv_heads, p.tensor, "key and value heads", "tensor");
    divides(run.layer.mlp.width, p.tensor, "features of the MLP", "tensor");
  }
}

/// Multi-latent attention and experts.
void check_deepseek(const model::Architecture& a, const RunSpec& r, std::vector<std::string>& notes) {
  const Parallelism& p = r.parallel;
  bool latent = false, experts = false;
  for (const model::LayerRun& run : a.layers) {
    latent |= run.layer.attention.latent;
    experts |= run.layer.experts.count > 0;
    if (run.layer.experts.count % p.expert)
      reject("parallel.expert = " + std::to_string(p.expert) + " with " +
                 std::to_string(run.layer.experts.count) + " experts",
             "the ranks have equal parts");
  }
  if ((latent || experts) && p.tensor > 1)
    reject("parallel.tensor of this model in Megatron-LM",
           "multi-latent attention and experts are replayed without tensor parallelism");
  if (latent && p.context > 1)
    reject("parallel.context of this model in Megatron-LM",
           "multi-latent attention is replayed without context parallelism");
  if (latent && r.recompute == Recompute::kSelective)
    reject("selective recomputation of this model in Megatron-LM", "it is replayed for grouped queries");
  if (p.data * p.context % p.expert)
    reject("parallel.expert = " + std::to_string(p.expert),
           "expert-parallel ranks are a part of the data- and context-parallel ones");
  if (experts)
    notes.push_back(
        "Experts: dispatcher alltoall, grouped products and fused permutation (--moe-grouped-gemm, "
        "--moe-permute-fusion); each gets an equal part of the tokens.");
}

void set_context(const model::Architecture& a, const RunSpec& r, const Options& o,
                 frameworks::StepSettings& s, std::vector<std::string>& notes) {
  s.context = r.parallel.context;
  if (s.context == 1) return;
  s.megatron.exchanges_heads = o.exchanges_heads;
  if (o.exchanges_heads && a.layers.front().layer.attention.kv_heads / r.parallel.tensor % s.context)
    reject("plan.context_exchange = \"a2a\" with parallel.context = " + std::to_string(s.context),
           "each rank gets an equal part of the key and value heads");
  notes.push_back("Context parallelism: " + std::to_string(r.seq_len / s.context) + " tokens per rank; " +
                  (o.exchanges_heads
                       ? "attention keeps the exchanged heads and its result before the exchange."
                       : "plan.context_exchange = \"a2a\" plans for --cp-comm-type a2a, which keeps more."));
}

}  // namespace

void set_megatron(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  if (!frameworks::has_builder(a.family, frameworks::ModelSource::kMegatron) ||
      !std::ranges::all_of(a.layers, is_described_layer))
    reject("this model in Megatron-LM",
           "of its models those with the layers of Llama, Mixtral or DeepSeek are replayed");
  if (r.mode != RunMode::kFull) reject("adapters in Megatron-LM", "full training is replayed");
  if (s.attention == frameworks::AttentionKernel::kEager)
    reject("plan.attention = \"materialised\" in Megatron-LM", "fused attention is replayed");
  if (r.memory.cross_entropy != CrossEntropy::kInPlace && r.memory.cross_entropy != CrossEntropy::kPlain)
    reject("this plan.cross_entropy in Megatron-LM",
           "\"in-place\" (--cross-entropy-fusion-impl te) and \"plain\" (without fusion) are replayed");
  set_types(r, s);
  check_parallelism(a, r);
  check_deepseek(a, r, notes);
  set_context(a, r, o, s, notes);
  s.modules = frameworks::ModelSource::kMegatron;
  s.loop = frameworks::OptimizerLoop::kFused;
  s.ddp.on = false;
  s.tensor = r.parallel.tensor;
  s.megatron.shares_tokens = r.parallel.sequence && r.parallel.tensor > 1;
  s.megatron.in_place_loss = r.memory.cross_entropy == CrossEntropy::kInPlace;
  s.megatron.distributed = r.parallel.zero == 1;
  s.megatron.ranks = r.parallel.data * r.parallel.context;
  s.megatron.expert = r.parallel.expert;
  if (r.parallel.pipeline > 1) {
    s.stage.stages = r.parallel.pipeline;
    s.accumulate = std::min(r.accumulate, r.parallel.pipeline + 1);
    notes.push_back("Pipeline: 1F1B with " + std::to_string(r.accumulate) + " micro-batches per step.");
  }
  notes.push_back(
      "Megatron-LM adds gradients of matrices to its " +
      std::string(s.megatron.gradients == Element::kF32 ? "f32" : "16-bit") +
      " buffer (gradient accumulation fusion); Transformer Engine keeps a dummy gradient of each shape. " +
      (s.megatron.distributed ? std::to_string(s.megatron.ranks) + " ranks share f32 weights and moments."
                              : "Each rank has all f32 weights and moments.") +
      " No dropout.");
}

}  // namespace trainhost::pytorch
