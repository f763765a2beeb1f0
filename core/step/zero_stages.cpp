// See zero_stages.hpp. A section is divided into passes: consecutive operations of one layer, or of none
// (embedding; final norm and head). A whole weight belongs to one pass; a whole gradient to the passes from
// its first to its last contribution, which differ for tied embeddings alone.
#include "core/step/zero_stages.hpp"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "core/step/buffer_names.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/operands.hpp"

namespace trainhost::step {
namespace {

class ZeroStage {
 public:
  ZeroStage(Program& p, BufferId scratch)
      : p_(p),
        scratch_(scratch),
        part_of_(p.buffers.size()),
        whole_(p.buffers.size(), kNoBuffer),
        shape_of_(p.buffers.size(), 0) {}

  void run() {
    for (const Param& q : p_.params) {
      if (q.grad != kNoBuffer) divide(q.grad, Part::kGrad);
      if (p_.run.parallel.zero == 3 && p_[q.weight].dtype != DType::kU8) divide(q.weight, Part::kWeight);
    }
    std::vector<Op> ops;
    ops.reserve(2 * p_.ops.size());
    for (Section& s : p_.sections) {
      const auto begin = static_cast<std::uint32_t>(ops.size());
      if (s.kind == SectionKind::kUpdate)  // works on shards
        ops.insert(ops.end(), p_.ops.begin() + s.begin, p_.ops.begin() + s.end);
      else
        section(s, ops);
      s.begin = begin, s.end = static_cast<std::uint32_t>(ops.size());
    }
    p_.ops = std::move(ops);
  }

 private:
  enum class Part : std::uint8_t { kNone, kWeight, kGrad };
  /// A persistent buffer with a shard, and its whole counterpart in a pass.
  struct Whole {
    BufferId shard, whole;
  };
  struct Pass {
    std::uint32_t begin = 0, end = 0;  // operations of the program before the transform
    std::vector<Whole> weights;        // that it uses, in the order of their first use
    std::vector<Whole> grads;          // that it completes
  };

  /// The buffer gets the elements of the rank's shard; shape_ keeps the shape of the whole.
  void divide(BufferId b, Part part) {
    Buffer& x = p_.buffers[b];
    part_of_[b] = part;
    shape_of_[b] = static_cast<std::uint32_t>(shapes_.size());
    shapes_.push_back({x.rows, x.cols});
    x.whole = x.rows * x.cols;
    x.rows = present_elements(p_, b).count, x.cols = 1;
  }

  BufferId add_whole(BufferId shard) {
    Buffer x = p_[shard];
    Shape& shape = shapes_[shape_of_[shard]];
    x.rows = shape.rows, x.cols = shape.cols, x.whole = 0, x.persistent = false;
    x.component = Component::kCommunication, x.copy = kWhole + shape.passes++;
    p_.buffers.push_back(x);
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  bool is(BufferId b, Part part) const { return b < part_of_.size() && part_of_[b] == part; }

  std::vector<Pass> divide_into_passes(std::uint32_t begin, std::uint32_t end) {
    std::vector<Pass> passes;
    for (std::uint32_t i = begin; i < end; ++i) {
      if (passes.empty() || p_.ops[i].layer != p_.ops[i - 1].layer) passes.push_back({i, i, {}, {}});
      passes.back().end = i + 1;
    }
    std::vector<std::uint32_t> contributes(part_of_.size());  // pass of the last contribution, by gradient
    for (std::uint32_t k = 0; k < passes.size(); ++k)
      for (std::uint32_t i = passes[k].begin; i < passes[k].end; ++i)
        for (const BufferId b : p_.ops[i].inputs()) {
          std::vector<Whole>& weights = passes[k].weights;
          if (is(b, Part::kWeight) && !find(weights, b)) weights.push_back({b, add_whole(b)});
          if (!is(b, Part::kGrad)) continue;
          if (whole_[b] == kNoBuffer) whole_[b] = add_whole(b);
          // It is complete with the last contribution.
          std::erase_if(passes[contributes[b]].grads, [&](const Whole& w) { return w.shard == b; });
          passes[k].grads.push_back({b, whole_[b]}), contributes[b] = k;
        }
    return passes;
  }

  static const Whole* find(const std::vector<Whole>& all, BufferId shard) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const Whole& w) { return w.shard == shard; });
    return at == all.end() ? nullptr : &*at;
  }

