// Rows, columns and types of operands, as listed in core/step/operands.hpp. M = rows of the operation; the
// other letters are the model's dimensions. Matrices are row-major, weights are [out, in], and a vector is
// [n, 1]. Operands that are absent are skipped here; whether they may be absent is in check_structure.cpp.
#include "core/placement/check_findings.hpp"

#include <algorithm>
#include <cassert>
#include <string_view>

#include "core/model/adapters.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "core/step/scratch_sizes.hpp"

namespace trainhost::placement {

using namespace operand;

namespace {

/// Checks one operation. The same instance goes through forward(), head(), backward() and update(); each
/// knows its own kinds and ignores the others.
class Shapes {
 public:
  Shapes(const Program& p, Findings& f, std::uint32_t op)
      : p_(p), f_(f), i_(op), o_(p.ops[op]), m_(p.model) {}

  /// Weights and activations, in the storage type of the run.
  void in(In k, std::uint64_t rows, std::uint64_t cols) { typed(k, rows, cols, real_); }
  void out(Out k, std::uint64_t rows, std::uint64_t cols) { typed_out(k, rows, cols, real_); }
  /// Statistics, gradients of weights, moments, tables: always f32.
  void f32(In k, std::uint64_t rows, std::uint64_t cols) { typed(k, rows, cols, DType::kF32); }
  void f32_out(Out k, std::uint64_t rows, std::uint64_t cols) { typed_out(k, rows, cols, DType::kF32); }
  void typed(In k, std::uint64_t rows, std::uint64_t cols, DType t) {
    if (o_[k] != kNoBuffer) is(o_[k], rows, cols, t);
  }
  void scalars(In k) { typed(k, 1, kScalarCount, DType::kF64); }
  /// Token ids, targets and the order of rows are fed by the host for every micro-batch: i32[M, 1].
  void ids(In k) {
    if (o_[k] == kNoBuffer) return;
    typed(k, M, 1, DType::kI32);
    const Buffer& b = p_[o_[k]];
    if (b.storage == Storage::kArena || (b.storage == Storage::kFed && b.tier != Tier::kDevice))
      f_.at(i_, b.name() + " must be an input from the host");
  }

  void run();

