// DoRA: the factors m / norm of the outputs of a product, and the product with them, forward and backward. In
// f32 also in a bf16 run; norms are summed in double. The parts of the work depend only on the shapes, so the
// bits do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/model/adapters.hpp"
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

constexpr std::uint64_t kRows = 64;      // of a task of run_dora_scale()
constexpr std::uint64_t kColumns = 256;  // of a task of run_dora_bwd()

std::uint32_t tasks_of(std::uint64_t whole, std::uint64_t each) {
  return static_cast<std::uint32_t>((whole + each - 1) / each);
}

}  // namespace

void run_dora_scale(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_scale::kMagnitude]);
  const std::uint64_t k = blocks.inputs, rank = blocks.rank;
  const auto scale = static_cast<float>(blocks.scale);
  const float *w = ctx.f32(op[dora_scale::kWeight]), *a = ctx.f32(op[dora_scale::kA]),
              *b = ctx.f32(op[dora_scale::kB]), *magnitude = ctx.f32(op[dora_scale::kMagnitude]);
  float *factor = ctx.f32(op[dora_scale::kScale]), *inverse = factor + blocks.width;
  std::fill_n(factor, blocks.width, 1.0f), std::fill_n(inverse, blocks.width, 0.0f);
  for (const AdapterBlock& block : blocks.all())
    ctx.pool.run(tasks_of(block.outputs, kRows), [&](std::uint32_t i, std::uint32_t) {
      const std::uint64_t first = i * kRows, rows = std::min(kRows, block.outputs - first);
      std::array<double, kRows> squares;
      ctx.kernels.adapted_squares(rows, k, rank, w + (block.output_column + first) * k,
                                  a + block.inner_column * k, b + (block.first_row_of_b + first) * rank,
                                  scale, squares.data());
      for (std::uint64_t r = 0; r < rows; ++r) {
        const double norm = std::sqrt(squares[r]), m = magnitude[block.first_row_of_b + first + r];
        factor[block.output_column + first + r] = norm > 0 ? static_cast<float>(m / norm) : 0.0f;
        inverse[block.output_column + first + r] = norm > 0 ? static_cast<float>(1.0 / norm) : 0.0f;
      }
    });
}

void run_dora(OpContext& ctx, const step::Op& op) {
  const std::uint64_t cols = ctx.buffer(op[dora::kUnscaled]).cols;
  const float *x = ctx.f32(op[dora::kUnscaled]), *factor = ctx.f32(op[dora::kScale]),
              *bias = ctx.f32(op[dora::kBias]), *residual = ctx.f32(op[dora::kResidual]);
  float* y = ctx.f32(op[dora::kY]);
  const bool added = op[dora::kAdded] != step::kNoBuffer;
  if (added) residual = y;
  ctx.over_rows(ctx.step.rows, cols, [&](std::uint64_t first, std::uint64_t rows) {
    ctx.kernels.dora(rows, cols, x + first * cols, factor, added ? 1.0f : 0.0f, bias,
                     residual ? residual + first * cols : nullptr, y + first * cols);
  });
}

// A task has columns of all rows, so the sums of a magnitude's gradient need no partial results.
void run_dora_bwd(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_bwd::kGradMagnitude]);
  const std::uint64_t width = blocks.width;
  const float *dy = ctx.f32(op[dora_bwd::kDy]), *factor = ctx.f32(op[dora_bwd::kScale]),
              *inverse = factor + width;
  float *x = ctx.f32(op[dora_bwd::kUnscaled]), *grad = ctx.f32(op[dora_bwd::kGradMagnitude]);
  const bool drops = op.outs > dora_bwd::kDProduct.slot, overwrite = ctx.overwrite(op);
  float* product = drops ? ctx.f32(op[dora_bwd::kDProduct]) : nullptr;
  ctx.pool.run(tasks_of(width, kColumns), [&](std::uint32_t i, std::uint32_t) {
    const std::uint64_t first = i * kColumns, last = std::min(width, first + kColumns);
    std::array<float, kColumns> sums{};
    ctx.kernels.dora_bwd(ctx.step.rows, last - first, width, dy + first, x + first, factor + first,
                         product ? product + first : nullptr, sums.data());
    for (const AdapterBlock& b : blocks.all()) {
      const std::uint64_t end = std::min(last, b.output_column + b.outputs);
      for (std::uint64_t c = std::max(first, b.output_column); c < end; ++c) {
        float& g = grad[b.first_row_of_b + c - b.output_column];
        g = (overwrite ? 0.0f : g) + sums[c - first] * inverse[c];
      }
    }
  });
}

}  // namespace trainhost::cpu
