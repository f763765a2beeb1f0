// Dropout of the inputs of adapters (core/step/dropout.hpp): forward, and its gradient, which applies the
// same mask.
#include "core/step/dropout.hpp"

#include "core/model/adapters.hpp"
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

step::DropoutMask mask_of(const OpContext& ctx, const step::Op& op) {
  const RunSpec& run = ctx.program.run;
  // The number of the micro-batch among those of all ranks, so that masks do not depend on the ranks.
  const Parallelism& ranks = run.parallel;
  const std::uint64_t first = ranks.data == 1 ? 0 : std::uint64_t{ranks.data_rank - 1} * run.accumulate;
  return {run.seed, run.memory.lora_dropout, step::dropout_product(ctx.program, op),
          ctx.step.step_index * run.accumulate * ranks.data + first + ctx.step.micro};
}

/// The column of the mask of one process that is this rank's first: not 0 where TP ranks divide the inputs.
std::uint64_t first_column(const OpContext& ctx, const step::Op& op, std::uint64_t cols) {
  const auto group = static_cast<AdapterGroup>(step::dropout_product(ctx.program, op) % kAdapterGroups);
  return has_divided_inputs(group) ? ctx.tensor_rank() * cols : 0;
}

}  // namespace

void run_dropout(OpContext& ctx, const step::Op& op) {
  const std::uint64_t cols = ctx.buffer(op[dropout::kX]).cols;
  const step::DropoutMask mask = mask_of(ctx, op);
  const std::uint64_t begin = first_column(ctx, op, cols);
  const float* x = ctx.f32(op[dropout::kX]);
  float* y = ctx.f32(op[dropout::kY]);
  ctx.over_rows(ctx.step.rows, cols, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r)
      mask.for_row(r, begin, cols, [&](std::uint64_t c, float factor) {
        y[r * cols + c] = factor == 0.0f ? 0.0f : factor * x[r * cols + c];
      });
  });
}

void run_dropout_add(OpContext& ctx, const step::Op& op) {
  const std::uint64_t cols = ctx.buffer(op[dropout_add::kDx]).cols;
  const step::DropoutMask mask = mask_of(ctx, op);
  const std::uint64_t begin = first_column(ctx, op, cols);
  const float* dy = ctx.f32(op[dropout_add::kDy]);
  float* dx = ctx.f32(op[dropout_add::kDx]);
  ctx.over_rows(ctx.step.rows, cols, [&](std::uint64_t first, std::uint64_t rows) {
    for (std::uint64_t r = first; r < first + rows; ++r)
      mask.for_row(r, begin, cols, [&](std::uint64_t c, float factor) {
        if (factor != 0.0f) dx[r * cols + c] += factor * dy[r * cols + c];
      });
  });
}

}  // namespace trainhost::cpu
