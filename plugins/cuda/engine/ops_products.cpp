// Operations that are matrix products: linear layers and the language-model head. The head processes its
// tokens in chunks, so that only the logits of one chunk are materialised; in the hybrid mode all logits of a
// micro-batch are, because they are copied to the host. The products themselves: gemm.hpp.
#include <algorithm>
#include <optional>

#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/dora_kernels.hpp"
#include "plugins/cuda/kernels/parts_kernels.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using namespace step::operand;

GemmShape shape(const OpContext& ctx, Product p, std::uint64_t rows, const step::Buffer& weight) {
  GemmShape s{};
  s.product = p, s.M = rows, s.n = weight.rows, s.k = weight.cols;
  s.operands = ctx.bf16() ? DType::kBF16 : DType::kF32;
  s.tf32 = ctx.tf32();
  return s;
}

/// Shape of the product of kLinear, kLinearDx or kLinearDw over `rows` tokens.
GemmShape linear_shape(const OpContext& ctx, const step::Op& op, std::uint64_t rows) {
  if (op.kind == OpKind::kLinearDx) return shape(ctx, Product::kDx, rows, ctx.buffer(op[linear_dx::kWeight]));
  if (op.kind == OpKind::kLinearDw) {
    GemmShape s = shape(ctx, Product::kDw, rows, ctx.buffer(op[linear_dw::kGradWeight]));
    s.add = !ctx.overwrite(op);
    return s;
  }
  GemmShape s = shape(ctx, Product::kForward, rows, ctx.buffer(op[linear::kWeight]));
  s.bias = op[linear::kBias] != step::kNoBuffer;
  s.add = op[linear::kResidual] != step::kNoBuffer;
  return s;
}

/// Operands of the three products with B of adapters, over M rows.
struct LoraOperands {
  AdapterBlocks blocks;
  std::uint64_t rows;
  std::byte *u, *b, *y;                 // u or du; B or its gradient; y or dy
  std::uint64_t element, element_of_b;  // bytes
};

/// Queues y += scale * u B^T, du = scale * dy B, or grad_b (= or +=) scale * dy^T u. The blocks read and
/// write parts of the rows of u and y; those of B are whole rows.
void queue_lora_product(OpContext& ctx, Product product, const LoraOperands& o, bool add) {
  const std::uint64_t rank = o.blocks.rank, inner = o.blocks.inner(), width = o.blocks.width;
  for (const AdapterBlock& block : o.blocks.all()) {
    GemmShape s{};
    s.product = product, s.M = o.rows, s.n = block.outputs, s.k = rank;
    s.operands = ctx.bf16() ? DType::kBF16 : DType::kF32;
    s.tf32 = ctx.tf32();
    s.scale = static_cast<float>(o.blocks.scale);
    std::byte *u = o.u + block.inner_column * o.element, *y = o.y + block.output_column * o.element,
              *b = o.b + block.first_row_of_b * rank * o.element_of_b;
    s.add = add;
    ++ctx.launches;
    if (product == Product::kDw) {
      s.ld_left = width, s.ld_right = inner;
      ctx.gemm.run(ctx.stream, s, y, u, nullptr, nullptr, b);
    } else if (product == Product::kDx) {
      s.ld_left = width, s.ld_out = inner;
      ctx.gemm.run(ctx.stream, s, y, b, nullptr, nullptr, u);
    } else {
      s.ld_left = inner, s.ld_out = width;
      ctx.gemm.run(ctx.stream, s, u, b, nullptr, nullptr, y);
    }
  }
}

/// Operands of the adapter of the head for rows [first, first + rows), whose logits are at `logits`; nullopt
/// without one.
std::optional<LoraOperands> adapter_of_head(const OpContext& ctx, const step::Op& op, std::uint64_t first,
                                            std::uint64_t rows, void* logits) {
  const step::BufferId b = op[head::b(op.kind)], u = op[head::u(op.kind)];
  if (b == step::kNoBuffer) return std::nullopt;
  LoraOperands o{step::lora_blocks(ctx.program, b),
                 rows,
                 ctx.get<std::byte>(u),
                 ctx.get<std::byte>(b),
                 static_cast<std::byte*>(logits),
                 size_of(ctx.buffer(u).dtype),
                 size_of(ctx.buffer(b).dtype)};
  o.u += first * o.blocks.inner() * o.element;
  return o;
}

