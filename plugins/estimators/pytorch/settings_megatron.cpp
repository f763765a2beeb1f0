// Megatron-LM: which runs core/frameworks/megatron/decoder_megatron.hpp describes, and their settings. Bf16
// or fp16 weights with f32 main weights; tensor, sequence, context, expert and pipeline parallelism.
// Everything else is refused with one sentence. Products in 8 or 4 bits: settings_megatron_products.cpp.
// Next: decoder_megatron.hpp.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/plural.hpp"

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

std::string assigned_type(const char* key, DType t) {
  return std::string(key) + " = \"" + std::string(run_file_name(t)) + "\"";
}

/// Layers of LayerNormLinear or multi-latent attention with rotary embedding, SwiGLU, and experts.
bool is_described_by_megatron(const model::LayerRun& run) {
  const model::Layer& l = run.layer;
  const model::Attention& a = l.attention;
  const bool biases =
      a.q_bias == a.k_bias && a.q_bias == a.v_bias && !a.o_bias && !l.mlp.up_bias && !l.mlp.down_bias;
  const bool qk_norm =
      a.qk_norm == model::NormKind::kNone || (a.qk_norm == model::NormKind::kRms && a.qk_norm_per_head);
  const model::Experts& e = l.experts;
  const bool mlp =
      e.count ? e.each.gated && !e.shared_gate && l.mlp.width == 0 : l.mlp.gated && l.mlp.width > 0;
  return biases && qk_norm && mlp && l.norm == model::NormKind::kRms && l.norms == 2;
}

void check_model(const model::Architecture& a) {
  if (!frameworks::has_builder(a.family, frameworks::ModelSource::kMegatron) ||
      !std::ranges::all_of(a.layers, is_described_by_megatron))
    reject(
        "this model in Megatron-LM",
        "Llama, Mistral, Mixtral, Qwen2, Qwen3 and DeepSeek V2 and V3 with experts of one kind are replayed");
}

/// Experts: each rank has equal parts of them. plan.expert_tensor ranks divide each expert; without it all
/// tensor-parallel ranks do.
void set_experts(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                 std::vector<std::string>& notes) {
  const std::uint32_t ranks = r.parallel.expert;
  bool latent = false;
  for (const model::LayerRun& run : a.layers) {
    latent |= run.layer.attention.latent;
    if (run.layer.experts.count % std::max(1u, ranks))
      reject("parallel.expert = " + std::to_string(ranks) + " with " +
                 std::to_string(run.layer.experts.count) + " experts",
             "the ranks have equal parts");
  }
  if (ranks > 1 && !a.has_experts())
    reject("parallel.expert = " + std::to_string(ranks) + " without experts", "the ranks have parts of them");
  if ((a.has_experts() || latent) && r.parallel.tensor > 1 && !r.parallel.sequence)
    reject("parallel.tensor = " + std::to_string(r.parallel.tensor) +
               " without parallel.sequence in a model " +
               (a.has_experts() ? "with experts" : "with multi-latent attention"),
           "Megatron Core trains no experts without sequence parallelism", "set parallel.sequence to true");
  if (latent && r.parallel.context > 1)
    reject("parallel.context = " + std::to_string(r.parallel.context) + " with multi-latent attention",
           "its exchange is not replayed");
  const std::uint32_t each = expert_tensor_ranks(r.parallel);
  s.megatron.expert_ranks = std::max(1u, ranks);
  if (!a.has_experts()) return;
  const std::uint64_t sharing = std::uint64_t{r.parallel.data} * r.parallel.context * r.parallel.tensor,
                      parts = std::uint64_t{each} * s.megatron.expert_ranks;
  if (sharing % parts)
    reject("parallel.expert = " + std::to_string(ranks) + ", each expert on " + std::to_string(each) +
               (each == 1 ? " rank" : " ranks") + ", with " + std::to_string(sharing) +
               " data x context x tensor ranks",
           "the ranks have equal parts of the experts");
  for (const model::LayerRun& run : a.layers)
    for (const auto& [width, n] :
         {std::pair{run.layer.experts.each.width, each}, {run.layer.experts.shared.width, r.parallel.tensor}})
      if (width % n)
        reject("experts of width " + std::to_string(width) + " on " + std::to_string(n) + " ranks",
               "the ranks have equal parts");
  s.megatron.expert_tensor = each;
  if (r.parallel.zero == 1) s.megatron.expert_optimizer_ranks = static_cast<std::uint32_t>(sharing / parts);
  notes.push_back(
      "Experts: grouped products, fused permutation, all-to-all; every expert gets an equal share of the "
      "tokens (--moe-grouped-gemm --moe-permute-fusion --moe-token-dispatcher-type alltoall)." +
      (r.parallel.tensor > 1 ? " Each expert is divided over " + std::to_string(each) +
                                   (each == 1 ? " rank" : " ranks") + " (plan.expert_tensor)."
                             : std::string()));
}

