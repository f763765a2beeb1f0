// Look-ups in a program: names of buffers and operations, operand masks, sections. Programs are built in
// build_program.cpp.
#include "core/step/program.hpp"

#include <cassert>
#include <iterator>

#include "core/base/checked.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

constexpr std::uint32_t bits(std::initializer_list<In> slots) {
  std::uint32_t m = 0;
  for (In i : slots) m |= 1u << i.slot;
  return m;
}

using namespace operand;

// By OpKind: name, number of inputs, inputs that are changed in place, inputs that are scratch. The checker
// states the same facts a second time (core/placement/check_structure.cpp); changing one of them alone fails
// its test.
constexpr OpInfo kOps[] = {
    {"embed", 2, 0, 0},
    {"rms_norm", 2, 0, 0},
    {"linear", 4, 0, 0},
    {"qk_norm", 3, bits({qk_norm::kQkv}), 0},
    {"rope", 2, bits({rope::kQkv}), 0},
    {"attention", 3, 0, bits({attention::kScratch})},
    {"swiglu", 1, 0, 0},
    {"head_loss", 15,
     bits({head_loss::kHf, head_loss::kGradHead, head_loss::kScalars, head_loss::kU, head_loss::kGradB,
           head_loss::kGradMagnitude, head_loss::kDropped}),
     bits({head_loss::kLogits, head_loss::kLosses, head_loss::kUnscaled})},
    {"head_eval", 10, bits({head_eval::kScalars}), bits({head_eval::kLogits, head_eval::kLosses})},
    {"head_logits", 7, 0, bits({head_logits::kUnscaled})},
    {"rms_norm_bwd", 7, bits({rms_norm_bwd::kDxIn, rms_norm_bwd::kGradWeight}),
     bits({rms_norm_bwd::kPartials})},
    {"linear_dx", 2, 0, 0},
    {"linear_dw", 5, bits({linear_dw::kGradWeight, linear_dw::kGradBias}), bits({linear_dw::kPartials})},
    {"swiglu_bwd", 2, bits({swiglu_bwd::kGateUp}), 0},
    {"attention_bwd", 6, 0, bits({attention_bwd::kScratch})},
    {"rope_bwd", 2, bits({rope_bwd::kQkv}), 0},
    {"qk_norm_bwd", 8, bits({qk_norm_bwd::kDQkv, qk_norm_bwd::kGradQWeight, qk_norm_bwd::kGradKWeight}),
     bits({qk_norm_bwd::kPartials})},
    {"embed_bwd", 4, bits({embed_bwd::kGradTable}), 0},
    {"grad_squares", 3, bits({grad_squares::kScalars}), bits({grad_squares::kPartials})},
    {"adamw", 6, bits({adamw::kWeight, adamw::kM, adamw::kV, adamw::kMaster}), 0},
    {"sgd", 4, bits({sgd::kWeight, sgd::kMaster}), 0},
    {"sgd_momentum", 5, bits({sgd_momentum::kWeight, sgd_momentum::kM, sgd_momentum::kMaster}), 0},
    {"attention_step", 4, bits({attention_step::kCacheK, attention_step::kCacheV}),
     bits({attention_step::kScratch})},
    {"copy", 1, 0, 0},
    {"hold", 2, 0, 0},
    {"cross_entropy", 3, bits({cross_entropy::kLogits, cross_entropy::kScalars}), 0},
    {"head_bwd", 11,
     bits({head_bwd::kHf, head_bwd::kGradHead, head_bwd::kU, head_bwd::kGradB, head_bwd::kGradMagnitude,
           head_bwd::kDropped}),
     bits({head_bwd::kUnscaled})},
    {"add_grad", 2, bits({add_grad::kGrad}), 0},
    {"lora_b", 3, bits({lora_b::kY}), 0},
    {"lora_b_dx", 2, 0, 0},
    {"lora_b_dw", 3, bits({lora_b_dw::kGradWeight}), 0},
    {"linear_dx_add", 3, bits({linear_dx_add::kDx}), 0},
    {"lion", 5, bits({lion::kWeight, lion::kM, lion::kMaster}), 0},
    {"dropout", 2, 0, 0},
    {"dropout_add", 3, bits({dropout_add::kDx}), 0},
    {"adamw_8bit", 6, bits({adamw_8bit::kWeight, adamw_8bit::kM, adamw_8bit::kV, adamw_8bit::kMaster}), 0},
    {"adafactor", 9, bits({adafactor::kWeight, adafactor::kRows, adafactor::kColumns, adafactor::kMaster}),
     bits({adafactor::kSums})},
    {"muon", 7, bits({muon::kWeight, muon::kM, muon::kMaster}), bits({muon::kWork})},
    {"dequantize", 1, 0, 0},
    {"dora_scale", 4, 0, 0},
    {"dora", 5, bits({dora::kAdded}), 0},
    {"dora_bwd", 4, bits({dora_bwd::kUnscaled, dora_bwd::kGradMagnitude}), 0},
    {"all_reduce", 2, bits({all_reduce::kBuffer}), 0},
    {"reduce_scatter", 2, bits({reduce_scatter::kBuffer}), 0},
    {"all_gather", 3, bits({all_gather::kBuffer}), 0},
    {"wait", 1, bits({wait::kBuffer}), 0},
    {"sum_scalars", 2, bits({sum_scalars::kScalars}), 0},
    {"head_stats", 9, 0, bits({head_stats::kLogits, head_stats::kUnscaled})},
    {"take_rows", 2, 0, 0},
    {"dora_squares", 3, 0, 0},
    {"dora_factors", 2, 0, 0},
    {"muon_direction", 3, bits({muon_direction::kM}), 0},
    {"muon_orthogonalise", 2, bits({muon_orthogonalise::kX}), bits({muon_orthogonalise::kWork})},
    {"adafactor_sums", 6, bits({adafactor_sums::kOwn}), bits({adafactor_sums::kSums})},
    {"adafactor_change", 6, bits({adafactor_change::kOther}), bits({adafactor_change::kSums})},
    {"transpose", 1, 0, 0},
};
static_assert(std::size(kOps) == static_cast<std::size_t>(OpKind::kCount_));

}  // namespace