/// Queues the gradients of B and of u from those of the sum to which the adapter has added.
void queue_adapter_of_head_bwd(OpContext& ctx, const step::Op& op, LoraOperands o, bool add) {
  const LoraOperands of_u = o;
  const step::BufferId grad = op[head::grad_b(op.kind)];
  o.b = ctx.get<std::byte>(grad), o.element_of_b = size_of(ctx.buffer(grad).dtype);
  queue_lora_product(ctx, Product::kDw, o, add);
  queue_lora_product(ctx, Product::kDx, of_u, false);  // overwrites u
}

/// DoRA of the head: factors and 1 / n of the logits; the logits before the magnitudes, which become their
/// gradient; the input of the adapter after dropout, which becomes its gradient.
template <class T>
struct HeadMagnitudes {
  const float* scale = nullptr;  // null without
  T *unscaled = nullptr, *dropped = nullptr;
  std::uint64_t chunk = 0;  // rows of unscaled
};

template <class T>
HeadMagnitudes<T> magnitudes_of_head(const OpContext& ctx, const step::Op& op) {
  HeadMagnitudes<T> m{ctx.get<float>(op[head::scale(op.kind)])};
  if (!m.scale || op.kind == OpKind::kHeadEval) return m;
  m.unscaled = ctx.get<T>(op[head::unscaled(op.kind)]), m.dropped = ctx.get<T>(op[head::dropped(op.kind)]);
  if (m.unscaled) m.chunk = ctx.buffer(op[head::unscaled(op.kind)]).rows;
  return m;
}

/// Queues to = x w^T, of rows [first, first + rows), and with an adapter + scale * u B^T.
template <class T>
void queue_adapted_product(OpContext& ctx, const step::Op& op, const step::Buffer& w, const T* x,
                           const T* weight, std::uint64_t first, std::uint64_t rows, T* to) {
  ctx.gemm.run(ctx.stream, shape(ctx, Product::kForward, rows, w), x + first * w.cols, weight, nullptr,
               nullptr, to);
  ++ctx.launches;
  if (const auto adapter = adapter_of_head(ctx, op, first, rows, to))
    queue_lora_product(ctx, Product::kForward, *adapter, true);
}

/// Queues the logits of rows [first, first + rows).
template <class T>
void queue_logits(OpContext& ctx, const step::Op& op, const step::Buffer& w, const T* hf, const T* weight,
                  std::uint64_t first, std::uint64_t rows, T* logits) {
  const HeadMagnitudes<T> m = magnitudes_of_head<T>(ctx, op);
  const auto n = static_cast<std::uint32_t>(w.rows);
  if (m.dropped) {
    queue_adapted_product<T>(ctx, op, w, hf, weight, first, rows, logits);
    for (std::uint64_t done = 0; done < rows; done += m.chunk) {
      const std::uint64_t count = std::min(m.chunk, rows - done);
      T* to = logits + done * w.rows;
      queue_adapted_product<T>(ctx, op, w, m.dropped, weight, first + done, count, m.unscaled);
      ctx.check_launch(cuda::dora<T>(ctx.stream, count, n, m.unscaled, m.scale, 1.0f, nullptr, to, to), op);
    }
    return;
  }
  T* const sum = m.unscaled ? m.unscaled : logits;
  queue_adapted_product<T>(ctx, op, w, hf, weight, first, rows, sum);
  if (m.scale)
    ctx.check_launch(cuda::dora<T>(ctx.stream, rows, n, sum, m.scale, 0.0f, nullptr, nullptr, logits), op);
}

template <class T>
struct Head {
  std::uint64_t h, v, chunk;  // hidden size, vocabulary, tokens per chunk
  T* hf;                      // [M, h] normalised hidden states; becomes their gradient
  T* logits;                  // [chunk, v]; becomes their gradient
  const T* w;                 // [v, h]
  const std::int32_t* targets;
  float* grad;    // [v, h], f32; null in evaluation and if the head is frozen
  float* losses;  // [chunk]
  // Of a TP rank, which has part of the vocabulary: the statistics of all of them, [parts.count * M, 3].
  VocabularyParts parts;
};