 private:
  /// Output k exists only if the operation has that many outputs.
  void typed_out(Out k, std::uint64_t rows, std::uint64_t cols, DType t) {
    if (k.slot < o_.outs) is(o_[k], rows, cols, t);
  }
  void is(BufferId b, std::uint64_t rows, std::uint64_t cols, DType t) {
    assert(b < p_.buffers.size());  // check_structure() comes first
    const Buffer& x = p_[b];
    if (x.rows == rows && x.cols == cols && x.dtype == t) return;
    f_.at(i_, x.name() + " is " + text(x.dtype, x.rows, x.cols) + ", expected " + text(t, rows, cols));
  }
  static std::string text(DType t, std::uint64_t rows, std::uint64_t cols) {
    return std::string(name(t)) + "[" + std::to_string(rows) + "," + std::to_string(cols) + "]";
  }
  /// On the CPU the scratch holds one tile per thread; on a device the backward pass stores the row sums of
  /// dO * O.
  void attention_scratch(In k) {
    if (on_device_)
      f32(k, M, A);  // the backward pass's row sums; the forward pass has none
    else
      f32(k, p_.traits.threads, attention_scratch_floats(p_.traits, m_.head_dim));
    if ((o_[k] == kNoBuffer) != (on_device_ && o_.kind == OpKind::kAttention))
      f_.at(i_, "has no scratch, or scratch that it does not use");
  }
  /// On a device: the number of the micro-batch; elsewhere the operation has no such slot.
  void micro_batch(In k) {
    if (on_device_) typed(k, 2, 1, DType::kI32);
  }
  /// Runs with several documents in a sequence know where each starts.
  void starts(In k) {
    if (!p_.run.document_mask) return;  // the operation has no such slot
    ids(k);
    if (o_[k] == kNoBuffer) f_.at(i_, "does not know the starts of the documents");
  }
  /// True if the device runs the operation.
  bool runs_on_device() const { return on_device_ && !runs_on_host(p_, o_); }
  /// On a device: one loss per row of the chunk of logits.
  void losses(In k, In logits_at) {
    f32(k, p_[o_[logits_at]].rows, 1);
    if ((o_[k] == kNoBuffer) == on_device_)
      f_.at(i_,
            on_device_ ? "has no buffer for its losses" : "has a buffer for losses, which only devices use");
  }
  /// The logits of a chunk: [rows of the chunk, V] with at most M rows (docs/memory-model.md, "Activations of
  /// one layer").
  void logits(In k) {
    const Buffer& x = p_[o_[k]];
    if (x.rows == 0 || x.rows > M)
      f_.at(i_, x.name() + " has " + std::to_string(x.rows) + " rows for " + std::to_string(M) + " tokens");
    in(k, x.rows, m_.vocab);
  }
  /// Columns of a table of the embedding: H, or of A of its adapter the rank.
  std::uint64_t width_of_table(In k) const {
    const auto is_adapter = [&](const Param& q) {
      return (is_copy(q.weight, o_[k]) || is_copy(q.grad, o_[k])) &&
             p_.tensor_infos[q.slices.front().tensor].part == AdapterPart::kA;
    };
    return std::ranges::any_of(p_.params, is_adapter)
               ? adapter_blocks(m_, p_.run, AdapterGroup::kEmbed, -1).rank
               : H;
  }
  std::uint64_t rank_of_head() const { return adapter_blocks(m_, p_.run, AdapterGroup::kHead, -1).rank; }
  void adapter_of_head() {
    in(head::u(o_.kind), M, rank_of_head()), in(head::b(o_.kind), V, rank_of_head());
    f32(head::scale(o_.kind), 2, V);
    if (o_.kind == OpKind::kHeadEval) return;
    in(head::dropped(o_.kind), M, H);
    if (const BufferId unscaled = o_[head::unscaled(o_.kind)]; unscaled != kNoBuffer) {
      const Buffer& x = p_[unscaled];
      if (x.rows == 0 || x.rows > M)
        f_.at(i_, x.name() + " has " + std::to_string(x.rows) + " rows for " + std::to_string(M) + " tokens");
      in(head::unscaled(o_.kind), x.rows, V);
    }
    if (o_.kind != OpKind::kHeadLoss && o_.kind != OpKind::kHeadBwd) return;
    f32(head::grad_b(o_.kind), V, rank_of_head()), f32(head::grad_magnitude(o_.kind), V, 1);
  }
  /// W and A; of an embedding both are stored transposed.
  void adapted_matrix(In w, In a, const AdapterBlocks& blocks) {
    if (blocks.transposed) return in(w, V, H), in(a, V, blocks.rank);
    in(w, blocks.width, blocks.inputs), in(a, blocks.inner(), blocks.inputs);
  }
  /// True if b is this part of a parameter, or a copy of it in another tier.
  bool is_copy(BufferId part, BufferId b) const {
    return part != kNoBuffer && p_[part].layer == p_[b].layer &&
           std::string_view(p_[part].role) == p_[b].role;
  }
  /// The blocks of the product whose stacked B or magnitudes (`part`), or their gradient, are in buffer b;
  /// none if b is not one.
  AdapterBlocks adapter_blocks_of(BufferId b, AdapterPart part = AdapterPart::kB) const {
    for (const Param& q : p_.params)
      if ((is_copy(q.weight, b) || is_copy(q.grad, b)) &&
          p_.tensor_infos[q.slices.front().tensor].part == part)
        return adapter_blocks(m_, p_.run, adapter_group(p_.tensor_infos[q.slices.front().tensor].role),
                              p_[b].layer);
    return {};
  }
  /// Scratch of the update is that of the largest operation. Muon: two copies of a tensor and two square
  /// matrices of its smaller dimension. Adafactor: a number per column.
  std::uint64_t muon_work() const {
    std::uint64_t floats = 0;
    for (const Param& q : p_.params)
      for (const Slice& s : q.slices) {
        const TensorInfo& t = p_.tensor_infos[s.tensor];
        if (q.grad == kNoBuffer || t.rank < 2 || t.layer < 0) continue;
        // Of the whole tensor, if TP ranks divide it.
        const Division d = p_.run.mode == RunMode::kInference ? Division::kNone : division_of(t);
        const std::uint64_t rows = t.dim[0] * (d == Division::kRows ? T : 1),
                            cols = t.dim[1] * (d == Division::kColumns ? T : 1), least = std::min(rows, cols);
        floats = std::max(floats, 2 * (rows * cols + least * least));
      }
    return floats;
  }
  /// TP ranks of which a direction of Muon has a piece each.
  std::uint64_t pieces(BufferId grad) const {
    for (const Param& q : p_.params)
      if (q.grad == grad && p_.run.mode != RunMode::kInference &&
          division_of(p_.tensor_infos[q.slices.front().tensor]) != Division::kNone)
        return T;
    return 1;
  }
  std::uint64_t tensors_of(BufferId grad) const {
    for (const Param& q : p_.params)
      if (q.grad == grad) return q.slices.size();
    return 0;
  }
  /// Sums of a tensor that TP ranks add up for Adafactor: of the columns if they divide rows, else of the
  /// rows.
  std::uint64_t exchanged(BufferId grad) const {
    for (const Param& q : p_.params) {
      if (q.grad != grad) continue;
      const TensorInfo& t = p_.tensor_infos[q.slices.front().tensor];
      return t.rank < 2 ? 0 : division_of(t) == Division::kColumns ? t.dim[0] : t.dim[1];
    }
    return 0;
  }
  std::uint64_t most_columns() const {
    std::uint64_t columns = 0;
    for (const Param& q : p_.params)
      if (q.grad != kNoBuffer) columns = std::max(columns, p_[q.grad].cols);
    return columns;
  }
  /// The rows of the matrices of a parameter, stacked; none if the operand is not the weight of one.
  void dequantized() {
    std::uint64_t rows = 0, cols = 0;
    const Buffer& from = p_[o_[dequantize::kQuantized]];
    for (const Param& q : p_.params)
      if (is_copy(q.weight, o_[dequantize::kQuantized]))
        for (const Slice& s : q.slices)
          rows += p_.tensor_infos[s.tensor].dim[0], cols = p_.tensor_infos[s.tensor].dim[1];
    typed(dequantize::kQuantized, from.rows, 1, DType::kU8), out(dequantize::kMatrix, rows, cols);
  }
  void forward();
  void head();
  void backward();
  void update();

