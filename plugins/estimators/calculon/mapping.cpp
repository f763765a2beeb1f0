// From the run file to Calculon's inputs: small converters first, then read_options(), completed() and map().
// A setting that Calculon lacks but whose effect a note can state is mapped to the nearest one (notes.cpp);
// one that changes the meaning of the result is refused here or by check() in closed_form.cpp.
#include "plugins/estimators/calculon/mapping.hpp"

#include <algorithm>
#include <string>

#include "core/base/checked.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::calculon {
namespace {

// One size for weights and activations. TF32 is a type of products: its tensors are f32.
std::uint64_t bytes_per_element(DType t) {
  if (t == DType::kF32 || t == DType::kTF32) return 4;
  if (t == DType::kBF16 || t == DType::kF16) return 2;
  if (t == DType::kF8) return 1;
  throw usage_error("calculon does not support " + std::string(name(t)) +
                    " weights; it supports f32, bf16, fp16 and fp8");
}

/// One policy for all blocks: the weakest among the layers.
Activation recompute(const ModelSpec& m, const RunSpec& r) {
  switch (r.recompute) {
    case Recompute::kFull:
      return Activation::kFull;
    case Recompute::kSelective:
      return Activation::kAttnOnly;
    case Recompute::kLayers:
      // Policies per layer: the bytes must not be underestimated, so the layer that recomputes least decides.
      if (r.recompute_layers.full >= m.layers) return Activation::kFull;
      return r.recompute_layers.total() >= m.layers ? Activation::kAttnOnly : Activation::kNone;
    case Recompute::kNone:
    case Recompute::kAuto:
      break;
  }
  return Activation::kNone;
}

Comm comm(const RunSpec& r, const Options& o) {
  // Without the option the run decides: sequence parallelism is reduce-scatter and all-gather.
  if (!o.comm) return r.parallel.sequence ? Comm::kRsAg : Comm::kAr;
  if (r.parallel.sequence && *o.comm != Comm::kRsAg)
    throw usage_error(
        "plugin.calculon.tensor_par_comm_type and parallel.sequence = true contradict each other",
        "sequence parallelism is \"rs_ag\"");
  return *o.comm;
}

/// Of the rank that needs most. With several stages the first has the embedding and the last its tied copy or
/// the head: one matrix each.
Embedding embedding(const ModelSpec& m, const RunSpec& r) {
  // As in Megatron-LM, the vocabulary is padded so that each tensor-parallel rank has a multiple of
  // vocab_multiple.
  const std::uint64_t t = r.parallel.tensor, multiple = checked_mul(t, std::max(1u, r.memory.vocab_multiple));
  const std::uint64_t padded = checked_mul(checked_add(m.vocab, multiple - 1) / multiple, multiple);
  return {padded / t, m.hidden, r.parallel.pipeline == 1 && !m.tied ? 2u : 1u};
}

}  // namespace

Options read_options(const rules::Options& given) {
  Options o;
  o.embedding = given.flag("embedding", o.embedding);
  o.fused_activation = given.flag("fused_activation", o.fused_activation);
  o.seq_par_ag_redo = given.flag("seq_par_ag_redo", o.seq_par_ag_redo);
  // The words are in the order of the enumerators.
  if (const auto c = given.choice("tensor_par_comm_type", {"ar", "p2p_rs_ag", "rs_ag"}))
    o.comm = static_cast<Comm>(*c);
  if (const auto c = given.choice("tensor_par_overlap", {"none", "ring", "pipe"}))
    o.overlap = static_cast<Overlap>(*c);
  if (const auto c = given.choice("attention_type", {"multihead", "multiquery"})) o.multiquery = *c == 1;
  return o;
}

bool has_dimensions(const ModelSpec& m) {
  // A family that core/model does not know may lack any of them.
  return m.hidden && m.layers && m.heads && m.head_dim && m.intermediate && m.vocab;
}

ModelSpec completed(const ModelSpec& m) {
  // A trainable family has all dimensions already; another one gets those that its config.json implies.
  if (trainable_family(m.family) || m.config_json.empty() || !model::known_family(m.family)) return m;
  return model::outline(model::from_model(m), m.config_json);
}

Mapped map(const ModelSpec& m, const RunSpec& r, const Options& o) {
  Mapped to;
  // A GPT block: one width of the MLP and no key/value heads. What grouped-query attention saves is in a
  // note.
  to.application = {m.hidden, m.intermediate, r.seq_len, m.heads, m.head_dim, m.layers};
  Execution& e = to.execution;
  e.tensor_par = r.parallel.tensor, e.pipeline_par = r.parallel.pipeline, e.data_par = r.parallel.data;
  // Micro-batches of one rank in a step: 1F1B depends on their number.
  e.microbatch_size = r.micro_batch, e.microbatches = r.accumulate;
  e.pipeline_interleaving = r.parallel.virtual_stages;
  e.bytes_per_element = bytes_per_element(r.weight);
  e.training = r.mode != RunMode::kInference;
  e.fused_activation = o.fused_activation;
  // Calculon knows one key/value head or as many as query heads.
  e.multiquery = o.multiquery.value_or(m.kv_heads == 1 && m.heads > 1);
  if (e.training) e.recompute = recompute(m, r);
  // ZeRO on one rank divides nothing, and Calculon rejects it.
  e.optimizer_sharding = e.training && r.parallel.zero >= 1 && r.parallel.data > 1;
  e.comm = comm(r, o), e.overlap = o.overlap, e.seq_par_ag_redo = o.seq_par_ag_redo;
  // Tier 2 is one kind of memory in Calculon; report.cpp says whether it is host or disk.
  e.weight_offload = r.memory.weights_in != Tier::kDevice;
  e.activations_offload = r.memory.activations_in != Tier::kDevice;
  e.optimizer_offload = e.training && r.memory.optimizer_in != Tier::kDevice;
  if (o.embedding) to.embedding = embedding(m, r);
  return to;
}

}  // namespace trainhost::calculon