/// Queues the gradients of a head with DoRA. With dropout hf has the gradient of its own product, and the
/// dropped input that of the other one, which takes the place of the logits.
template <class T>
void adapted_head_gradients(OpContext& ctx, const step::Op& op, const Head<T>& c, const step::Buffer& w,
                            const HeadMagnitudes<T>& m, std::uint64_t first, std::uint64_t rows, T* d_logits,
                            bool add) {
  T* hf = c.hf + first * c.h;
  const GemmShape dx = shape(ctx, Product::kDx, rows, w);
  if (m.dropped) ctx.gemm.run(ctx.stream, dx, d_logits, c.w, nullptr, nullptr, hf);
  const auto n = static_cast<std::uint32_t>(c.v);
  ctx.check_launch(cuda::dora_bwd<T>(ctx.stream, rows, n, {1, {{0, n, 0}}}, d_logits, m.scale, m.scale + n,
                                     !add, m.unscaled, m.dropped ? d_logits : nullptr,
                                     ctx.get<float>(op[head::grad_magnitude(op.kind)])),
                   op);
  queue_adapter_of_head_bwd(ctx, op, *adapter_of_head(ctx, op, first, rows, m.unscaled), add);
  ctx.gemm.run(ctx.stream, dx, m.dropped ? d_logits : m.unscaled, c.w, nullptr, nullptr,
               m.dropped ? m.dropped + first * c.h : hf);
  ctx.launches += m.dropped ? 2 : 1;
}

/// Queues the gradients of the head's weight and of hf from the gradients of a chunk of logits, rows [first,
/// first + rows). The weight's gradient comes first, because it reads hf, which the second product
/// overwrites.
template <class T>
void head_gradients(OpContext& ctx, const step::Op& op, const Head<T>& c, const step::Buffer& w,
                    std::uint64_t first, std::uint64_t rows, const T* d_logits) {
  GemmShape dw = shape(ctx, Product::kDw, rows, w);
  dw.add = first != 0 || !ctx.overwrite(op);  // later chunks add to the first one
  T* hf = c.hf + first * c.h;
  if (const HeadMagnitudes<T> m = magnitudes_of_head<T>(ctx, op); m.scale)
    return adapted_head_gradients<T>(ctx, op, c, w, m, first, rows, const_cast<T*>(d_logits), dw.add);
  if (c.grad) ctx.gemm.run(ctx.stream, dw, d_logits, hf, nullptr, nullptr, c.grad);
  if (const auto adapter = adapter_of_head(ctx, op, first, rows, const_cast<T*>(d_logits)))
    queue_adapter_of_head_bwd(ctx, op, *adapter, dw.add);
  ctx.gemm.run(ctx.stream, shape(ctx, Product::kDx, rows, w), d_logits, c.w, nullptr, nullptr, hf);
  ctx.launches += c.grad ? 2 : 1;
}

VocabularyParts vocabulary_parts(const OpContext& ctx, std::uint64_t part) {
  const std::uint32_t rank = ctx.tensor_rank();
  return {ctx.program.run.parallel.tensor, rank, static_cast<std::int32_t>(rank * part)};
}

}  // namespace

void queue_linear_dx_add(OpContext& ctx, const step::Op& op) {
  GemmShape s = shape(ctx, Product::kDx, ctx.step.rows, ctx.buffer(op[linear_dx_add::kWeight]));
  s.add = true;
  ++ctx.launches;
  ctx.gemm.run(ctx.stream, s, ctx.get<void>(op[linear_dx_add::kDy]),
               ctx.get<void>(op[linear_dx_add::kWeight]), nullptr, nullptr,
               ctx.get<void>(op[linear_dx_add::kDx]));
}

