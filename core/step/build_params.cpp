// Parameters and what stays for the whole run. q, k, v share one buffer (rows q | k | v), so do gate and up,
// and the biases likewise: one matrix product each. Which buffer a tensor of the checkpoint lies in is
// decided here alone.
#include <cassert>

#include "core/base/checked.hpp"
#include "core/step/builder.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::step {
namespace {

/// The parameter buffer that tensors of this role lie in, and its place among the model's weights.
struct Home {
  const role::ParamRoles* roles;
  Weight* weight;
};

Home home(Weights& w, const TensorInfo& t) {
  static LayerWeights none;
  LayerWeights& l = t.layer < 0 ? none : w.layers[static_cast<std::size_t>(t.layer)];
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
  assert(false && "a tensor role without a home");
  return {};
}

/// A parameter while its tensors are being gathered.
struct Draft {
  Home home;
  std::int32_t layer;
  std::uint64_t rows = 0, cols = 1;
  bool decay;
  std::vector<Slice> slices;
};

/// Neighbouring tensors with one home are stacked by rows: they follow each other in file order.
std::vector<Draft> gather(Builder& b) {
  std::vector<Draft> drafts;
  drafts.reserve(b.p.tensor_infos.size());
  for (std::uint32_t i = 0; i < b.p.tensor_infos.size(); ++i) {
    const TensorInfo& t = b.p.tensor_infos[i];
    const Home h = home(b.weights, t);
    if (drafts.empty() || drafts.back().home.weight != h.weight)
      drafts.push_back({h, t.layer, 0, t.rank == 1 ? 1 : t.dim[1], t.rank > 1, {}});
    Draft& d = drafts.back();
    d.slices.push_back({i, checked_mul(d.rows, d.cols)});
    d.rows = checked_add(d.rows, t.dim[0]);
  }
  return drafts;
}

}  // namespace

void build_params(Builder& b) {
  b.p.tensor_infos = tensors(b.p.model);
  b.weights.layers.resize(b.p.model.layers);
  std::vector<Draft> drafts = gather(b);
  std::vector<Param>& params = b.p.params;
  params.resize(drafts.size());
  const auto add_all = [&](const char* role::ParamRoles::*which, Component c, BufferId Param::*slot,
                           DType t = DType::kF32) {
    for (std::size_t i = 0; i < drafts.size(); ++i)
      params[i].*slot = b.add_persistent(drafts[i].home.roles->*which, drafts[i].layer, c, drafts[i].rows,
                                         drafts[i].cols, t);
  };
  add_all(&role::ParamRoles::weight, Component::kWeights, &Param::weight, b.real());
  if (b.trains()) {
    if (b.real() != DType::kF32)
      add_all(&role::ParamRoles::master, Component::kMasterWeights, &Param::master);
    add_all(&role::ParamRoles::grad, Component::kGradients, &Param::grad);
    if (b.p.run.optimizer != Optimizer::kSgd)
      add_all(&role::ParamRoles::m, Component::kOptimizerState, &Param::m);
    if (b.p.run.optimizer == Optimizer::kAdamW)
      add_all(&role::ParamRoles::v, Component::kOptimizerState, &Param::v);
  }
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    params[i].decay = drafts[i].decay;
    params[i].slices = std::move(drafts[i].slices);
    *drafts[i].home.weight = {params[i].weight, params[i].grad};
  }
  if (b.p.model.tied) b.weights.head = b.weights.embed;

  b.rope_table =
      b.add_persistent(role::kRopeTable, -1, Component::kWorkspace, b.p.run.seq_len, b.p.model.head_dim);
  b.scalars = b.add_persistent(role::kScalars, -1, Component::kWorkspace, 1, kScalarCount, DType::kF64);
  if (b.p.traits.workspace_bytes)
    b.add_persistent(role::kVendorWorkspace, -1, Component::kWorkspace, b.p.traits.workspace_bytes, 1,
                     DType::kU8);
  b.ids = b.add_handed_in(role::kIds, b.tokens());
  b.targets = b.add_handed_in(role::kTargets, b.tokens());
  if (b.on_device()) b.order = b.add_handed_in(role::kOrder, b.tokens());
  b.token = b.add_handed_in(role::kIds, 1, kOfGenerate);
  if (b.on_device()) {
    b.add_pinned(role::kFeed, feed_bytes(b.p.run));
    b.add_pinned(role::kStaging, staging_bytes(b.p.model));
  }
}

}  // namespace trainhost::step
