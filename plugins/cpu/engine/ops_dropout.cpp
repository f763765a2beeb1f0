// Dropout of the inputs of adapters (core/step/dropout.hpp): forward, and its gradient, which applies the
// same mask.
#include "core/step/dropout.hpp"

#include <algorithm>

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
  const AdapterGroup group = group_of_product(ctx.model(), step::dropout_product(ctx.program, op));
  return has_divided_inputs(group) ? ctx.tensor_rank() * cols : 0;
}

constexpr std::uint64_t kChunk = 1024;  // elements that are widened at a time

/// Elements of a row in f32: themselves, or widened into `to`.
const float* widened(OpContext&, std::uint64_t, const float* from, float*) { return from; }
const float* widened(OpContext& ctx, std::uint64_t n, const Bf16* from, float* to) {
  ctx.kernels.widen(n, from, to);
  return to;
}
/// to[n] = values[n], rounded if it is stored in bf16.
void put(OpContext&, std::uint64_t n, const float* values, float* to) { std::copy_n(values, n, to); }
void put(OpContext& ctx, std::uint64_t n, const float* values, Bf16* to) {
  ctx.kernels.narrow(n, values, to);
}

/// to[i] = f(factor of the mask, from[i], to[i]) for all elements of the micro-batch.
template <class F>
void over_mask(OpContext& ctx, const step::Op& op, step::BufferId from, step::BufferId to, F&& f) {
  const std::uint64_t cols = ctx.buffer(to).cols, begin = first_column(ctx, op, cols);
  const step::DropoutMask mask = mask_of(ctx, op);
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T* x = ctx.at<T>(from);
    T* y = ctx.at<T>(to);
    ctx.over_rows(ctx.step.rows, cols, [&](std::uint64_t first, std::uint64_t rows) {
      float in[kChunk], old[kChunk], out[kChunk];
      for (std::uint64_t r = first; r < first + rows; ++r)
        for (std::uint64_t c = 0; c < cols; c += kChunk) {
          const std::uint64_t n = std::min(kChunk, cols - c), at = r * cols + c;
          const float *a = widened(ctx, n, x + at, in), *b = widened(ctx, n, y + at, old);
          mask.for_row(r, begin + c, n,
                       [&](std::uint64_t i, float factor) { out[i] = f(factor, a[i], b[i]); });
          put(ctx, n, out, y + at);
        }
    });
  });
}

}  // namespace

void run_dropout(OpContext& ctx, const step::Op& op) {
  over_mask(ctx, op, op[dropout::kX], op[dropout::kY],
            [](float factor, float x, float) { return factor == 0.0f ? 0.0f : factor * x; });
}

void run_dropout_add(OpContext& ctx, const step::Op& op) {
  over_mask(ctx, op, op[dropout_add::kDy], op[dropout_add::kDx],
            [](float factor, float dy, float dx) { return factor == 0.0f ? dx : dx + factor * dy; });
}

}  // namespace trainhost::cpu
