// Hybrid: see device_modes.hpp. Who owns the embedding:
//   untied  the host alone: table, gradient, moments. Its gradient needs the hidden gradient: one copy of
//   class `sync` a
//           micro-batch, down.
//   tied    the device, where the same table is the head. Its gradient is made there, nothing goes down for
//   it; the host
//           looks up in a copy that it gets after each update: one copy of class `sync` an update.
#include "core/base/types.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

class Hybrid {
 public:
  explicit Hybrid(Program& p) : p_(p), host_(p) {}

  void run() {
    const Param& embed = p_.params.front();  // file order: the table is first
    table_ = embed.weight;
    if (p_.model.tied)
      make_mirror();
    else
      for (BufferId b : {embed.weight, embed.grad, embed.m, embed.v, embed.master})
        if (b != kNoBuffer) p_.buffers[b].tier = Tier::kHost;
    std::vector<Op> ops;
    ops.reserve(p_.ops.size() + 16);
    for (Section& s : p_.sections) {
      const auto begin = static_cast<std::uint32_t>(ops.size());
      for (std::uint32_t i = s.begin; i < s.end; ++i) one(s.kind, p_.ops[i], ops);
      if (s.kind == SectionKind::kUpdate && p_.model.tied) {
        Op like = ops.back();
        like.layer = -1;
        ops.push_back(op_like(like, OpKind::kCopy, {table_}, {mirror_}, kSyncCopy));
      }
      s.begin = begin, s.end = static_cast<std::uint32_t>(ops.size());
    }
    p_.ops = std::move(ops);
    if (p_.run.accumulate > 1 && p_.run.mode != RunMode::kInference) make_rings();
  }

 private:
  void make_mirror() {
    Buffer b = p_[table_];
    b.copy = kOnHost, b.tier = Tier::kPinned, b.component = Component::kCommunication;
    mirror_ = host_.add(b);
  }

  void one(SectionKind section, const Op& op, std::vector<Op>& out) {
    const bool micro = section == SectionKind::kMicro;
    switch (op.kind) {
      case OpKind::kEmbed:
        if (p_.model.tied && !micro) break;  // the table is on the device as well
        return host_.look_up(op, p_.model.tied ? mirror_ : table_, micro ? kActivationCopy : 0u, out);
      case OpKind::kHeadLoss:
        return head(op, out);
      case OpKind::kEmbedBwd:
        if (p_.model.tied) break;
        return host_.scatter(op, kSyncCopy, out);
      case OpKind::kGradSquares:
      case OpKind::kAdamW:
      case OpKind::kSgd:
      case OpKind::kSgdMomentum:
        if (p_[op[operand::optimizer::kGrad]].tier != Tier::kDevice) return on_host(op, out);
        break;
      default:
        break;
    }
    out.push_back(op);
  }

  /// An operation of the update on what the host owns: its own scalars, no scratch.
  void on_host(Op op, std::vector<Op>& out) {
    const BufferId device = p_.find(role::kScalars), host = host_.scalars();
    for (BufferId& b : op.in)
      if (b == device) b = host;
    for (BufferId& b : op.out)
      if (b == device) b = host;
    if (op.kind == OpKind::kGradSquares) op[operand::grad_squares::kPartials] = kNoBuffer;
    out.push_back(op);
  }

  /// All logits of the micro-batch, down, their gradients up in the same place, then the head's own
  /// gradients.
  void head(const Op& op, std::vector<Op>& out) {
    namespace head_loss = operand::head_loss;
    const BufferId hf = op[head_loss::kHf], head = op[head_loss::kHead], grad_head = op[head_loss::kGradHead];
    const BufferId logits = op[head_loss::kLogits];
    p_.buffers[logits].rows = op.rows;
    const Buffer all = p_[logits];
    const BufferId host_logits = host_.pinned(role::kLogits, -1, kOnHost, all.rows, all.cols, all.dtype);
    Op forward = op;
    forward.phase = kForward;
    out.push_back(op_like(forward, OpKind::kHeadLogits, {hf, head}, {logits}));
    out.push_back(op_like(forward, OpKind::kCopy, {logits}, {host_logits}, kActivationCopy));
    out.push_back(op_like(forward, OpKind::kCrossEntropy, {host_logits, host_.targets(), host_.scalars()},
                          {host_logits, host_.scalars()}));
    out.push_back(op_like(forward, OpKind::kCopy, {host_logits}, {logits}, kActivationCopy));
    out.push_back(op_like(op, OpKind::kHeadBwd, {logits, hf, head, grad_head}, {hf, grad_head}, op.flags));
  }

  /// Two micro-batches in flight: whatever is alive between the forward and the backward part, and what is
  /// fed, twice.
  void make_rings() {
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
      // Copies run beside the kernels of another micro-batch: what only they and the host touch is spared
      // waiting.
      const bool between = !x.persistent && x.tier == Tier::kPinned && (forward[b] || backward[b]);
      if (fed || spans || between) x.ring = 2, x.stride = p_.traits.alignment;
    }
  }

  Program& p_;
  HostSide host_;
  BufferId table_ = kNoBuffer, mirror_ = kNoBuffer;
};

}  // namespace

void apply_hybrid(Program& p) { Hybrid(p).run(); }

}  // namespace trainhost::step