  /// Per pass k: wait for its weights, start to gather those of pass k + 1, compute, add the gradients of
  /// pass k - 1, start the sums of its own.
  void section(const Section& s, std::vector<Op>& out) {
    std::uint32_t begin = s.begin;
    rows_ = p_.ops[begin].rows;
    // The ranks agree to go on before they start anything.
    if (p_.ops[begin].kind == OpKind::kSumScalars) out.push_back(p_.ops[begin++]);
    const std::vector<Pass> passes = divide_into_passes(begin, s.end);
    gather(passes.front(), passes.front(), out);
    for (std::size_t k = 0; k < passes.size(); ++k) {
      const Pass& pass = passes[k];
      for (const Whole& w : pass.weights) out.push_back(wait(p_.ops[pass.begin], w));
      if (k + 1 < passes.size()) gather(passes[k + 1], pass, out);
      for (std::uint32_t i = pass.begin; i < pass.end; ++i) compute(p_.ops[i], pass, out);
      if (k > 0) add(passes[k - 1], p_.ops[pass.end - 1], out);
      reduce(pass, out);
    }
    add(passes.back(), p_.ops[passes.back().end - 1], out);
  }

  /// Operations on the parameters of another pass belong to the phase during which they run, and to the
  /// layer of the parameter.
  Op like(Op op, BufferId parameter) const {
    op.layer = p_[parameter].layer, op.rows = rows_;
    return op;
  }
  Op wait(const Op& during, const Whole& w) const {
    return make_op_like(like(during, w.shard), OpKind::kWait, {w.whole}, {w.whole});
  }

  void gather(const Pass& pass, const Pass& during, std::vector<Op>& out) const {
    for (const Whole& w : pass.weights)
      out.push_back(make_op_like(like(p_.ops[during.begin], w.shard), OpKind::kAllGather,
                                 {w.whole, scratch_, w.shard}, {w.whole}));
  }

  /// With whole operands. A gradient is that of one micro-batch: its first contribution overwrites it.
  void compute(Op op, const Pass& pass, std::vector<Op>& out) const {
    bool contributes = false;
    const auto replace = [&](BufferId& b) {
      if (is(b, Part::kWeight)) b = find(pass.weights, b)->whole;
      if (is(b, Part::kGrad)) b = whole_[b], contributes = true;
    };
    for (BufferId& b : op.in) replace(b);
    for (BufferId& b : op.out) replace(b);
    if (contributes && (op.flags & kFirstWrite))
      op.flags = (op.flags & ~std::uint32_t{kFirstWrite}) | kFreshGrad;
    out.push_back(op);
  }

  void reduce(const Pass& pass, std::vector<Op>& out) const {
    Op last = p_.ops[pass.end - 1];
    last.rows = rows_;
    for (const Whole& w : pass.grads)
      out.push_back(make_op_like(last, OpKind::kReduceScatter, {w.whole, scratch_}, {w.whole}));
  }

  void add(const Pass& pass, const Op& during, std::vector<Op>& out) const {
    for (const Whole& w : pass.grads) {
      out.push_back(wait(during, w));
      out.push_back(
          make_op_like(like(during, w.shard), OpKind::kAddGrad, {w.whole, w.shard}, {w.shard}, kFirstWrite));
    }
  }

  struct Shape {
    std::uint64_t rows, cols;
    std::uint32_t passes = 0;  // whole counterparts added so far
  };
  Program& p_;
  const BufferId scratch_;
  std::uint64_t rows_ = 0;               // of the section
  std::vector<Part> part_of_;            // by BufferId of the program before the transform
  std::vector<BufferId> whole_;          // likewise: the whole gradient
  std::vector<std::uint32_t> shape_of_;  // likewise: index into shapes_ of a divided buffer
  std::vector<Shape> shapes_;            // of the divided buffers
};

}  // namespace

void apply_zero_stage(Program& p, BufferId scratch) {
  if (p.run.parallel.zero >= 2) ZeroStage(p, scratch).run();
}

}  // namespace trainhost::step