  const Program& p_;
  Findings& f_;
  std::uint32_t i_;
  const Op& o_;
  const ModelSpec& m_;
  // Storage type of weights and activations; f32_storage is set by trainers that keep bf16 values in f32.
  const bool on_device_ = p_.traits.tier == Tier::kDevice;
  const DType real_ = p_.traits.f32_storage ? DType::kF32 : p_.run.weight;
  const std::uint64_t M = o_.rows, H = m_.hidden, I = m_.intermediate, A = m_.heads, K = m_.kv_heads,
                      D = m_.head_dim, V = m_.vocab, S = p_.run.seq_len, W = p_.traits.slots,
                      qkv = (A + 2 * K) * D,
                      T = p_.run.mode == RunMode::kInference ? 1 : p_.run.parallel.tensor;  // TP ranks
};

/// qkv is [M, (A + 2K) D]: q of all heads, then k, then v of the key and value heads.
void Shapes::forward() {
  switch (o_.kind) {
    case OpKind::kEmbed:
      in(embed::kTable, V, width_of_table(embed::kTable)), ids(embed::kIds),
          out(embed::kX, M, width_of_table(embed::kTable));
      break;
    case OpKind::kRmsNorm:
      in(rms_norm::kX, M, H), in(rms_norm::kWeight, H, 1), out(rms_norm::kY, M, H),
          f32_out(rms_norm::kRstd, M, 1);
      break;
    // n outputs and k inputs of the product, from the weight; biases and residual have the width of y.
    case OpKind::kLinear: {
      const std::uint64_t n = p_[o_[linear::kWeight]].rows, k = p_[o_[linear::kWeight]].cols;
      in(linear::kX, M, k), in(linear::kBias, n, 1), in(linear::kResidual, M, n), out(linear::kY, M, n);
      break;
    }
    case OpKind::kDropout: {
      const std::uint64_t k = p_[o_[dropout::kX]].cols;
      in(dropout::kX, M, k), out(dropout::kY, M, k), micro_batch(dropout::kMicroBatch);
      break;
    }
    case OpKind::kDequantize:
      dequantized();
      break;
    case OpKind::kLoraB: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[lora_b::kWeight]);
      in(lora_b::kU, M, blocks.inner()), in(lora_b::kWeight, blocks.rows_of_b, blocks.rank),
          in(lora_b::kY, M, blocks.width);
      break;
    }
    case OpKind::kDoraScale: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[dora_scale::kMagnitude], AdapterPart::kMagnitude);
      adapted_matrix(dora_scale::kWeight, dora_scale::kA, blocks),
          in(dora_scale::kB, blocks.rows_of_b, blocks.rank), in(dora_scale::kMagnitude, blocks.rows_of_b, 1),
          f32_out(dora_scale::kScale, 2, blocks.width);
      break;
    }
    case OpKind::kDoraSquares: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[dora_squares::kB], AdapterPart::kB);
      adapted_matrix(dora_squares::kWeight, dora_squares::kA, blocks),
          in(dora_squares::kB, blocks.rows_of_b, blocks.rank),
          f32_out(dora_squares::kSquares, 1, blocks.width);
      break;
    }
    case OpKind::kDoraFactors: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[dora_factors::kMagnitude], AdapterPart::kMagnitude);
      f32(dora_factors::kSquares, 1, blocks.width), in(dora_factors::kMagnitude, blocks.rows_of_b, 1),
          f32_out(dora_factors::kScale, 2, blocks.width);
      break;
    }
    case OpKind::kDora: {
      const std::uint64_t n = p_[o_[dora::kScale]].cols;
      in(dora::kUnscaled, M, n), f32(dora::kScale, 2, n), in(dora::kBias, n, 1), in(dora::kResidual, M, n),
          in(dora::kAdded, M, n), out(dora::kY, M, n);
      break;
    }
    case OpKind::kTranspose: {
      const Buffer& w = p_[o_[transpose::kMatrix]];
      in(transpose::kMatrix, w.rows, w.cols), out(transpose::kY, w.cols, w.rows);
      break;
    }
    case OpKind::kQkNorm:
      in(qk_norm::kQkv, M, qkv), in(qk_norm::kQWeight, D, 1), in(qk_norm::kKWeight, D, 1),
          out(qk_norm::kPre, M, (A + K) * D), f32_out(qk_norm::kRstd, M, A + K);
      break;
    case OpKind::kRope:
      in(rope::kQkv, M, qkv), f32(rope::kTable, S, D);
      break;
    case OpKind::kAttention:
      in(attention::kQkv, M, qkv), attention_scratch(attention::kScratch), out(attention::kO, M, A * D),
          f32_out(attention::kLse, M, A);
      starts(attention::kStarts);
      // Attention works on whole sequences: rows are B * S.
      if (M % S) f_.at(i_, "its rows are not whole sequences");
      break;
    case OpKind::kSwiGlu:
      in(swiglu::kGateUp, M, 2 * I), out(swiglu::kAct, M, I);
      break;
    case OpKind::kAttentionStep:
      // One token: one row; caches are [S, K D].
      in(attention_step::kQkv, 1, qkv), in(attention_step::kCacheK, S, K * D),
          in(attention_step::kCacheV, S, K * D), f32(attention_step::kScratch, A, S),
          out(attention_step::kO, 1, A * D);
      break;
    default:
      break;
  }
}

