// See recompute.hpp. The transform walks the backward pass once; need() makes a dropped buffer again by
// cloning all operations that wrote it, in order, after needing their own inputs in the same way. It ends at
// what was kept.
#include "core/step/recompute.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

bool one_of(const char* r, std::initializer_list<const char*> roles) {
  return std::find(roles.begin(), roles.end(), r) != roles.end();  // by address: see buffer_names.hpp
}

bool made_without_products(const Buffer& b) {
  return one_of(b.role, {role::kH1, role::kRstd1, role::kH2, role::kRstd2, role::kAct});
}

bool made_inside_a_layer(const Buffer& b) {
  return made_without_products(b) || one_of(b.role, {role::kQkv, role::kQkPre, role::kQkRstd, role::kAttnOut,
                                                     role::kLse, role::kXMid, role::kGateUp});
}

constexpr std::size_t kMaxWriters = 4;  // one that makes a buffer, the rest change it in place

class Transform {
 public:
  Transform(Program& p, const RecomputePolicy& policy) : p_(p), policy_(policy) {}

  void run() {
    find_dropped();
    Section& micro = p_.sections.front();
    std::vector<Op> old = std::move(p_.ops);
    p_.ops = {};
    p_.ops.reserve(old.size() + old.size() / 4);
    forward_ = &old;
    for (std::uint32_t i = micro.begin; i < micro.end; ++i) {
      if (old[i].phase == kForward)
        p_.ops.push_back(old[i]);
      else
        rewire(old[i]);
    }
    const auto added = static_cast<std::uint32_t>(p_.ops.size()) - micro.end;
    p_.ops.insert(p_.ops.end(), old.begin() + micro.end, old.end());
    micro.end += added;
    for (std::size_t s = 1; s < p_.sections.size(); ++s)
      p_.sections[s].begin += added, p_.sections[s].end += added;
  }

 private:
  struct Dropped {
    bool dropped = false, cheap = false;
    std::uint8_t writers = 0, times = 0;              // times: made again so far
    std::array<std::uint32_t, kMaxWriters> writer{};  // forward operations, in order
    BufferId now = kNoBuffer;                         // the clone that holds its value, if one does
  };

  void find_dropped() {
    state_.resize(p_.buffers.size());
    const Section micro = p_.sections.front();
    for (std::uint32_t i = micro.begin; i < micro.end && p_.ops[i].phase == kForward; ++i)
      for (BufferId b : p_.ops[i].outputs()) {
        Dropped& d = state_[b];
        d.dropped = !p_[b].persistent && policy_.dropped(p_[b]);
        if (!d.dropped) continue;
        d.cheap = policy_.cheap && policy_.cheap(p_[b]);
        assert(d.writers < kMaxWriters);
        d.writer[d.writers++] = i;
      }
    keep_what_cannot_be_made_again(micro);
  }

  /// A buffer whose maker changes another one in place, which was kept: running the maker again would change
  /// it twice.
  void keep_what_cannot_be_made_again(Section micro) {
    for (std::uint32_t i = micro.begin; i < micro.end && p_.ops[i].phase == kForward; ++i) {
      const Op& op = p_.ops[i];
      for (std::size_t in = 0; in < op.ins; ++in)
        if ((op_info(op.kind).inout_mask >> in & 1) && !is_dropped(op.in[in]))
          for (BufferId b : op.outputs()) state_[b].dropped = false;
    }
  }

  bool is_dropped(BufferId b) const { return b != kNoBuffer && b < state_.size() && state_[b].dropped; }

  /// A backward operation, with the clones of dropped operands in their place.
  void rewire(Op op) {
    for (BufferId& b : op.in)
      if (is_dropped(b)) need(b), b = state_[b].now;
    for (BufferId& b : op.out)
      if (is_dropped(b)) b = state_[b].now;  // changed in place: it was among the inputs
    p_.ops.push_back(op);
  }

  void need(BufferId b) {
    if (state_[b].now != kNoBuffer) return;
    if (const BufferId host = changed_by_maker(b); host != kNoBuffer) return need(host);  // makes b as well
    for (std::size_t i = 0; i < state_[b].writers; ++i) clone((*forward_)[state_[b].writer[i]]);
  }

  /// The buffer that the operation which makes b changes in place, where there is one: q/k norm makes its
  /// statistics while it changes qkv.
  BufferId changed_by_maker(BufferId b) const {
    const Op& maker = (*forward_)[state_[b].writer[0]];
    for (std::size_t i = 0; i < maker.ins; ++i)
      if ((op_info(maker.kind).inout_mask >> i & 1) && maker.in[i] != b) return maker.in[i];
    return kNoBuffer;
  }