const OpInfo& op_info(OpKind k) {
  assert(k < OpKind::kCount_);
  return kOps[static_cast<std::size_t>(k)];
}

std::uint8_t least_inputs(OpKind k) {
  const std::uint8_t all = op_info(k).inputs;
  switch (k) {
    case OpKind::kAttention:
    case OpKind::kAttentionBwd:
    case OpKind::kDropout:
    case OpKind::kDropoutAdd:
    case OpKind::kAllGather:
    case OpKind::kMuon:
      return all - 1;
    case OpKind::kAdafactor:
      return adafactor::kOfRanks.slot;
    case OpKind::kHeadLoss:
      return head_loss::kStats.slot;
    case OpKind::kHeadEval:
      return head_eval::kStats.slot;
    case OpKind::kHeadLogits:
      return head_logits::kU.slot;
    case OpKind::kHeadBwd:
      return head_bwd::kU.slot;
    case OpKind::kHeadStats:
      return head_stats::kU.slot;
    default:
      return all;
  }
}

/// Names are for people and for tests: the marks ' and '' tell the copies of a recomputed buffer apart. Roles
/// of parameters begin with "w.", "grad.", "m." or "v.".
std::string Buffer::name() const {
  std::string n = copy == kOfEval ? "eval." : copy == kOfGenerate ? "generate." : "";
  if (layer >= 0) n += "layers." + std::to_string(layer) + ".";
  n += role;
  if (copy == kRecomputedCopy) n += "'";
  if (copy == kOnHost) return n + " (host)";
  if (copy >= kFactoredSums) return n + (copy == kFactoredSums ? " (factored sums)" : " (sum of changes)");
  if (copy >= kDirection) return n + (copy == kDirection ? " (direction)" : " (direction on the host)");
  if (copy >= kWhole) return n + " (whole " + std::to_string(copy - kWhole + 1) + ")";
  if (copy == kTokenOnHost) return "generate." + n + " (host)";
  if (copy >= kStreamed) return n + " (streamed " + std::to_string(copy - kStreamed + 1) + ")";
  for (std::uint32_t i = kRecomputedAgain; i <= copy; ++i) n += i == kRecomputedAgain ? "''" : "'";
  return n;
}

/// The operation and the parameter that it uses, as profiles and traces show it: "layers.3 linear qkv".
std::string op_label(const Program& p, const Op& op) {
  std::string label = op.layer >= 0 ? "layers." + std::to_string(op.layer) + " " : "";
  label += op_info(op.kind).name;
  for (BufferId b : op.inputs()) {
    if (b == kNoBuffer) continue;
    const std::string_view role = p[b].role;
    const std::size_t prefix = role.starts_with("w.") ? 2 : role.starts_with("grad.") ? 5 : 0;
    if (prefix == 0) continue;
    const std::string_view of = role.substr(prefix);
    if (of != op_info(op.kind).name && op.kind != OpKind::kEmbedBwd) label.append(" ").append(of);
    break;
  }
  if (op.flags & kRecomputed) label += " again";
  return label;
}

