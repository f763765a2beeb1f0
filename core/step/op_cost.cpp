// See op_cost.hpp. Traffic follows from the operand lists; every operation with a product has a case in
// flops().
#include "core/step/op_cost.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/checked.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "core/step/state_layout.hpp"

namespace trainhost::step {
namespace {

/// 2*m*n*k of a matrix product.
std::uint64_t product(std::uint64_t m, std::uint64_t n, std::uint64_t k) { return checked_mul(2, m, n, k); }

std::uint64_t product_of(const Program& p, const Op& op, BufferId weight) {
  return product(op.rows, p[weight].rows, p[weight].cols);
}

/// `products` products of [queries, D] x [D, keys] over the pairs inside the mask, all heads and sequences.
std::uint64_t attention(const Program& p, const Op& op, std::uint64_t products) {
  assert(op.rows % p.run.seq_len == 0);  // operations of attention see whole sequences
  const std::uint64_t sequences = op.rows / p.run.seq_len;
  return checked_mul(2 * products, sequences, p.model.heads, p.model.head_dim, attention_pairs(p, op.layer));
}

/// Five Newton-Schulz steps of every tensor: x x^T, its square, and a product with x.
std::uint64_t muon(const Program& p, const Param& q) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < q.slices.size(); ++i) {
    const MuonSlice s = muon_slice(p, q, i);
    const std::uint64_t least = std::min(s.rows, s.cols), most = std::max(s.rows, s.cols);
    sum = checked_add(sum, checked_mul(5, checked_add(checked_mul(2, product(least, least, most)),
                                                      product(least, least, least))));
  }
  return sum;
}

/// `products` products with B of the adapter of the head, if it has one.
std::uint64_t adapter_of_head(const Program& p, const Op& op, std::uint64_t products) {
  const BufferId b = op[operand::head::b(op.kind)];
  return b == kNoBuffer ? 0 : checked_mul(products, product_of(p, op, b));
}

// FLOPs of matrix products only: everything else is bound by memory traffic (docs/memory-model.md).
std::uint64_t flops(const Program& p, const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
      return product_of(p, op, op[operand::linear::kWeight]);
    case OpKind::kLinearDx:
      return product_of(p, op, op[operand::linear_dx::kWeight]);
    case OpKind::kLinearDw:
      return product_of(p, op, op[operand::linear_dw::kGradWeight]);
    case OpKind::kLinearDxAdd:
      return product_of(p, op, op[operand::linear_dx_add::kWeight]);
    // The product of a block has the shape of its rows of B.
    case OpKind::kLoraB:
      return product_of(p, op, op[operand::lora_b::kWeight]);
    case OpKind::kLoraBDx:
      return product_of(p, op, op[operand::lora_b_dx::kWeight]);
    case OpKind::kLoraBDw:
      return product_of(p, op, op[operand::lora_b_dw::kGradWeight]);
    case OpKind::kDoraScale:  // B A
      return product(p[op[operand::dora_scale::kB]].rows, p[op[operand::dora_scale::kA]].cols,
                     p[op[operand::dora_scale::kB]].cols);
    case OpKind::kDoraSquares:
      return product(p[op[operand::dora_squares::kB]].rows, p[op[operand::dora_squares::kA]].cols,
                     p[op[operand::dora_squares::kB]].cols);
    case OpKind::kHeadLoss:  // logits, d hf, and grad_head unless the head is frozen
      return checked_add(checked_mul(op[operand::head_loss::kGradHead] == kNoBuffer ? 2 : 3,
                                     product_of(p, op, op[operand::head_loss::kHead])),
                         adapter_of_head(p, op, 3));
    case OpKind::kHeadStats:
      return checked_add(product_of(p, op, op[operand::head_stats::kHead]), adapter_of_head(p, op, 1));
    case OpKind::kHeadEval:
      return checked_add(product_of(p, op, op[operand::head_eval::kHead]), adapter_of_head(p, op, 1));
    case OpKind::kHeadLogits:
      return checked_add(product_of(p, op, op[operand::head_logits::kHead]), adapter_of_head(p, op, 1));
    case OpKind::kHeadBwd:
      return checked_add(checked_mul(2, product_of(p, op, op[operand::head_bwd::kHead])),  // d hf, grad_head
                         adapter_of_head(p, op, 2));
    case OpKind::kMuon:  // with a direction, products are those of another operation
      return op[operand::muon::kDirection] == kNoBuffer
                 ? muon(p, param_of_gradient(p, op[operand::muon::kGrad]))
                 : 0;
    case OpKind::kMuonOrthogonalise:
      return muon(p, param_of_direction(p, op[operand::muon_orthogonalise::kX]));
    case OpKind::kAttention:
      // Two products forward, five backward: the scores are recomputed in the backward pass.
      return attention(p, op, 2);  // q k^T, p v
    case OpKind::kAttentionBwd:
      return attention(p, op, 5);  // q k^T, do v^T, p^T do, ds k, ds^T q
    case OpKind::kAttentionStep: {
      // One query attends to all keys in the cache, at most a window.
      const std::uint32_t window = p.model.window(static_cast<std::uint32_t>(op.layer));
      const std::uint64_t keys = window ? std::min<std::uint64_t>(window, p.run.seq_len) : p.run.seq_len;
      return checked_mul(4, p.model.heads, p.model.head_dim, keys);
    }
    default:
      return 0;
  }
}

