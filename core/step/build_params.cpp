// Persistent buffers: parameters with gradients and optimizer state, tables, scalars, inputs. Decides which
// parameter buffer holds each tensor of a checkpoint: q, k and v share one (rows q | k | v), as do gate and
// up and the matching biases, so that each group is one matrix product. Checkpoints still contain the tensors
// one by one; Param::slices maps them to rows. A, B and magnitudes of adapters are stacked likewise, by
// product.
#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/model/trainable.hpp"
#include "core/step/builder.hpp"
#include "core/step/scratch_sizes.hpp"
#include "core/step/state_layout.hpp"

namespace trainhost::step {
namespace {

/// The parameter that contains tensors of a role: its role names and its entry in Weights.
struct ParamTarget {
  const role::ParamRoles* roles;
  Weight* weight;
};

ParamTarget target_of(Weights& w, const TensorInfo& t) {
  static LayerWeights none;  // target of no tensor: only layer tensors select a member of it
  LayerWeights& l = t.layer < 0 ? none : w.layers[static_cast<std::size_t>(t.layer)];
  if (t.part != AdapterPart::kNone) {
    const AdapterGroup g = adapter_group(t.role);
    const auto i = static_cast<std::size_t>(g);
    Adapter& adapter = g == AdapterGroup::kEmbed  ? w.embed_adapter
                       : g == AdapterGroup::kHead ? w.head_adapter
                                                  : l.adapter(g);
    if (t.part == AdapterPart::kMagnitude) return {&role::kMagnitude[i], &adapter.magnitude};
    return t.part == AdapterPart::kA ? ParamTarget{&role::kLoraA[i], &adapter.a}
                                     : ParamTarget{&role::kLoraB[i], &adapter.b};
  }
  switch (t.role) {
    case TensorRole::kEmbed:
      return {&role::kEmbed, &w.embed};
    case TensorRole::kNorm1:
      return {&role::kNorm1, &l.norm1};
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
      return {&role::kWQkv, &l.qkv};
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
      return {&role::kQkvBias, &l.qkv_bias};
    case TensorRole::kQNorm:
      return {&role::kQNorm, &l.q_norm};
    case TensorRole::kKNorm:
      return {&role::kKNorm, &l.k_norm};
    case TensorRole::kO:
      return {&role::kO, &l.o};
    case TensorRole::kOBias:
      return {&role::kOBias, &l.o_bias};
    case TensorRole::kNorm2:
      return {&role::kNorm2, &l.norm2};
    case TensorRole::kGate:
    case TensorRole::kUp:
      return {&role::kWGateUp, &l.gate_up};
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
      return {&role::kGateUpBias, &l.gate_up_bias};
    case TensorRole::kDown:
      return {&role::kDown, &l.down};
    case TensorRole::kDownBias:
      return {&role::kDownBias, &l.down_bias};
    case TensorRole::kFinalNorm:
      return {&role::kFinalNorm, &w.final_norm};
    case TensorRole::kHead:
      return {&role::kHead, &w.head};
  }
  assert(false && "every tensor role belongs to a parameter");
  return {};
}

/// A parameter while its tensors are collected.
struct ParamDraft {
  ParamTarget target;
  std::int32_t layer;
  std::uint64_t rows = 0, cols = 1;
  bool decay;
  bool adapter;
  bool trained;  // by the rules of the run; tensors of one parameter are equal (find_split_product())
  std::vector<Slice> slices;
};

/// Consecutive tensors with the same target are stacked by rows; all_tensors() lists them in that order.
std::vector<ParamDraft> collect_params(Builder& b) {
  std::vector<ParamDraft> drafts;
  drafts.reserve(b.p.tensor_infos.size());
  for (std::uint32_t i = 0; i < b.p.tensor_infos.size(); ++i) {
    const TensorInfo& t = b.p.tensor_infos[i];
    const ParamTarget target = target_of(b.weights, t);
    if (drafts.empty() || drafts.back().target.weight != target.weight)
      drafts.push_back({target,
                        t.layer,
                        0,
                        t.rank == 1 ? 1 : t.dim[1],
                        t.rank > 1,
                        t.part != AdapterPart::kNone,
                        trains_weight(b.p.run, t.name),
                        {}});
    ParamDraft& d = drafts.back();
    assert(d.adapter || d.trained == trains_weight(b.p.run, t.name));
    assert((t.rank == 1 ? 1 : t.dim[1]) == d.cols && "tensors of one parameter have equal columns");
    d.slices.push_back({i, checked_mul(d.rows, d.cols)});
    d.rows = checked_add(d.rows, t.dim[0]);
  }
  return drafts;
}

/// Where tensors are quantized: the scales of the largest one, and on a device, whose memory the host does
/// not address, all of it.
void add_nf4_staging(Builder& b) {
  std::uint64_t blocks = 0, bytes = 0;
  for (const Param& q : b.p.params) {
    const QuantizedParam quantized = quantized_param(b.p, q);
    for (const QuantizedMatrix& m : quantized.all())
      blocks = std::max(blocks, m.layout.blocks), bytes = std::max(bytes, m.layout.bytes);
  }
  if (blocks == 0) return;
  const BufferId scales = b.add_persistent(role::kNf4Scales, -1, Component::kWorkspace, blocks, 1);
  if (!b.on_device()) return;
  b.p.buffers[scales].tier = Tier::kHost;
  b.add_pinned(role::kNf4Staging, bytes);
}

}  // namespace

void build_params(Builder& b) {
  b.p.tensor_infos = all_tensors(b.p.model, b.p.run);
  b.weights.layers.resize(b.p.model.layers);
  std::vector<ParamDraft> drafts = collect_params(b);
  std::vector<Param>& params = b.p.params;
  params.resize(drafts.size());
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    params[i].decay = drafts[i].decay;
    params[i].slices = drafts[i].slices;
  }
  // Added component by component, not parameter by parameter: placement then makes each component contiguous.
  const auto add_all = [&](const char* role::ParamRoles::*which, Component c, BufferId Param::*slot,
                           auto&& wanted, DType t = DType::kF32) {
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      const ParamDraft& d = drafts[i];
      if (!wanted(d)) continue;
      // A quantized weight is frozen, so it has neither gradient nor state.
      const QuantizedParam q = quantized_param(b.p, params[i]);
      params[i].*slot = q.count ? b.add_persistent(d.target.roles->*which, d.layer, c, q.bytes, 1, DType::kU8)
                                : b.add_persistent(d.target.roles->*which, d.layer, c, d.rows, d.cols, t);
    }
  };
  const auto of_model = [](const ParamDraft& d) { return !d.adapter; };
  const auto of_adapters = [](const ParamDraft& d) { return d.adapter; };
  // Frozen weights have no gradient, no optimizer state and no master copy: most of them beside adapters.
  const auto trained = [&](const ParamDraft& d) { return d.adapter || (b.trains() && d.trained); };
  // With ZeRO, state is that of the elements which this rank updates.
  const bool sharded = b.has_data_ranks() && b.p.run.parallel.zero > 0;
  const auto shard = [&](const ParamDraft& d) {
    return trainhost::shard_of(d.rows * d.cols, b.p.run.parallel.data, b.p.run.parallel.data_rank - 1);
  };
  const auto optimizer = [&](const ParamDraft& d) {
    return optimizer_of(b.p.run.optimizer, b.p.tensor_infos[d.slices.front().tensor]);
  };
  // 8-bit state of the whole parameter if one of its tensors is large enough.
  const auto moment_bytes = [&](const ParamDraft& d) {
    return b.p.run.optimizer == Optimizer::kAdamW8bit ? bytes_of_moments_8bit(b.p, d.slices) : 0;
  };
  // A moment or the master copy of a parameter: with ZeRO the shard of this rank, which may have no elements
  // of a small parameter and then has no buffer.
  const auto add_state = [&](std::size_t i, const char* role::ParamRoles::*which, BufferId Param::*slot,
                             Component c, std::uint64_t rows, std::uint64_t cols, DType t) {
    const ParamDraft& d = drafts[i];
    if (sharded) rows = shard(d).count, cols = 1;
    if (rows == 0) return;
    const BufferId state = params[i].*slot =
                               b.add_persistent(d.target.roles->*which, d.layer, c, rows, cols, t);
    if (sharded) b.p.buffers[state].whole = d.rows * d.cols;
  };
  // Moment 1 or 2 of every trained parameter whose optimizer has it.
  const auto add_moments = [&](int moment) {
    const auto which = moment == 1 ? &role::ParamRoles::m : &role::ParamRoles::v;
    for (std::size_t i = 0; i < drafts.size(); ++i) {
      const ParamDraft& d = drafts[i];
      const Optimizer o = optimizer(d);
      if (!trained(d) || moment > (o == Optimizer::kMuon ? 1 : moment_count(o))) continue;
      std::uint64_t rows = d.rows, cols = d.cols;
      DType type = DType::kF32;
      if (const std::uint64_t bytes = moment_bytes(d)) rows = bytes, cols = 1, type = DType::kU8;
      if (o == Optimizer::kAdafactor) {
        if (moment == 2 && !d.decay) continue;  // a vector
        rows = moment == 1 ? d.rows : d.slices.size(), cols = moment == 1 ? 1 : d.cols;
      }
      add_state(i, which, moment == 1 ? &Param::m : &Param::v, Component::kOptimizerState, rows, cols, type);
    }
  };
  add_all(&role::ParamRoles::weight, Component::kWeights, &Param::weight, of_model, b.storage_type());
  add_all(&role::ParamRoles::weight, Component::kAdapters, &Param::weight, of_adapters, b.storage_type());
  if (b.trains()) {
    // A master copy only where weights are stored in fewer than 32 bits.
    if (b.storage_type() != DType::kF32)
      for (std::size_t i = 0; i < drafts.size(); ++i)
        if (trained(drafts[i]))
          add_state(i, &role::ParamRoles::master, &Param::master, Component::kMasterWeights, drafts[i].rows,
                    drafts[i].cols, DType::kF32);
    add_all(&role::ParamRoles::grad, Component::kGradients, &Param::grad, trained);
    add_moments(1), add_moments(2);
  }
  assert(params.size() == drafts.size());
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const QuantizedParam q = quantized_param(b.p, params[i]);
    *drafts[i].target.weight = {params[i].weight, params[i].grad, q.rows, q.cols};
  }
  // A tied head is the embedding itself: one weight, one gradient with two contributions.
  if (b.p.model.tied) b.weights.head = b.weights.embed;
  if (ties_adapter(b.p.run)) b.weights.head_adapter.b = b.weights.embed_adapter.a;

  add_nf4_staging(b);
  b.rope_table =
      b.add_persistent(role::kRopeTable, -1, Component::kWorkspace, b.p.run.seq_len, b.p.model.head_dim);
  b.scalars = b.add_persistent(role::kScalars, -1, Component::kWorkspace, 1, kScalarCount, DType::kF64);
  if (b.has_ranks()) {
    std::uint64_t largest = 0;
    for (const Param& q : params)  // with ZeRO 3 frozen weights are gathered too
      if (q.grad != kNoBuffer || b.p.run.parallel.zero == 3)
        largest = std::max(largest, b.p[q.weight].rows * b.p[q.weight].cols);
    if (b.has_tensor_ranks()) largest = std::max(largest, checked_mul(b.tokens(), b.p.model.hidden));
    b.collective_scratch = b.add_persistent(role::kCollectiveScratch, -1, Component::kCommunication,
                                            collective_scratch_bytes(largest), 1, DType::kU8);
  }
  if (b.p.traits.workspace_bytes)
    b.add_persistent(role::kVendorWorkspace, -1, Component::kWorkspace, b.p.traits.workspace_bytes, 1,
                     DType::kU8);
  // Fed by the host before each micro-batch: token ids, targets, and on a device the rows sorted by token id,
  // with which embed_bwd adds up equal ids without atomics.
  b.ids = b.add_host_input(role::kIds, b.tokens());
  b.targets = b.add_host_input(role::kTargets, b.tokens());
  if (b.on_device()) b.order = b.add_host_input(role::kOrder, b.tokens());
  if (b.p.run.document_mask) b.starts = b.add_host_input(role::kStarts, b.tokens());
  if (b.on_device() && b.trains() && b.p.run.memory.lora_dropout > 0)
    b.micro_batch = b.add_host_input(role::kMicroBatch, 2);
  b.token = b.add_host_input(role::kIds, 1, kOfGenerate);
  // Pinned buffers for token ids and for pieces of tensors on their way between files and the device.
  if (b.on_device()) {
    b.add_pinned(role::kFeed, feed_bytes(b.p.run));
    const std::uint64_t parts = b.has_tensor_ranks() ? b.p.run.parallel.tensor : 1;
    b.add_pinned(role::kStaging, staging_bytes(b.p.model.vocab * parts));
  }
}

}  // namespace trainhost::step