/// Logits are [M, V] where they are materialised and [chunk, V] where they are scratch.
void Shapes::head() {
  switch (o_.kind) {
    case OpKind::kHeadLoss:
      in(head_loss::kHf, M, H), in(head_loss::kHead, V, H), ids(head_loss::kTargets),
          f32(head_loss::kGradHead, V, H), logits(head_loss::kLogits), scalars(head_loss::kScalars),
          losses(head_loss::kLosses, head_loss::kLogits);
      if (T > 1) f32(head_loss::kStats, T * M, 3);
      adapter_of_head();
      // The logits of a chunk and those before the magnitudes are of the same rows.
      if (o_[head_loss::kUnscaled] != kNoBuffer &&
          p_[o_[head_loss::kUnscaled]].rows < p_[o_[head_loss::kLogits]].rows)
        f_.at(i_, p_[o_[head_loss::kUnscaled]].name() + " has fewer rows than the logits");
      break;
    case OpKind::kHeadStats:
      in(head_stats::kHf, M, H), in(head_stats::kHead, V, H), ids(head_stats::kTargets),
          logits(head_stats::kLogits), f32_out(head_stats::kStats, T * M, 3);
      adapter_of_head();
      break;
    case OpKind::kHeadEval:
      in(head_eval::kHf, M, H), in(head_eval::kHead, V, H), ids(head_eval::kTargets),
          logits(head_eval::kLogits), scalars(head_eval::kScalars),
          losses(head_eval::kLosses, head_eval::kLogits);
      if (T > 1) f32(head_eval::kStats, T * M, 3);
      adapter_of_head();
      break;
    case OpKind::kHeadLogits:
      in(head_logits::kHf, M, H), in(head_logits::kHead, V, H), out(head_logits::kLogits, M, V * T);
      adapter_of_head();
      break;
    case OpKind::kCrossEntropy:
      in(cross_entropy::kLogits, M, V), ids(cross_entropy::kTargets), scalars(cross_entropy::kScalars);
      break;
    case OpKind::kHeadBwd:
      in(head_bwd::kDLogits, M, V), in(head_bwd::kHf, M, H), in(head_bwd::kHead, V, H),
          f32(head_bwd::kGradHead, V, H);
      adapter_of_head();
      break;
    default:
      break;
  }
}