Element type_of(DType t, const char* key) {
  if (t == DType::kF32) return Element::kF32;
  if (t == DType::kBF16) return Element::kBF16;
  if (t == DType::kF16) return Element::kF16;
  reject(assigned_type(key, t), "8-bit types of gradients and moments are not replayed");
}

void set_types_of_megatron(const RunSpec& r, frameworks::StepSettings& s) {
  for (const auto& [type, key] : {std::pair{r.compute, "train.precision"}, {r.weight, "plan.weights"}})
    if (type != DType::kBF16 && type != DType::kF16)
      reject(assigned_type(key, type) + " in Megatron-LM",
             "its mixed precision with 16-bit weights is replayed",
             "set train.precision to \"bf16\"; plan.fp8_recipe and plan.fp8_weights are products and weights "
             "in 8 "
             "bits");
  s.weights = type_of(r.weight, "plan.weights");
  if (r.master != DType::kF32)
    reject(assigned_type("plan.master", r.master) + " in Megatron-LM", "its optimizer updates f32 weights");
  s.megatron.gradients = type_of(r.grad, "plan.gradients");
  s.megatron.moments = type_of(r.moment, "plan.moments");
}

/// "moe_act, layernorm", as --recompute-modules has them.
std::string names_of_modules(const frameworks::StepSettings& s) {
  const frameworks::RecomputedModules& m = s.megatron.recomputed;
  std::string names;
  for (const auto& [on, name] : {std::pair{s.selective, "core_attn"},
                                 {m.activation, "moe_act"},
                                 {m.norms, "layernorm"},
                                 {m.up_projections, "mla_up_proj"},
                                 {m.mlp, "mlp"},
                                 {m.experts, "moe"},
                                 {m.shared_expert, "shared_experts"}})
    if (on) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

/// Throws for modules that Megatron Core does not recompute in this model (TransformerConfig, 0.14 to 0.17),
/// and notes those that the model does not have.
void check_modules(const model::Architecture& a, const frameworks::StepSettings& s,
                   std::vector<std::string>& notes) {
  const frameworks::RecomputedModules& m = s.megatron.recomputed;
  bool latent = false, dense = false, shared = false;
  for (const model::LayerRun& run : a.layers) {
    latent |= run.layer.attention.latent;
    dense |= run.layer.experts.count == 0;
    shared |= run.layer.experts.count && run.layer.experts.shared.width;
  }
  const auto refuse = [](const std::string& module, const std::string& why) {
    reject("plan.recompute_modules with " + module, "Megatron Core refuses it " + why,
           "leave " + module + " out of it");
  };
  if (m.up_projections && !latent) refuse("mla_up_proj", "without multi-latent attention");
  if (m.activation && !a.has_experts())
    refuse("moe_act", "without --moe-grouped-gemm, the grouped products of experts");
  for (const auto& [without, name, what] : {std::tuple{m.experts && !a.has_experts(), "moe", "experts"},
                                            {m.shared_expert && !shared, "shared_experts", "shared experts"},
                                            {m.mlp && !dense, "mlp", "layers without experts"}})
    if (without)
      notes.push_back(std::string(name) + " of plan.recompute_modules has no effect: the model has no " +
                      what + ".");
}

void set_recomputation(const model::Architecture& a, const RunSpec& r, const Options& o,
                       frameworks::StepSettings& s, std::vector<std::string>& notes) {
  // Not refused: sweeps, and changes that are proposed, set train.recompute alone.
  if (o.modules_given && r.recompute != Recompute::kSelective)
    notes.push_back(
        "plan.recompute_modules has no effect without selective recomputation: Megatron Core reads "
        "--recompute-modules with --recompute-granularity selective only.");
  if (r.recompute == Recompute::kNone) return;
  if (r.recompute == Recompute::kFull) {
    s.checkpoint = true;
    s.megatron.recompute_every = std::max(1u, r.memory.recompute_every);
  } else if (r.recompute == Recompute::kSelective) {
    s.selective = o.recomputes_attention;
    s.megatron.recomputed = o.recomputed;
    check_modules(a, s, notes);
    notes.push_back(
        "Selective recomputation: " + names_of_modules(s) + " (plan.recompute_modules)." +
        (s.selective ? " Attention keeps q, k, and the product of which v is a part." : std::string()));
  } else {
    reject("a number of layers that are recomputed in Megatron-LM", "none or all of a stage are replayed",
           "set train.recompute to \"none\", \"selective\" or \"full\"");
  }
}

/// 1F1B; the estimator asks for each stage in turn.
void set_stages(const model::Architecture& a, const RunSpec& r, frameworks::StepSettings& s,
                std::vector<std::string>& notes) {
  const std::uint32_t stages = r.parallel.pipeline, virtual_stages = std::max(1u, r.parallel.virtual_stages);
  if (stages < 2) return;
  const std::uint32_t first = r.parallel.first_stage_layers, last = r.parallel.last_stage_layers;
  if (first || last) {
    const std::uint32_t others = stages - (first > 0) - (last > 0);
    if (virtual_stages > 1)
      reject("parallel.interleave = " + std::to_string(virtual_stages) +
                 " with plan.first_stage_layers or plan.last_stage_layers",
             "virtual stages with equal numbers of layers are replayed");
    if (std::uint64_t{first} + last + others > a.layer_count() ||
        (others ? (a.layer_count() - first - last) % others : a.layer_count() - first - last))
      reject("plan.first_stage_layers = " + std::to_string(first) +
                 ", plan.last_stage_layers = " + std::to_string(last) + " of " +
                 std::to_string(a.layer_count()) + " layers in " + std::to_string(stages) + " stages",
             "the other stages have equal numbers of layers in Megatron Core");
    s.stage.first_layers = first, s.stage.last_layers = last;
  } else if (a.layer_count() % (std::uint64_t{stages} * virtual_stages))
    reject("parallel.pipeline = " + std::to_string(stages) +
               (virtual_stages > 1 ? ", parallel.interleave = " + std::to_string(virtual_stages)
                                   : std::string()) +
               " with " + std::to_string(a.layer_count()) + " layers in Megatron-LM",
           "stages with equal numbers of layers are replayed");
  if (virtual_stages > 1 && r.accumulate % stages)
    reject("train.grad_accum = " + std::to_string(r.accumulate) + " with " + std::to_string(stages) +
               " pipeline ranks that have virtual stages",
           "each group of micro-batches has one for each rank",
           "set train.grad_accum to a multiple of parallel.pipeline");
  s.stage.stages = stages;
  s.megatron.virtual_stages = virtual_stages;
  // Every later micro-batch is like the second after the first backward pass. With virtual stages
  // the passes of two groups are more than a rank has in flight.
  s.accumulate = std::min(r.accumulate, virtual_stages > 1 ? 2 * stages : stages + 1);
  notes.push_back((virtual_stages > 1 ? "Pipeline: interleaved 1F1B with " + std::to_string(virtual_stages) +
                                            " virtual stages per rank and "
                                      : std::string("Pipeline: 1F1B with ")) +
                  plural(r.accumulate, "micro-batch") + " per step.");
}

void set_ranks(const model::Architecture& a, const RunSpec& r, const Options& o, frameworks::StepSettings& s,
               std::vector<std::string>& notes) {
  const Parallelism& p = r.parallel;
  const auto divides = [&](const char* key, std::uint32_t ranks, std::uint64_t n, const char* what) {
    if (n % ranks)
      reject("parallel." + std::string(key) + " = " + std::to_string(ranks) + " with " + std::to_string(n) +
                 " " + what,
             "the ranks have equal parts");
  };
  s.tensor = p.tensor;
  s.context = p.context;
  s.megatron.sequence_parallel = p.sequence && p.tensor > 1;
  divides("context", p.context, r.seq_len, "tokens");
  divides("tensor", p.tensor, r.seq_len / p.context, "tokens");
  divides("tensor", p.tensor, a.vocab, "tokens of the vocabulary");
  for (const model::LayerRun& run : a.layers) {
    const model::Attention& t = run.layer.attention;
    divides("tensor", p.tensor, t.heads, "heads");
    divides("tensor", p.tensor, t.kv_heads, "key and value heads");
    divides("tensor", p.tensor, run.layer.mlp.width, "features of the MLP");
    if (!o.context_ring)
      divides("context", p.context, t.kv_heads / p.tensor, "key and value heads of a rank");
  }
  s.megatron.context_ring = o.context_ring;
  if (p.context > 1) {
    // A rank has two chunks of the sequence, so that all ranks have equal work under the causal mask.
    if (o.context_ring && r.seq_len % (2 * p.context))
      reject("parallel.context = " + std::to_string(p.context) + " with " + std::to_string(r.seq_len) +
                 " tokens",
             "each rank has two equal chunks of them");
    notes.push_back("Context parallelism: " +
                    std::string(o.context_ring ? "keys and values are sent around a ring (--cp-comm-type p2p)"
                                               : "all-to-all of heads and tokens (--cp-comm-type a2a)") +
                    "; " + std::to_string(r.seq_len / p.context) + " tokens per rank.");
  }
  if (p.zero > 1)
    reject("parallel.zero = " + std::to_string(p.zero) + " in Megatron-LM",
           "its FSDP is not replayed, the distributed optimizer is", "set parallel.zero to 1");
  s.megatron.distributed_optimizer = p.zero == 1;
  if (p.zero == 1) s.megatron.optimizer_ranks = p.data * p.context;
  notes.push_back(
      p.zero == 1 && p.data * p.context == 1 && s.megatron.expert_optimizer_ranks == 1
          ? std::string("Distributed optimizer: nothing is divided, because there is one data and "
                        "context rank, which has all main weights and moments of its part.")
      : p.zero == 1
          ? "Distributed optimizer: main weights and moments are divided over " +
                std::to_string(p.data * p.context) + " ranks (data and context)" +
                (s.megatron.expert_optimizer_ranks != p.data * p.context && a.has_experts()
                     ? ", those of experts over " + std::to_string(s.megatron.expert_optimizer_ranks) + "."
                     : std::string("."))
          : std::string("Without the distributed optimizer each rank has all main weights and "
                        "moments."));
}

void set_loss(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
              std::vector<std::string>& notes) {
  if (r.memory.cross_entropy != CrossEntropy::kInPlace && r.memory.cross_entropy != CrossEntropy::kPlain)
    reject("this plan.cross_entropy in Megatron-LM",
           "\"in-place\" is the fused loss of Transformer Engine, \"plain\" that of Megatron Core");
  s.megatron.loss_in_place = r.memory.cross_entropy == CrossEntropy::kInPlace;
  s.megatron.loss_compiled = o.compiled_loss && !s.megatron.loss_in_place;
  if (s.megatron.loss_in_place && o.compiled_loss)
    notes.push_back(
        "plan.compiled_loss has no effect on the loss of Transformer Engine, which is a kernel of its own.");
  notes.push_back(
      s.megatron.loss_in_place
          ? "Loss of Transformer Engine (--cross-entropy-loss-fusion --cross-entropy-fusion-impl te): the "
            "gradient replaces the logits; plan.cross_entropy = \"plain\" is that of Megatron Core."
      : s.megatron.loss_compiled
          ? "Loss of Megatron Core, compiled: logits are copied to f32, and their softmax a second time in "
            "the "
            "backward pass; plan.cross_entropy = \"in-place\" is that of Transformer Engine."
          : "Loss of Megatron Core: logits are copied to f32; plan.cross_entropy = \"in-place\" is that of "
            "Transformer Engine.");
}

}  // namespace

