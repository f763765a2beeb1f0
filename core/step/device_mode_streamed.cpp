// Mode streamed: see device_modes.hpp. A section is divided into runs of consecutive operations of one layer
// (or of no layer: final norm and head). The weights of the next run are copied to the device before a run,
// its gradients are copied to the host after it, and the host adds them one run later. So at any time the
// device holds the weights of two runs and the gradients of two runs.
#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

/// Rewrites the program in one pass per section. Buffers of the original program keep their ids; device
/// copies are added behind them, one per run that uses a parameter, so that a copy is live for two runs only.
class Streamed {
 public:
  explicit Streamed(Program& p) : p_(p), host_(p), part_of_(p.buffers.size()), times_(p.buffers.size()) {}

  void run() {
    for (std::size_t i = 0; i < p_.params.size(); ++i) move_to_host(i);
    std::vector<Op> ops;
    ops.reserve(2 * p_.ops.size());
    for (Section& s : p_.sections) {
      const auto begin = static_cast<std::uint32_t>(ops.size());
      if (s.kind == SectionKind::kUpdate)
        update(s, ops);
      else
        section(s, ops);
      s.begin = begin, s.end = static_cast<std::uint32_t>(ops.size());
    }
    p_.ops = std::move(ops);
  }

 private:
  enum class Part : std::uint8_t { kNone, kWeight, kGrad };
  /// Device copies of host buffers, sorted by host buffer; a run has about ten.
  class Copies {
   public:
    BufferId* find(BufferId host) {
      const auto at =
          std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& c) { return c.first == host; });
      return at == pairs_.end() ? nullptr : &at->second;
    }
    void add(BufferId host, BufferId device) {
      const auto after = [&](const auto& c) { return c.first > host; };
      pairs_.insert(std::find_if(pairs_.begin(), pairs_.end(), after), {host, device});
    }
    auto begin() const { return pairs_.begin(); }
    auto end() const { return pairs_.end(); }

   private:
    std::vector<std::pair<BufferId, BufferId>> pairs_;
  };
  /// Consecutive operations of one layer, with the device copies of the parameters that they use.
  struct Run {
    std::uint32_t begin = 0, end = 0;
    Copies weight, grad;
    std::vector<BufferId> adds;  // gradients on the host of which an earlier run has made the first write
  };

  /// Weights are pinned, as they are copied in every pass; gradients and optimizer state are only touched by
  /// the host.
  void move_to_host(std::size_t i) {
    const Param& q = p_.params[i];
    part_of_[q.weight] = Part::kWeight;
    // The host looks up tokens; never copied, but for the norms of DoRA.
    const bool table_alone = i == 0 && !p_.model.tied && !has_embedding_magnitudes(p_);
    p_.buffers[q.weight].tier = table_alone ? Tier::kHost : Tier::kPinned;
    if (q.grad != kNoBuffer) part_of_[q.grad] = Part::kGrad;
    for (BufferId b : {q.grad, q.m, q.v, q.master})
      if (b != kNoBuffer) p_.buffers[b].tier = Tier::kHost;
  }

  /// Of the table itself, which stays on the host; that of its adapter is streamed like other weights.
  bool of_embedding(const Op& op) const {
    const Param& table = p_.params.front();
    return (op.kind == OpKind::kEmbed && op[operand::embed::kTable] == table.weight) ||
           (op.kind == OpKind::kEmbedBwd && op[operand::embed_bwd::kGradTable] == table.grad);
  }

  /// Per run k: copy the weights of run k + 1, execute run k, add the gradients of run k - 1 on the host,
  /// send those of run k. The copies therefore overlap with the arithmetic of the run beside them.
  void section(const Section& s, std::vector<Op>& out) {
    std::vector<Run> runs;
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      const bool same = !runs.empty() && !of_embedding(p_.ops[i]) && !of_embedding(p_.ops[i - 1]) &&
                        p_.ops[i].layer == p_.ops[i - 1].layer;
      if (!same) runs.push_back({i, i, {}, {}, {}});
      runs.back().end = i + 1;
    }
    for (Run& r : runs) make_copies(r);
    assert(runs.empty() || (runs.front().begin == s.begin && runs.back().end == s.end));
    if (!runs.empty()) fetch(runs.front(), runs.front(), out);
    for (std::size_t k = 0; k < runs.size(); ++k) {
      if (k + 1 < runs.size()) fetch(runs[k + 1], runs[k], out);
      for (std::uint32_t i = runs[k].begin; i < runs[k].end; ++i) transform(p_.ops[i], runs[k], out);
      if (k > 0) add(runs[k - 1], out);
      send(runs[k], out);
    }
    if (!runs.empty()) add(runs.back(), out);
  }

  /// Adds device buffers for the weights and gradients that the run uses.
  void make_copies(Run& r) {
    for (std::uint32_t i = r.begin; i < r.end; ++i) {
      if (of_embedding(p_.ops[i])) continue;
      for (std::span<const BufferId> side : {p_.ops[i].inputs(), p_.ops[i].outputs()})
        for (BufferId b : side) {
          if (b == kNoBuffer || b >= part_of_.size() || part_of_[b] == Part::kNone) continue;
          Copies& known = part_of_[b] == Part::kWeight ? r.weight : r.grad;
          if (known.find(b)) continue;
          Buffer copy = p_[b];
          copy.tier = Tier::kDevice, copy.persistent = false, copy.component = Component::kCommunication;
          copy.copy = kStreamed + times_[b]++;
          known.add(b, host_.add(copy));
        }
    }
  }

  /// Copies the weights of run r to the device, at the start of run `current`.
  void fetch(const Run& r, const Run& current, std::vector<Op>& out) {
    // A copy is an operation of the run during which it happens, but belongs to the layer whose weights it
    // moves.
    Op like = p_.ops[current.begin];
    like.layer = p_.ops[r.begin].layer;
    for (const auto& [from, to] : r.weight) out.push_back(make_op_like(like, OpKind::kCopy, {from}, {to}));
  }

  /// Operands that are parameters become their device copies. The gradient on the device is one
  /// micro-batch's: overwritten, never added to; the host adds it to the sum.
  void transform(Op op, Run& r, std::vector<Op>& out) {
    if (of_embedding(op) && op.kind == OpKind::kEmbed)
      return host_.replace_embed(op, op[operand::embed::kTable], 0, out);
    if (of_embedding(op)) return host_.replace_embed_bwd(op, 0, out);
    bool writes = false;
    for (BufferId& b : op.in) {
      if (const BufferId* w = r.weight.find(b)) b = *w;
      if (const BufferId* g = r.grad.find(b)) {
        if (!(op.flags & kFirstWrite)) r.adds.push_back(b);
        b = *g, writes = true;
      }
    }
    for (BufferId& b : op.out)
      if (const BufferId* g = r.grad.find(b)) b = *g;
    if (writes) op.flags = (op.flags & ~std::uint32_t{kFirstWrite}) | kFreshGrad;
    out.push_back(op);
  }

  /// Device gradient to pinned memory. The device buffer stays live until the copy has arrived (kHold below).
  void send(Run& r, std::vector<Op>& out) {
    const Op& like = p_.ops[r.end - 1];
    for (const auto& [host, device] : r.grad) {
      const Buffer b = p_[device];
      const BufferId staged = host_.pinned(b.role, b.layer, b.copy, b.rows, b.cols, b.dtype);
      out.push_back(make_op_like(like, OpKind::kCopy, {device}, {staged}));
      arriving_.push_back({host, device, staged});
    }
  }

  /// The host adds the gradients that arrived. kHold keeps source and destination of the transfer live until
  /// here.
  void add(const Run& r, std::vector<Op>& out) {
    const Op& like = p_.ops[r.end - 1];
    for (const Arriving& a : arriving_) {
      out.push_back(make_op_like(like, OpKind::kHold, {a.device, a.staged}, {}));
      const bool adds = std::find(r.adds.begin(), r.adds.end(), a.host) != r.adds.end();
      out.push_back(make_op_like(like, OpKind::kAddGrad, {a.staged, a.host}, {a.host},
                                 adds ? 0u : static_cast<std::uint32_t>(kFirstWrite)));
    }
    arriving_.clear();
  }

  /// The whole update runs on the host, but the products of Muon: the direction of a parameter travels to the
  /// device and back. The weight is updated one parameter later, so that the host computes the next direction
  /// while the device orthogonalises this one.
  void update(const Section& s, std::vector<Op>& out) {
    std::vector<Op> waiting;  // the end of the last update by Muon
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      const Op& op = p_.ops[i];
      if (op.kind != OpKind::kMuon) {
        out.insert(out.end(), waiting.begin(), waiting.end()), waiting.clear();
        host_.update_on_host(op, out);
        continue;
      }
      std::vector<Op> rest;
      host_.muon_with_device(op, out, rest);
      out.insert(out.end(), waiting.begin(), waiting.end());
      waiting = std::move(rest);
    }
    out.insert(out.end(), waiting.begin(), waiting.end());
  }

  struct Arriving {
    BufferId host, device, staged;
  };
  Program& p_;
  HostBuffers host_;
  std::vector<Part> part_of_;         // by BufferId of the original program
  std::vector<std::uint32_t> times_;  // number of device copies added so far, by BufferId
  std::vector<Arriving> arriving_;
};

}  // namespace

void apply_streamed(Program& p) { Streamed(p).run(); }

}  // namespace trainhost::step
