// Mode hybrid: see device_modes.hpp. Owner of the embedding:
//   untied  the host: table, gradient, moments. Its gradient needs the gradient of the hidden states: one
//   copy
//           of class `sync` to the host per micro-batch.
//   tied    the device, where the same table is the head, with its gradient. The host looks up tokens in a
//           copy of the table, which is refreshed after each update: one copy of class `sync` per update.
//           Also the frozen table of an adapter with DoRA, whose norms the device computes.
// A frozen table has no gradient and does not change: no copies of class `sync`.
#include <algorithm>
#include <span>

#include "core/base/types.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"

namespace trainhost::step {
namespace {

class Hybrid {
 public:
  explicit Hybrid(Program& p) : p_(p), host_(p) {}

  void run() {
    const Param& embed = p_.params.front();  // file order: the table is first
    table_ = embed.weight;
    on_device_ = p_.model.tied || has_embedding_magnitudes(p_);
    if (on_device_)
      add_mirror();
    else
      for (BufferId b : {embed.weight, embed.grad, embed.m, embed.v, embed.master})
        if (b != kNoBuffer) p_.buffers[b].tier = Tier::kHost;
    std::vector<Op> ops;
    ops.reserve(p_.ops.size() + 16);
    for (Section& s : p_.sections) {
      const auto begin = static_cast<std::uint32_t>(ops.size());
      for (std::uint32_t i = s.begin; i < s.end; ++i) {
        transform(s.kind, p_.ops[i], ops);
        // Behind the update of the table, so that the copy overlaps with the updates of other tensors.
        if (s.kind == SectionKind::kUpdate && on_device_ && updates_table(p_.ops[i]))
          ops.push_back(make_op_like(p_.ops[i], OpKind::kCopy, {table_}, {mirror_}, kSyncCopy));
      }
      s.begin = begin, s.end = static_cast<std::uint32_t>(ops.size());
    }
    p_.ops = std::move(ops);
    if (p_.run.accumulate > 1 && p_.run.mode != RunMode::kInference) give_rings_two_instances();
  }

 private:
  void add_mirror() {
    Buffer b = p_[table_];
    b.copy = kOnHost, b.tier = Tier::kPinned, b.component = Component::kCommunication;
    mirror_ = host_.add(b);
  }

  bool updates_table(const Op& op) const {
    const std::span<const BufferId> written = op.outputs();
    return std::find(written.begin(), written.end(), table_) != written.end();
  }

  void transform(SectionKind section, const Op& op, std::vector<Op>& out) {
    const bool micro = section == SectionKind::kMicro;
    switch (op.kind) {
      case OpKind::kEmbed:
        if (op[operand::embed::kTable] != table_) break;  // of an adapter
        if (on_device_ && !micro) break;                  // eval and generate use the table on the device
        return host_.replace_embed(op, on_device_ ? mirror_ : table_, micro ? kActivationCopy : 0u, out);
      case OpKind::kHeadLoss:
        return head(op, out);
      case OpKind::kEmbedBwd:
        if (on_device_ || op[operand::embed_bwd::kGradTable] != p_.params.front().grad) break;
        return host_.replace_embed_bwd(op, kSyncCopy, out);
      case OpKind::kGradSquares:
      case OpKind::kAdamW:
      case OpKind::kSgd:
      case OpKind::kSgdMomentum:
      case OpKind::kLion:
      case OpKind::kAdamW8bit:
      case OpKind::kAdafactor:
        if (p_[op[operand::optimizer::kGrad]].tier != Tier::kDevice) return host_.update_on_host(op, out);
        break;
      default:
        break;
    }
    out.push_back(op);
  }

  /// Replaces kHeadLoss: all logits of the micro-batch, copy to the host, loss and gradient there, copy of
  /// the gradient into the same device buffer, gradients of the head.
  void head(const Op& op, std::vector<Op>& out) {
    namespace head_loss = operand::head_loss;
    const BufferId hf = op[head_loss::kHf], head = op[head_loss::kHead], grad_head = op[head_loss::kGradHead];
    const BufferId logits = op[head_loss::kLogits];
    p_.buffers[logits].rows = op.rows;
    const Buffer all = p_[logits];
    const BufferId host_logits = host_.pinned(role::kLogits, -1, kOnHost, all.rows, all.cols, all.dtype);
    Op forward = op;
    forward.phase = kForward;
    const BufferId u = op[head_loss::kU], b = op[head_loss::kB], grad_b = op[head_loss::kGradB];
    const BufferId scale = op[head_loss::kScale], unscaled = op[head_loss::kUnscaled],
                   grad_m = op[head_loss::kGradMagnitude], dropped = op[head_loss::kDropped];
    out.push_back(make_op_like(
        forward, OpKind::kHeadLogits,
        {hf, head, u, b, scale, dropped == kNoBuffer ? kNoBuffer : scratch_like(unscaled), dropped},
        {logits}));
    out.push_back(make_op_like(forward, OpKind::kCopy, {logits}, {host_logits}, kActivationCopy));
    out.push_back(make_op_like(forward, OpKind::kCrossEntropy,
                               {host_logits, host_.targets(), host_.scalars()},
                               {host_logits, host_.scalars()}));
    out.push_back(make_op_like(forward, OpKind::kCopy, {host_logits}, {logits}, kActivationCopy));
    out.push_back(make_op_like(op, OpKind::kHeadBwd,
                               {logits, hf, head, grad_head, u, b, grad_b, scale, unscaled, grad_m, dropped},
                               {hf, grad_head, u, grad_b, grad_m, dropped}, op.flags));
  }

  /// Scratch of another operation, so that neither is live from one to the other.
  BufferId scratch_like(BufferId b) {
    Buffer other = p_[b];
    other.copy = kRecomputedCopy;
    return host_.add(other);
  }

  /// Two micro-batches are in flight, so buffers that are live across the boundary between forward and
  /// backward, and the fed inputs, get two instances.
  void give_rings_two_instances() {
    const Section micro = p_.section(SectionKind::kMicro);
    const std::uint32_t cut = backward_begin(p_);
    std::vector<bool> forward(p_.buffers.size()), backward(p_.buffers.size());
    for (std::uint32_t i = micro.begin; i < micro.end; ++i)
      for (std::span<const BufferId> side : {p_.ops[i].inputs(), p_.ops[i].outputs()})
        for (BufferId b : side)
          if (b != kNoBuffer) (i < cut ? forward : backward)[b] = true;
    for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
      Buffer& x = p_.buffers[b];
      const bool fed = x.storage == Storage::kFed && x.copy == kOriginal;
      const bool spans = !x.persistent && x.storage == Storage::kArena && forward[b] && backward[b];
      // Copies run concurrently with the kernels of another micro-batch. Two instances of the buffers that
      // only copies and the host use avoid waiting for them.
      const bool between = !x.persistent && x.tier == Tier::kPinned && (forward[b] || backward[b]);
      if (fed || spans || between) x.ring = 2, x.stride = p_.traits.alignment;
    }
  }

  Program& p_;
  HostBuffers host_;
  BufferId table_ = kNoBuffer, mirror_ = kNoBuffer;
  bool on_device_ = false;  // the table
};

}  // namespace

void apply_hybrid(Program& p) { Hybrid(p).run(); }

}  // namespace trainhost::step