bool is_scratch(const Op& op, std::size_t slot) { return op_info(op.kind).scratch_mask >> slot & 1; }

/// Bytes of an operand that the operation accesses: at most one row per token of an embedding table; in the
/// update of a rank its part of a weight or gradient; all of every other operand.
std::uint64_t bytes_accessed(const Program& p, const Op& op, BufferId b) {
  const Buffer& x = p[b];
  if (op.phase == kUpdate && p.run.parallel.data > 1 &&
      (x.component == Component::kWeights || x.component == Component::kGradients))
    return (op.kind == OpKind::kGradSquares ? shard_of(p, b) : updated_elements(p, b)).count *
           size_of(x.dtype);
  const bool table = (op.kind == OpKind::kEmbed && b == op[operand::embed::kTable]) ||
                     (op.kind == OpKind::kEmbedBwd && b == op[operand::embed_bwd::kGradTable]);
  return table ? checked_mul(std::min(op.rows, x.rows), x.cols, size_of(x.dtype)) : x.bytes();
}

}  // namespace

OpCost& OpCost::operator+=(const OpCost& o) {
  flops = checked_add(flops, o.flops);
  bytes_read = checked_add(bytes_read, o.bytes_read);
  bytes_written = checked_add(bytes_written, o.bytes_written);
  return *this;
}

std::uint64_t attention_pairs(const Program& p, std::int32_t layer) {
  const std::uint64_t S = p.run.seq_len, w = p.model.window(static_cast<std::uint32_t>(std::max(layer, 0)));
  // A causal mask: query q sees q + 1 keys. S (S + 1) / 2 pairs without a window.
  if (w == 0 || w >= S) return checked_mul(S, S + 1) / 2;
  return checked_mul(w, w + 1) / 2 + checked_mul(S - w, w);  // the first w queries see 1, 2, ..., w keys
}

OpCost op_cost(const Program& p, const Op& op, bool first_micro) {
  OpCost c;
  c.flops = flops(p, op);
  const bool overwrites = first_micro && (op.flags & kFirstWrite);
  for (std::size_t i = 0; i < op.ins; ++i) {
    if (op.in[i] == kNoBuffer || is_scratch(op, i)) continue;
    // The first write does not read what it overwrites.
    if (overwrites && p[op.in[i]].component == Component::kGradients) continue;
    c.bytes_read = checked_add(c.bytes_read, bytes_accessed(p, op, op.in[i]));
  }
  for (BufferId b : op.outputs()) {
    if (b == kNoBuffer) continue;
    // Overwriting the gradient of a table also clears the rows that no token uses.
    const bool whole = overwrites && p[b].component == Component::kGradients;
    c.bytes_written = checked_add(c.bytes_written, whole ? p[b].bytes() : bytes_accessed(p, op, b));
  }
  return c;
}

}  // namespace trainhost::step
