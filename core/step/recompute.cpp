// See recompute.hpp. The transform walks the backward pass once. recompute() restores a dropped buffer: it
// clones all operations that wrote it, in order, after restoring their inputs in the same way, down to
// buffers that were kept. The results have the same bits as without recomputation, because the clones are the
// same operations on the same values.
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

/// Norm outputs and the SwiGLU product: elementwise, hence cheap compared with what they save.
bool recomputed_without_products(const Buffer& b) {
  return one_of(b.role, {role::kH1, role::kRstd1, role::kH2, role::kRstd2, role::kAct});
}

/// A weight that was dequantized for one product: dequantized again where the product is recomputed.
bool is_dequantized(const Buffer& b) {
  return one_of(b.role, {role::kDeqQkv, role::kDeqO, role::kDeqGateUp, role::kDeqDown});
}

bool computed_inside_a_layer(const Buffer& b) {
  return recomputed_without_products(b) ||
         one_of(b.role, {role::kQkv, role::kQkPre, role::kQkRstd, role::kAttnOut, role::kLse, role::kXMid,
                         role::kGateUp, role::kQkvLora, role::kOLora, role::kGateUpLora, role::kDownLora,
                         role::kQkvUnscaled, role::kOUnscaled, role::kGateUpUnscaled, role::kDownUnscaled});
}

/// Inputs of adapters after dropout: a mask costs no memory if it is computed twice.
bool is_dropped_input(const Buffer& b) {
  return std::find(std::begin(role::kDropped), std::end(role::kDropped), b.role) != std::end(role::kDropped);
}

/// Rows of other TP ranks, and sums of which each takes its rows: gathered or added up again.
bool is_of_all_ranks(const Buffer& b) {
  return one_of(b.role, {role::kH1All, role::kH2All, role::kOSum, role::kDownSum});
}

constexpr std::size_t kMaxWriters = 5;  // the first writes the buffer, the others change it in place

class Transform {
 public:
  Transform(Program& p, const RecomputePolicy& policy) : p_(p), policy_(policy) {}