void set_megatron(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  /// On compute capability 9.0 and later; before, 4 MiB.
  constexpr std::uint64_t kLinearWorkspace = (32u << 20) + 1024;
  check_model(a);
  if (r.mode != RunMode::kFull) reject("adapters in Megatron-LM", "it trains all weights");
  if (r.optimizer != Optimizer::kAdamW)
    reject("optimizer.name = \"" + std::string(name(r.optimizer)) + "\" in Megatron-LM",
           "its Adam is replayed");
  if (r.memory.attention == AttentionMemory::kMaterialised)
    reject("plan.attention = \"materialised\" in Megatron-LM", "the fused attention of cuDNN is replayed");
  s.modules = frameworks::ModelSource::kMegatron;
  s.ddp.on = false;
  s.megatron.linear_workspace = kLinearWorkspace;
  set_types_of_megatron(r, s);
  set_recomputation(a, r, o, s, notes);
  s.megatron.router_in_f32 = o.router_in_f32;
  s.megatron.fused_rotation = o.fused_rotation;
  set_experts(a, r, s, notes);
  set_ranks(a, r, o, s, notes);
  set_stages(a, r, s, notes);
  set_loss(r, o, s, notes);
  set_products(a, r, o, s, notes);
  if (a.tied && r.parallel.pipeline > 1)
    notes.push_back("The tied embedding is on the first and the last stage, each with its own state.");
  note_unfused_attention(a, o, s, notes);
}

}  // namespace trainhost::pytorch