void queue_lora(OpContext& ctx, const step::Op& op) {
  const bool dw = op.kind == OpKind::kLoraBDw, dx = op.kind == OpKind::kLoraBDx;
  const step::BufferId b = dw   ? op[lora_b_dw::kGradWeight]
                           : dx ? op[lora_b_dx::kWeight]
                                : op[lora_b::kWeight];
  const step::BufferId u = dw ? op[lora_b_dw::kU] : dx ? op[lora_b_dx::kDu] : op[lora_b::kU];
  const step::BufferId y = dw ? op[lora_b_dw::kDy] : dx ? op[lora_b_dx::kDy] : op[lora_b::kY];
  const LoraOperands o{step::lora_blocks(ctx.program, b),
                       ctx.step.rows,
                       ctx.get<std::byte>(u),
                       ctx.get<std::byte>(b),
                       ctx.get<std::byte>(y),
                       size_of(ctx.buffer(u).dtype),
                       size_of(ctx.buffer(b).dtype)};
  const Product product = dw ? Product::kDw : dx ? Product::kDx : Product::kForward;
  queue_lora_product(ctx, product, o, dw ? !ctx.overwrite(op) : !dx);
}

void queue_linear(OpContext& ctx, const step::Op& op) {
  const GemmShape s = linear_shape(ctx, op, ctx.step.rows);
  ++ctx.launches;
  const auto at = [&](auto slot) { return ctx.get<void>(op[slot]); };
  if (op.kind == OpKind::kLinear)
    return ctx.gemm.run(ctx.stream, s, at(linear::kX), at(linear::kWeight), at(linear::kBias),
                        at(linear::kResidual), at(linear::kY));
  if (op.kind == OpKind::kLinearDx)
    return ctx.gemm.run(ctx.stream, s, at(linear_dx::kDy), at(linear_dx::kWeight), nullptr, nullptr,
                        at(linear_dx::kDx));
  ctx.gemm.run(ctx.stream, s, at(linear_dw::kDy), at(linear_dw::kX), nullptr, nullptr,
               at(linear_dw::kGradWeight));
  if (op[linear_dw::kGradBias] == step::kNoBuffer) return;
  if (ctx.bf16())
    queue_bias_gradient<Bf16>(ctx, op);
  else
    queue_bias_gradient<float>(ctx, op);
}

template <class T>
void queue_head(OpContext& ctx, const step::Op& op) {
  // kHeadBwd (hybrid): the gradients of all logits were computed on the host and copied back.
  const bool train = op.kind == OpKind::kHeadLoss, gradient_given = op.kind == OpKind::kHeadBwd;
  const step::Buffer& w = ctx.buffer(op[gradient_given ? head_bwd::kHead : head::kHead]);
  Head<T> c{};
  c.h = w.cols, c.v = w.rows;
  if (gradient_given) {
    c.hf = ctx.get<T>(op[head_bwd::kHf]), c.w = ctx.get<T>(op[head_bwd::kHead]);
    c.grad = ctx.get<float>(op[head_bwd::kGradHead]);
    T* d_logits = ctx.get<T>(op[head_bwd::kDLogits]);
    const HeadMagnitudes<T> m = magnitudes_of_head<T>(ctx, op);
    if (!m.scale) return head_gradients<T>(ctx, op, c, w, 0, ctx.step.rows, d_logits);
    // The logits before the magnitudes are recomputed, a chunk at a time.
    for (std::uint64_t first = 0; first < ctx.step.rows; first += m.chunk) {
      const std::uint64_t rows = std::min(m.chunk, ctx.step.rows - first);
      queue_adapted_product<T>(ctx, op, w, m.dropped ? m.dropped : c.hf, c.w, first, rows, m.unscaled);
      head_gradients<T>(ctx, op, c, w, first, rows, d_logits + first * c.v);
    }
    return;
  }
  const step::BufferId logits = op[head::logits(op.kind)];
  c.chunk = ctx.buffer(logits).rows;
  c.hf = ctx.get<T>(op[head::kHf]), c.w = ctx.get<T>(op[head::kHead]), c.logits = ctx.get<T>(logits);
  c.targets = ctx.get<std::int32_t>(op[head::kTargets]), c.losses = ctx.get<float>(op[head::losses(op.kind)]);
  c.grad = train ? ctx.get<float>(op[head_loss::kGradHead]) : nullptr;
  const step::BufferId stats =
      op.ins > head::stats(op.kind).slot ? op[head::stats(op.kind)] : step::kNoBuffer;
  if (stats != step::kNoBuffer) {
    c.parts = vocabulary_parts(ctx, c.v);
    c.parts.rows = ctx.buffer(stats).rows / c.parts.count;
  }
  // Chunks are queued on one stream and share the logits buffer, so each is finished with it before the next.
  double* sum = ctx.scalar(train ? step::kLossSum : step::kEvalLossSum);
  for (std::uint64_t first = 0; first < ctx.step.rows; first += c.chunk) {
    const std::uint64_t rows = std::min(c.chunk, ctx.step.rows - first);
    queue_logits<T>(ctx, op, w, c.hf, c.w, first, rows, c.logits);
    const double* scale = train ? ctx.scalar(step::kLossScale) : nullptr;
    ctx.check_launch(
        stats == step::kNoBuffer
            ? cross_entropy<T>(ctx.stream, rows, c.v, c.logits, c.targets + first, scale, c.losses)
            : cross_entropy_of_parts<T>(ctx.stream, rows, c.v, c.logits, c.targets + first, scale, c.parts,
                                        ctx.get<float>(stats) + 3 * first, c.losses),
        op);
    ctx.check_launch(add_losses(ctx.stream, rows, c.losses, sum), op);
    if (train) head_gradients<T>(ctx, op, c, w, first, rows, c.logits);
  }
}