/// Gradients of activations have the shapes of the activations, gradients of weights are f32 like their sums.
/// kPartials: one row of partial sums per slot, added up in a fixed order, so that the result does not depend
/// on the number of threads.
void Shapes::backward() {
  switch (o_.kind) {
    case OpKind::kRmsNormBwd:
      in(rms_norm_bwd::kDy, M, H), in(rms_norm_bwd::kX, M, H), f32(rms_norm_bwd::kRstd, M, 1),
          in(rms_norm_bwd::kWeight, H, 1), f32(rms_norm_bwd::kGradWeight, H, 1),
          f32(rms_norm_bwd::kPartials, W, H), out(rms_norm_bwd::kDx, M, H);
      break;
    case OpKind::kLinearDx: {
      const Buffer& w = p_[o_[linear_dx::kWeight]];
      in(linear_dx::kDy, M, w.rows), out(linear_dx::kDx, M, w.cols);
      break;
    }
    case OpKind::kLinearDw: {
      const Buffer& g = p_[o_[linear_dw::kGradWeight]];
      in(linear_dw::kDy, M, g.rows), in(linear_dw::kX, M, g.cols),
          f32(linear_dw::kGradWeight, g.rows, g.cols), f32(linear_dw::kGradBias, g.rows, 1),
          f32(linear_dw::kPartials, W, g.rows);
      if (on_device_ && (o_[linear_dw::kGradBias] == kNoBuffer) != (o_[linear_dw::kPartials] == kNoBuffer))
        f_.at(i_, "has partial sums without a bias, or a bias without partial sums");
      break;
    }
    case OpKind::kLinearDxAdd: {
      const Buffer& w = p_[o_[linear_dx_add::kWeight]];
      in(linear_dx_add::kDy, M, w.rows), in(linear_dx_add::kDx, M, w.cols);
      break;
    }
    case OpKind::kDropoutAdd: {
      const std::uint64_t k = p_[o_[dropout_add::kDx]].cols;
      in(dropout_add::kDy, M, k), in(dropout_add::kDx, M, k), micro_batch(dropout_add::kMicroBatch);
      break;
    }
    case OpKind::kLoraBDx: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[lora_b_dx::kWeight]);
      in(lora_b_dx::kDy, M, blocks.width), in(lora_b_dx::kWeight, blocks.rows_of_b, blocks.rank),
          out(lora_b_dx::kDu, M, blocks.inner());
      break;
    }
    case OpKind::kLoraBDw: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[lora_b_dw::kGradWeight]);
      in(lora_b_dw::kDy, M, blocks.width), in(lora_b_dw::kU, M, blocks.inner()),
          f32(lora_b_dw::kGradWeight, blocks.rows_of_b, blocks.rank);
      break;
    }
    case OpKind::kDoraBwd: {
      const AdapterBlocks blocks = adapter_blocks_of(o_[dora_bwd::kGradMagnitude], AdapterPart::kMagnitude);
      const std::uint64_t n = blocks.width;
      in(dora_bwd::kDy, M, n), in(dora_bwd::kUnscaled, M, n), f32(dora_bwd::kScale, 2, n),
          f32(dora_bwd::kGradMagnitude, blocks.rows_of_b, 1), out(dora_bwd::kDProduct, M, n);
      break;
    }
    case OpKind::kSwiGluBwd:
      in(swiglu_bwd::kDAct, M, I), in(swiglu_bwd::kGateUp, M, 2 * I);
      break;
    case OpKind::kAttentionBwd:
      in(attention_bwd::kDO, M, A * D), in(attention_bwd::kO, M, A * D), f32(attention_bwd::kLse, M, A),
          in(attention_bwd::kQkv, M, qkv), attention_scratch(attention_bwd::kScratch),
          out(attention_bwd::kDQkv, M, qkv);
      starts(attention_bwd::kStarts);
      break;
    case OpKind::kRopeBwd:
      in(attention_bwd::kDO, M, qkv), f32(attention_bwd::kO, S, D);
      break;
    case OpKind::kQkNormBwd:
      in(qk_norm_bwd::kDQkv, M, qkv), in(qk_norm_bwd::kPre, M, (A + K) * D),
          f32(qk_norm_bwd::kRstd, M, A + K), in(qk_norm_bwd::kQWeight, D, 1), in(qk_norm_bwd::kKWeight, D, 1),
          f32(qk_norm_bwd::kGradQWeight, D, 1), f32(qk_norm_bwd::kGradKWeight, D, 1);
      f32(qk_norm_bwd::kPartials, W, 2 * D);
      break;
    case OpKind::kEmbedBwd:
      in(embed_bwd::kDx, M, width_of_table(embed_bwd::kGradTable)), ids(embed_bwd::kIds),
          f32(embed_bwd::kGradTable, V, width_of_table(embed_bwd::kGradTable)), ids(embed_bwd::kOrder);
      if ((o_[embed_bwd::kOrder] == kNoBuffer) == runs_on_device())
        f_.at(i_, runs_on_device() ? "lacks the order of the rows"
                                   : "has an order of the rows, which only devices use");
      break;
    default:
      break;
  }
}

