// Maps the operations of adapters that are no products to kernels: dropout of the input, and frozen weights
// in NF4 as matrices. Products with A and B: ops_products.cpp.
#include "core/model/adapters.hpp"
#include "core/step/dropout.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "plugins/cuda/kernels/adapter_kernels.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

template <class T>
void queue_dropout(OpContext& ctx, const step::Op& op) {
  const RunSpec& run = ctx.program.run;
  const bool forward = op.kind == OpKind::kDropout;
  const double rate = run.memory.lora_dropout;
  const auto n = static_cast<std::uint32_t>(ctx.buffer(op.in[0]).cols);
  // Where TP ranks divide the inputs, this rank has the columns of the mask of one process from here on.
  const std::uint32_t product = step::dropout_product(ctx.program, op),
                      first_column = has_divided_inputs(group_of_product(ctx.program.model, product))
                                         ? ctx.tensor_rank() * n
                                         : 0;
  const DropoutMask mask{
      static_cast<std::uint32_t>(run.seed),
      static_cast<std::uint32_t>(run.seed >> 32),
      product,
      first_column,
      step::dropped_below(rate),
      step::kept_scale(rate),
      ctx.get<std::int32_t>(op[forward ? dropout::kMicroBatch : dropout_add::kMicroBatch])};
  if (forward)
    ctx.check_launch(cuda::dropout<T>(ctx.stream, ctx.step.rows, n, mask, ctx.get<T>(op[dropout::kX]),
                                      ctx.get<T>(op[dropout::kY])),
                     op);
  else
    ctx.check_launch(cuda::dropout_add<T>(ctx.stream, ctx.step.rows, n, mask,
                                          ctx.get<T>(op[dropout_add::kDy]), ctx.get<T>(op[dropout_add::kDx])),
                     op);
}

template <class T>
void queue_dequantize(OpContext& ctx, const step::Op& op) {
  const step::QuantizedParam param = step::quantized_param(ctx.program, op[dequantize::kQuantized]);
  const auto* bytes = ctx.get<const std::byte>(op[dequantize::kQuantized]);
  T* matrix = ctx.get<T>(op[dequantize::kMatrix]);
  assert(param.count > 0);
  for (const step::QuantizedMatrix& m : param.all())
    ctx.check_launch(dequantize_nf4<T>(ctx.stream, m.layout, bytes + m.first_byte, matrix + m.first_element),
                     op);
}

template <class T>
void queue_transpose(OpContext& ctx, const step::Op& op) {
  const step::Buffer& matrix = ctx.buffer(op[transpose::kMatrix]);
  ctx.check_launch(cuda::transpose<T>(ctx.stream, static_cast<std::uint32_t>(matrix.rows),
                                      static_cast<std::uint32_t>(matrix.cols),
                                      ctx.get<T>(op[transpose::kMatrix]), ctx.get<T>(op[transpose::kY])),
                   op);
}

template void queue_transpose<float>(OpContext&, const step::Op&);
template void queue_transpose<Bf16>(OpContext&, const step::Op&);
template void queue_dropout<float>(OpContext&, const step::Op&);
template void queue_dropout<Bf16>(OpContext&, const step::Op&);
template void queue_dequantize<float>(OpContext&, const step::Op&);
template void queue_dequantize<Bf16>(OpContext&, const step::Op&);

}  // namespace trainhost::cuda