/// By the role name of the buffer: a look-up per operation must not search the parameters.
AdapterBlocks lora_blocks(const Program& p, BufferId b) {
  // Stacked B of the head, if it has the adapter of the embedding.
  const role::ParamRoles& table = role::kLoraA[static_cast<std::size_t>(AdapterGroup::kEmbed)];
  if (p[b].role == table.weight || p[b].role == table.grad)
    return adapter_blocks(p.model, p.run, AdapterGroup::kHead, -1);
  for (std::uint32_t g = 0; g < kAllAdapterGroups; ++g)
    if (p[b].role == role::kLoraB[g].weight || p[b].role == role::kLoraB[g].grad ||
        p[b].role == role::kMagnitude[g].weight || p[b].role == role::kMagnitude[g].grad)
      return adapter_blocks(p.model, p.run, static_cast<AdapterGroup>(g), p[b].layer);
  assert(false && "the buffer is B or the magnitudes of adapters, or their gradient");
  return {};
}

std::uint32_t dropout_product(const Program& p, const Op& op) {
  const bool forward = op.kind == OpKind::kDropout;
  const std::string_view of = p[forward ? op[operand::dropout::kY] : op[operand::dropout_add::kDy]].role;
  for (std::uint32_t g = 0; g < kAdapterGroups; ++g)
    if (of == (forward ? role::kDropped[g] : role::kDDropped[g]))
      return adapted_product_number(p.model, static_cast<AdapterGroup>(g), op.layer);
  // With DoRA the gradient is in the buffer of the dropped input.
  if (of == role::kHeadDropped || of == role::kDHeadDropped)
    return adapted_product_number(p.model, AdapterGroup::kHead, -1);
  assert(false && "the buffer is a dropped input of adapters, or its gradient");
  return 0;
}

QuantizedParam quantized_param(const Program& p, const Param& q) {
  QuantizedParam out;
  for (const Slice& s : q.slices) {
    const TensorInfo& t = p.tensor_infos[s.tensor];
    if (!nf4::is_quantized(p.run, t)) return {};
    assert(out.count < out.matrix.size());
    QuantizedMatrix& m = out.matrix[out.count++];
    m = {nf4::layout(t.elements(), p.run.memory.double_quantized), out.bytes, s.first_element};
    out.bytes = checked_add(out.bytes, m.layout.bytes);
    out.rows += t.dim[0], out.cols = t.dim[1];
  }
  return out;
}

QuantizedParam quantized_param(const Program& p, BufferId b) {
  for (const Param& q : p.params)
    if (p[q.weight].layer == p[b].layer && std::string_view(p[q.weight].role) == p[b].role)
      return quantized_param(p, q);
  return {};
}

Shard shard_of(const Program& p, BufferId b) {
  const Parallelism& ranks = p.run.parallel;
  const std::uint64_t elements = p[b].rows * p[b].cols;
  if (p[b].whole) return {0, elements};
  return ranks.data == 1 ? Shard{0, elements}
                         : trainhost::shard_of(elements, ranks.data, ranks.data_rank - 1);
}

Shard updated_elements(const Program& p, BufferId b) {
  return p.run.parallel.zero == 0 ? Shard{0, p[b].rows * p[b].cols} : shard_of(p, b);
}

std::uint64_t whole_elements(const Program& p, BufferId b) {
  return p[b].whole ? p[b].whole : p[b].rows * p[b].cols;
}

Shard present_elements(const Program& p, BufferId b) {
  const Parallelism& ranks = p.run.parallel;
  return p[b].whole ? trainhost::shard_of(p[b].whole, ranks.data, ranks.data_rank - 1)
                    : Shard{0, p[b].rows * p[b].cols};
}

/// On a device program, operations on host memory are executed by the host's own kernels. Copies and holds
/// belong to neither.
bool runs_on_host(const Program& p, const Op& op) {
  return p.traits.tier == Tier::kDevice && op.kind != OpKind::kCopy && op.kind != OpKind::kHold &&
         p[op.in[0]].tier != Tier::kDevice;
}

/// Operations of a section are ordered forward, then backward; without a backward pass, the end of the
/// section.
std::uint32_t backward_begin(const Program& p) {
  const Section micro = p.section(SectionKind::kMicro);
  std::uint32_t i = micro.begin;
  while (i < micro.end && p.ops[i].phase == kForward) ++i;
  return i;
}

/// An empty range if the program has no such section: an inference program has no micro and no update.
Section Program::section(SectionKind k) const {
  for (const Section& s : sections)
    if (s.kind == k) return s;
  return {k, 0, 0};
}

/// Linear search: called a few times per program, when it is built.
BufferId Program::find(std::string_view role, std::int32_t layer, std::uint32_t copy) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].layer == layer && buffers[i].copy == copy && buffers[i].role == role)
      return static_cast<BufferId>(i);
  return kNoBuffer;
}

}  // namespace trainhost::step