  /// Runs a forward operation once more. What it needs comes first; what was made again only for it and is
  /// cheap is forgotten afterwards, so that it is not held until its own gradient.
  void clone(Op op) {
    const OpInfo& info = op_info(op.kind);
    std::array<BufferId, kMaxOperands> passing{};
    std::size_t n = 0;
    for (std::size_t i = 0; i < op.ins; ++i) {
      BufferId& b = op.in[i];
      if ((info.scratch_mask >> i & 1) && b != kNoBuffer) b = copy_of(b, kRemade);
      if (!is_dropped(b)) continue;
      if (!(info.inout_mask >> i & 1) && state_[b].now == kNoBuffer) {
        need(b);
        if (state_[b].cheap) passing[n++] = b;
      }
      b = state_[b].now;
    }
    for (BufferId& b : op.out)
      if (b != kNoBuffer) b = fresh(b);
    op.phase = kBackward;
    op.flags |= kRecomputed;
    p_.ops.push_back(op);
    for (std::size_t i = 0; i < n; ++i) forget(passing[i]);
  }

  /// The clone of an output: the one that exists when it is changed in place, else a new buffer.
  BufferId fresh(BufferId b) {
    Dropped& d = state_[b];
    if (d.now == kNoBuffer) {
      d.now = copy_of(b, d.times == 0 ? std::uint32_t{kRemade} : kRemadeAgain + d.times - 1u);
      ++d.times;
    }
    return d.now;
  }

  void forget(BufferId b) {
    for (std::size_t i = 0; i < state_[b].writers; ++i)
      for (BufferId o : (*forward_)[state_[b].writer[i]].outputs()) state_[o].now = kNoBuffer;
  }

  BufferId copy_of(BufferId b, std::uint32_t copy) {
    Buffer c = p_[b];
    c.copy = copy;
    p_.buffers.push_back(c);
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  Program& p_;
  const RecomputePolicy& policy_;
  std::vector<Dropped> state_;  // by BufferId of the program as it was
  const std::vector<Op>* forward_ = nullptr;
};

}  // namespace

RecomputePolicy recompute_policy(const RunSpec& run, const TrainerTraits& traits) {
  constexpr std::uint32_t kAll = UINT32_MAX;
  RecomputeLayers n;
  switch (run.recompute) {
    case Recompute::kNone:
      n = traits.recompute_layers;
      break;
    case Recompute::kAuto:
      return {};
    case Recompute::kSelective:
      n.selective = kAll;
      break;
    case Recompute::kFull:
      n.full = kAll;
      break;
    case Recompute::kLayers:
      n = run.recompute_layers;
      break;
  }
  if (n.total() == 0) return {};
  const std::uint64_t full = n.full, mlp = full + n.mlp, selective = mlp + n.selective;
  auto dropped = [=](const Buffer& b) {
    if (b.layer < 0) return false;
    const auto layer = static_cast<std::uint64_t>(b.layer);
    return layer < full        ? made_inside_a_layer(b)
           : layer < mlp       ? made_without_products(b) || one_of(b.role, {role::kGateUp})
           : layer < selective ? made_without_products(b)
                               : false;
  };
  return {dropped, made_without_products};
}

double recompute_cost(const Program& p) {
  double cost = 0;
  for (const Op& op : p.ops) {
    if (!(op.flags & kRecomputed)) continue;
    const double rows = static_cast<double>(op.rows);
    if (op.kind == OpKind::kLinear) {
      const Buffer& w = p[op[operand::linear::kWeight]];
      cost += 2.0 * rows * static_cast<double>(w.rows) * static_cast<double>(w.cols);
    } else if (op.kind == OpKind::kAttention)
      cost += 2.0 * rows * static_cast<double>(p.run.seq_len) * static_cast<double>(p.model.q_width());
    else
      for (BufferId b : op.outputs())
        cost += b == kNoBuffer ? 0 : 32.0 * rows * static_cast<double>(p[b].cols);
  }
  return cost;
}

void apply_recompute(Program& p, const RecomputePolicy& policy) {
  const bool trains = !p.sections.empty() && p.sections.front().kind == SectionKind::kMicro;
  if (policy.dropped && trains) Transform(p, policy).run();
}

}  // namespace trainhost::step