// The products of the head are computed twice: here for the statistics, and for the loss, when those of all
// ranks are known.
template <class T>
void queue_head_stats(OpContext& ctx, const step::Op& op) {
  const step::Buffer& w = ctx.buffer(op[head_stats::kHead]);
  const std::uint64_t chunk = ctx.buffer(op[head_stats::kLogits]).rows;
  VocabularyParts parts = vocabulary_parts(ctx, w.rows);
  parts.rows = ctx.buffer(op[head_stats::kStats]).rows / parts.count;
  const T *hf = ctx.get<T>(op[head_stats::kHf]), *weight = ctx.get<T>(op[head_stats::kHead]);
  T* logits = ctx.get<T>(op[head_stats::kLogits]);
  const std::int32_t* targets = ctx.get<std::int32_t>(op[head_stats::kTargets]);
  float* own = ctx.get<float>(op[head_stats::kStats]) + 3 * parts.own * parts.rows;
  for (std::uint64_t first = 0; first < ctx.step.rows; first += chunk) {
    const std::uint64_t rows = std::min(chunk, ctx.step.rows - first);
    queue_logits<T>(ctx, op, w, hf, weight, first, rows, logits);
    ctx.check_launch(softmax_stats<T>(ctx.stream, rows, w.rows, logits, targets + first, parts.first_token,
                                      own + 3 * first),
                     op);
  }
}

// Of a TP rank: its part of the one row of logits of a generated token.
void queue_head_logits(OpContext& ctx, const step::Op& op, std::uint64_t first, std::uint64_t rows) {
  const step::Buffer& w = ctx.buffer(op[head_logits::kHead]);
  const std::uint64_t at = (first + ctx.tensor_rank()) * w.rows;
  const auto queue = [&](auto stored) {
    using T = decltype(stored);
    queue_logits<T>(ctx, op, w, ctx.get<T>(op[head_logits::kHf]), ctx.get<T>(op[head_logits::kHead]), first,
                    rows, ctx.get<T>(op[head_logits::kLogits]) + at);
  };
  if (ctx.bf16())
    queue(Bf16{});
  else
    queue(float{});
}

std::uint64_t head_piece_rows(const step::Buffer& logits) {
  constexpr std::uint64_t kPieceBytes = 32u << 20;
  const std::uint64_t row = logits.cols * size_of(logits.dtype);
  return std::clamp<std::uint64_t>(kPieceBytes / std::max<std::uint64_t>(row, 1), 1, logits.rows);
}

template void queue_head<float>(OpContext&, const step::Op&);
template void queue_head<Bf16>(OpContext&, const step::Op&);
template void queue_head_stats<float>(OpContext&, const step::Op&);
template void queue_head_stats<Bf16>(OpContext&, const step::Op&);

}  // namespace trainhost::cuda