  void run() {
    assert(!p_.sections.empty() && p_.sections.front().kind == SectionKind::kMicro);
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
        append_backward(old[i]);
    }
    // Operations were added in section micro only; the others move by their number.
    const auto added = static_cast<std::uint32_t>(p_.ops.size()) - micro.end;
    p_.ops.insert(p_.ops.end(), old.begin() + micro.end, old.end());
    micro.end += added;
    for (std::size_t s = 1; s < p_.sections.size(); ++s)
      p_.sections[s].begin += added, p_.sections[s].end += added;
  }

 private:
  struct Dropped {
    bool dropped = false, cheap = false;
    std::uint8_t writers = 0, times_recomputed = 0;
    std::array<std::uint32_t, kMaxWriters> writer{};  // forward operations, in order
    BufferId clone = kNoBuffer;  // the clone that holds the value at this point of the program, if any
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
    keep_outputs_that_cannot_be_recomputed(micro);
  }

  /// Keeps the outputs of an operation that changes a kept buffer in place: running it again would change
  /// that buffer twice.
  void keep_outputs_that_cannot_be_recomputed(Section micro) {
    for (std::uint32_t i = micro.begin; i < micro.end && p_.ops[i].phase == kForward; ++i) {
      const Op& op = p_.ops[i];
      for (std::size_t in = 0; in < op.ins; ++in)
        if ((op_info(op.kind).inout_mask >> in & 1) && !is_dropped(op.in[in]))
          for (BufferId b : op.outputs()) state_[b].dropped = false;
    }
  }

  bool is_dropped(BufferId b) const { return b != kNoBuffer && b < state_.size() && state_[b].dropped; }

  /// Appends a backward operation, with dropped operands replaced by their clones.
  void append_backward(Op op) {
    for (BufferId& b : op.in)
      if (is_dropped(b)) recompute(b), b = state_[b].clone;
    for (BufferId& b : op.out)
      if (is_dropped(b)) b = state_[b].clone;  // changed in place: it was among the inputs
    p_.ops.push_back(op);
  }

  /// Makes sure that a clone holds the value of the dropped buffer b.
  void recompute(BufferId b) {
    assert(is_dropped(b) && state_[b].writers > 0);
    if (state_[b].clone != kNoBuffer) return;
    if (const BufferId other = changed_by_first_writer(b); other != kNoBuffer)
      return recompute(other);  // writes b as well
    for (std::size_t i = 0; i < state_[b].writers; ++i) clone_op((*forward_)[state_[b].writer[i]]);
  }

  /// The buffer that the first writer of b changes in place, or kNoBuffer: q/k norm writes its statistics
  /// while it changes qkv.
  BufferId changed_by_first_writer(BufferId b) const {
    const Op& writer = (*forward_)[state_[b].writer[0]];
    for (std::size_t i = 0; i < writer.ins; ++i)
      if ((op_info(writer.kind).inout_mask >> i & 1) && writer.in[i] != b) return writer.in[i];
    return kNoBuffer;
  }

  /// Appends a clone of a forward operation, after recomputing its dropped inputs. Cheap inputs that were
  /// recomputed only for it are discarded afterwards, so that they are not live until their own gradient.
  void clone_op(Op op) {
    const OpInfo& info = op_info(op.kind);
    std::array<BufferId, kMaxOperands> temporary{};
    std::size_t n = 0;
    for (std::size_t i = 0; i < op.ins; ++i) {
      BufferId& b = op.in[i];
      if ((info.scratch_mask >> i & 1) && b != kNoBuffer) b = copy_of(b, kRecomputedCopy);
      if (!is_dropped(b)) continue;
      // The first writer of rows that it gathers.
      if ((info.inout_mask >> i & 1) && state_[b].clone == kNoBuffer) {
        b = clone_of_output(b);
        continue;
      }
      if (state_[b].clone == kNoBuffer) {
        recompute(b);
        if (state_[b].cheap) temporary[n++] = b;
      }
      b = state_[b].clone;
    }
    for (BufferId& b : op.out)
      if (b != kNoBuffer) b = clone_of_output(b);
    op.phase = kBackward;
    op.flags |= kRecomputed;
    p_.ops.push_back(op);
    for (std::size_t i = 0; i < n; ++i) discard_clones(temporary[i]);
  }

  /// The clone of an output: the existing one if the operation changes it in place, else a new buffer.
  BufferId clone_of_output(BufferId b) {
    assert(b < state_.size());
    Dropped& d = state_[b];
    if (d.clone == kNoBuffer) {
      d.clone = copy_of(b, d.times_recomputed == 0 ? std::uint32_t{kRecomputedCopy}
                                                   : kRecomputedAgain + d.times_recomputed - 1u);
      ++d.times_recomputed;
    }
    return d.clone;
  }

  /// Forgets the clones of everything that the writers of b wrote: the next use recomputes them.
  void discard_clones(BufferId b) {
    for (std::size_t i = 0; i < state_[b].writers; ++i)
      for (BufferId o : (*forward_)[state_[b].writer[i]].outputs()) state_[o].clone = kNoBuffer;
  }

  /// The clone has the shape of the original; only its mark and its lifetime differ.
  BufferId copy_of(BufferId b, std::uint32_t copy) {
    Buffer c = p_[b];
    c.copy = copy;
    p_.buffers.push_back(c);
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  Program& p_;
  const RecomputePolicy& policy_;
  std::vector<Dropped> state_;  // by BufferId of the original program
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
  // Policies are per layer and the layers are ordered: full first, then mlp, selective, none.
  const auto is_cheap = [](const Buffer& b) {
    return recomputed_without_products(b) || is_dropped_input(b) || is_dequantized(b) || is_of_all_ranks(b);
  };
  if (n.total() == 0 && run.memory.lora_dropout > 0) return {is_dropped_input, is_cheap};
  if (n.total() == 0 && run.parallel.sequence) return {is_of_all_ranks, is_cheap};
  if (n.total() == 0) return {};
  const std::uint64_t full = n.full, mlp = full + n.mlp, selective = mlp + n.selective;
  auto dropped = [=](const Buffer& b) {
    if (b.layer < 0) return false;
    if (is_dropped_input(b) || is_dequantized(b) || is_of_all_ranks(b)) return true;
    const auto layer = static_cast<std::uint64_t>(b.layer);
    return layer < full ? computed_inside_a_layer(b)
           : layer < mlp
               ? recomputed_without_products(b) || one_of(b.role, {role::kGateUp, role::kGateUpUnscaled})
           : layer < selective ? recomputed_without_products(b)
                               : false;
  };
  return {dropped, is_cheap};
}

/// Inference programs have no backward pass and nothing to drop.
void apply_recompute(Program& p, const RecomputePolicy& policy) {
  const bool trains = !p.sections.empty() && p.sections.front().kind == SectionKind::kMicro;
  if (policy.dropped && trains) Transform(p, policy).run();
}

}  // namespace trainhost::step
