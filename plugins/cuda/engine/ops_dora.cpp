// Maps the operations of DoRA to kernels: the factors of the outputs of a product, and the product with them,
// forward and backward.
#include "core/model/adapters.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/dora_kernels.hpp"

namespace trainhost::cuda {
namespace {

using step::OpKind;
using namespace step::operand;

std::uint32_t u32(std::uint64_t x) { return static_cast<std::uint32_t>(x); }

/// One adapted matrix of a product, whose matrices are stacked in w.
template <class T>
AdaptedMatrix<T> matrix_of(OpContext& ctx, const AdapterBlocks& blocks, const AdapterBlock& block,
                           step::BufferId w, step::BufferId a, step::BufferId b) {
  return {ctx.get<T>(w) + block.output_column * blocks.inputs,
          ctx.get<T>(a) + block.inner_column * blocks.inputs,
          ctx.get<T>(b) + block.first_row_of_b * blocks.rank,
          u32(block.outputs),
          u32(blocks.inputs),
          u32(blocks.rank),
          static_cast<float>(blocks.scale),
          blocks.transposed};
}

template <class T>
void queue_scale(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_scale::kMagnitude]);
  float *factor = ctx.get<float>(op[dora_scale::kScale]), *inverse = factor + blocks.width;
  if (blocks.rows_of_b < blocks.width)
    ctx.check_launch(dora_no_factors(ctx.stream, u32(blocks.width), factor, inverse), op);
  for (const AdapterBlock& block : blocks.all())
    ctx.check_launch(cuda::dora_scale<T>(ctx.stream,
                                         matrix_of<T>(ctx, blocks, block, op[dora_scale::kWeight],
                                                      op[dora_scale::kA], op[dora_scale::kB]),
                                         ctx.get<T>(op[dora_scale::kMagnitude]) + block.first_row_of_b,
                                         factor + block.output_column, inverse + block.output_column),
                     op);
}

template <class T>
void queue_squares(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_squares::kB]);
  for (const AdapterBlock& block : blocks.all())
    ctx.check_launch(cuda::dora_squares<T>(ctx.stream,
                                           matrix_of<T>(ctx, blocks, block, op[dora_squares::kWeight],
                                                        op[dora_squares::kA], op[dora_squares::kB]),
                                           ctx.get<float>(op[dora_squares::kSquares]) + block.output_column),
                     op);
}

template <class T>
void queue_factors(OpContext& ctx, const step::Op& op) {
  const std::uint64_t outputs = ctx.buffer(op[dora_factors::kSquares]).cols;
  float* factor = ctx.get<float>(op[dora_factors::kScale]);
  ctx.check_launch(cuda::dora_factors<T>(ctx.stream, u32(outputs), ctx.get<float>(op[dora_factors::kSquares]),
                                         ctx.get<T>(op[dora_factors::kMagnitude]), factor, factor + outputs),
                   op);
}

template <class T>
void queue_product(OpContext& ctx, const step::Op& op) {
  const bool added = op[dora::kAdded] != step::kNoBuffer;
  T* y = ctx.get<T>(op[dora::kY]);
  ctx.check_launch(
      cuda::dora<T>(ctx.stream, ctx.step.rows, u32(ctx.buffer(op[dora::kUnscaled]).cols),
                    ctx.get<T>(op[dora::kUnscaled]), ctx.get<float>(op[dora::kScale]), added ? 1.0f : 0.0f,
                    ctx.get<T>(op[dora::kBias]), added ? y : ctx.get<T>(op[dora::kResidual]), y),
      op);
}

template <class T>
void queue_gradient(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_bwd::kGradMagnitude]);
  DoraBlocks of_grad{};
  for (const AdapterBlock& b : blocks.all())
    of_grad.block[of_grad.count++] = {u32(b.output_column), u32(b.outputs), u32(b.first_row_of_b)};
  const float* factor = ctx.get<float>(op[dora_bwd::kScale]);
  // With dropout the product of the dropped input has a gradient of its own.
  T* product = op.outs > dora_bwd::kDProduct.slot ? ctx.get<T>(op[dora_bwd::kDProduct]) : nullptr;
  ctx.check_launch(
      cuda::dora_bwd<T>(ctx.stream, ctx.step.rows, u32(blocks.width), of_grad, ctx.get<T>(op[dora_bwd::kDy]),
                        factor, factor + blocks.width, ctx.overwrite(op), ctx.get<T>(op[dora_bwd::kUnscaled]),
                        product, ctx.get<float>(op[dora_bwd::kGradMagnitude])),
      op);
}

}  // namespace

template <class T>
void queue_dora(OpContext& ctx, const step::Op& op) {
  switch (op.kind) {
    case OpKind::kDoraScale:
      return queue_scale<T>(ctx, op);
    case OpKind::kDoraSquares:
      return queue_squares<T>(ctx, op);
    case OpKind::kDoraFactors:
      return queue_factors<T>(ctx, op);
    case OpKind::kDoraBwd:
      return queue_gradient<T>(ctx, op);
    default:
      return queue_product<T>(ctx, op);
  }
}

template void queue_dora<float>(OpContext&, const step::Op&);
template void queue_dora<Bf16>(OpContext&, const step::Op&);

}  // namespace trainhost::cuda