/// Moments and master copies have the shape of the gradient, which has that of the weight.
void Shapes::update() {
  const Buffer& g = p_[o_.in[0]];  // the gradient, or what is copied or added
  // Of all elements; under ZeRO of a part, whose size check_structure.cpp checks.
  const auto state = [&](In k) {
    const BufferId b = o_[k];
    if (p_.run.parallel.zero == 0)
      f32(k, g.rows, g.cols);
    else if (b != kNoBuffer)
      f32(k, p_[b].rows, 1);
  };
  // With ZeRO 2 the gradient is a shard of what the weight has.
  const auto weight = [&](In k) {
    const Buffer& w = p_[o_[k]];
    if (p_.run.parallel.zero != 2) return in(k, g.rows, g.cols);
    in(k, w.rows, w.cols);
    if (w.rows * w.cols != g.whole) f_.at(i_, w.name() + " is not the whole of " + g.name());
  };
  const auto same = [&](BufferId to) {
    if (p_[to].whole && p_[to].whole == g.rows * g.cols && p_[to].dtype == g.dtype) return;
    if (p_[to].rows != g.rows || p_[to].cols != g.cols || p_[to].dtype != g.dtype)
      f_.at(i_, p_[to].name() + " has another shape or type than " + g.name());
  };
  switch (o_.kind) {
    case OpKind::kCopy:
      same(o_[copy::kTo]);
      if (g.tier == p_[o_[copy::kTo]].tier) f_.at(i_, "copies inside one tier");
      break;
    case OpKind::kAddGrad:
      same(o_[add_grad::kGradOut]);
      break;
    case OpKind::kGradSquares:
      scalars(grad_squares::kScalars), typed(grad_squares::kPartials, W, 1, DType::kF64);
      // The sum of squares is computed on the host without scratch.
      if ((o_[grad_squares::kPartials] == kNoBuffer) != runs_on_host(p_, o_))
        f_.at(i_, "has no scratch, or scratch that it does not use");
      break;
    case OpKind::kAdamW:
      weight(adamw::kWeight), state(adamw::kM), state(adamw::kV), scalars(adamw::kScalars),
          state(adamw::kMaster);
      break;
    case OpKind::kAdamW8bit:
      in(adamw_8bit::kWeight, g.rows, g.cols), scalars(adamw_8bit::kScalars),
          f32(adamw_8bit::kMaster, g.rows, g.cols);
      for (const In moment : {adamw_8bit::kM, adamw_8bit::kV})  // sizes: check_structure.cpp
        typed(moment, p_[o_[moment]].rows, 1, DType::kU8);
      break;
    case OpKind::kAdafactor:
      in(adafactor::kWeight, g.rows, g.cols), f32(adafactor::kRows, g.rows, 1), scalars(adafactor::kScalars),
          f32(adafactor::kMaster, g.rows, g.cols);
      if (o_[adafactor::kColumns] != kNoBuffer)  // a row per tensor: check_structure.cpp
        f32(adafactor::kColumns, p_[o_[adafactor::kColumns]].rows, g.cols);
      typed(adafactor::kSums, W, most_columns() + 2, DType::kF64);
      if (o_.ins > adafactor::kOfRanks.slot)
        f32(adafactor::kOfRanks, tensors_of(o_[adafactor::kGrad]), exchanged(o_[adafactor::kGrad]) + 2),
            f32(adafactor::kChange, tensors_of(o_[adafactor::kGrad]), 1);
      break;
    case OpKind::kAdafactorSums:
      in(adafactor_sums::kWeight, g.rows, g.cols), f32(adafactor_sums::kMaster, g.rows, g.cols),
          scalars(adafactor_sums::kScalars), typed(adafactor_sums::kSums, W, most_columns() + 2, DType::kF64),
          f32_out(adafactor_sums::kX, tensors_of(o_[adafactor_sums::kGrad]),
                  exchanged(o_[adafactor_sums::kGrad]) + 2);
      break;
    case OpKind::kAdafactorChange: {
      const BufferId grad = o_[adafactor_change::kGrad];
      scalars(adafactor_change::kScalars), typed(adafactor_change::kSums, W, most_columns() + 2, DType::kF64),
          f32(adafactor_change::kOfRanks, tensors_of(grad), exchanged(grad) + 2),
          f32_out(o_[adafactor_change::kOther] == kNoBuffer ? Out{0} : adafactor_change::kY, tensors_of(grad),
                  1);
      break;
    }
    case OpKind::kMuon:
      in(muon::kWeight, g.rows, g.cols), f32(muon::kM, g.rows, g.cols), scalars(muon::kScalars),
          f32(muon::kMaster, g.rows, g.cols), f32(muon::kWork, muon_work(), 1);
      if (o_.ins > muon::kDirection.slot) f32(muon::kDirection, pieces(o_[muon::kGrad]) * g.rows, g.cols);
      break;
    case OpKind::kMuonDirection:
      f32(muon_direction::kM, g.rows, g.cols), scalars(muon_direction::kScalars),
          f32_out(muon_direction::kX, pieces(o_[muon_direction::kGrad]) * g.rows, g.cols);
      break;
    case OpKind::kMuonOrthogonalise:
      f32(muon_orthogonalise::kWork, muon_work(), 1);
      break;
    case OpKind::kSgd:
      weight(sgd::kWeight), scalars(sgd::kScalars), state(sgd::kMaster);
      break;
    case OpKind::kSgdMomentum:
    case OpKind::kLion:
      weight(sgd_momentum::kWeight), state(sgd_momentum::kM), scalars(sgd_momentum::kScalars),
          state(sgd_momentum::kMaster);
      break;
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
      typed(all_reduce::kScratch, p_[o_[all_reduce::kScratch]].rows, 1, DType::kU8);
      if (o_.kind == OpKind::kAllGather && o_.ins > all_gather::kShard.slot && (o_.flags & kAmongTensorRanks))
        return in(all_gather::kShard, g.rows / T, g.cols);
      if (o_.kind == OpKind::kAllGather && o_.ins > all_gather::kShard.slot)
        if (const Buffer& shard = p_[o_[all_gather::kShard]];
            shard.whole != g.rows * g.cols || shard.dtype != g.dtype)
          f_.at(i_, g.name() + " has another shape or type than the whole of " + shard.name());
      break;
    case OpKind::kTakeRows:
      in(take_rows::kSum, T * M, H), in(take_rows::kResidual, M, H), out(take_rows::kY, M, H);
      break;
    case OpKind::kSumScalars:
      scalars(sum_scalars::kScalars);
      typed(sum_scalars::kScratch, p_[o_[sum_scalars::kScratch]].rows, 1, DType::kU8);
      break;
    default:
      break;
  }
}

void Shapes::run() { forward(), head(), backward(), update(); }

/// Rows that an operation of a section works on: the tokens of a micro-batch, of which with sequence
/// parallelism a rank has its part between the products; one token; or none in the update.
std::uint64_t rows_of(const Program& p, SectionKind k, OpKind op) {
  const bool between_products =
      op == OpKind::kRmsNorm || op == OpKind::kRmsNormBwd || op == OpKind::kTakeRows;
  if (k == SectionKind::kMicro && p.run.parallel.sequence && between_products)
    return p.run.tokens_per_micro_batch() / p.run.parallel.tensor;
  return k == SectionKind::kUpdate ? 0 : k == SectionKind::kGenerate ? 1 : p.run.tokens_per_micro_batch();
}

}  // namespace

void check_shapes(const Program& p, Findings& f) {
  for (const Section& s : p.sections)
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      if (p.ops[i].rows != rows_of(p, s.kind, p.ops[i].kind))
        f.at(i, "runs over " + std::to_string(p.ops[i].rows) + " rows");
      Shapes(p, f, i).run();
    }
}

}  // namespace trainhost::placement
