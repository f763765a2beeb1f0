// DoRA: the factors m / norm of the outputs of a product, and the product with them, forward and backward.
// Factors are f32 also in a bf16 run; norms are summed in double. The parts of the work depend only on the
// shapes, so the bits do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/bf16.hpp"
#include "core/model/adapters.hpp"
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/dora_product.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

constexpr std::uint64_t kRows = 64;      // of a task of run_dora_scale(), or columns of an embedding
constexpr std::uint64_t kColumns = 256;  // of a task of run_dora_bwd()

std::uint32_t tasks_of(std::uint64_t whole, std::uint64_t each) {
  return static_cast<std::uint32_t>((whole + each - 1) / each);
}

/// Squared norms of the columns of the table W + scale * A B^T of an embedding, W [k, outputs] and A [k,
/// rank]. f(output, squared norm) is called for every column, on the threads. The shared workspace has B
/// transposed.
template <class T, class F>
void for_column_squares(OpContext& ctx, const AdapterBlocks& blocks, const T* w, const T* a, const T* b,
                        F&& f) {
  const std::uint64_t outputs = blocks.width, rank = blocks.rank;
  // As large as a packed block of B (lora_floats()).
  T* const factors = reinterpret_cast<T*>(ctx.shared_workspace());
  for (std::uint64_t o = 0; o < outputs; ++o)
    for (std::uint64_t q = 0; q < rank; ++q) factors[q * outputs + o] = b[o * rank + q];
  ctx.pool.run(tasks_of(outputs, kRows), [&](std::uint32_t i, std::uint32_t) {
    const std::uint64_t first = i * kRows, columns = std::min(kRows, outputs - first);
    std::array<double, kRows> squares;
    ctx.rows<T>().adapted_column_squares(blocks.inputs, columns, rank, outputs, w + first, a, factors + first,
                                         static_cast<float>(blocks.scale), squares.data());
    for (std::uint64_t c = 0; c < columns; ++c) f(first + c, squares[c]);
  });
}

/// Squared norms of the rows of W + scale * B A, of the outputs [first, first + rows) of a block.
struct AdaptedRows {
  step::BufferId w, a, b;
  const AdapterBlocks& blocks;

  /// Calls f(output of the product, row of B, squared norm) for every adapted output, on the threads.
  template <class F>
  void for_squares(OpContext& ctx, F&& f) const {
    ctx.by_storage([&](auto stored) { for_squares_of<decltype(stored)>(ctx, f); });
  }
  template <class T, class F>
  void for_squares_of(OpContext& ctx, F& f) const {
    const std::uint64_t k = blocks.inputs, rank = blocks.rank;
    const T *weight = ctx.at<T>(w), *left = ctx.at<T>(b), *right = ctx.at<T>(a);
    if (blocks.transposed)
      return for_column_squares(ctx, blocks, weight, right, left,
                                [&](std::uint64_t output, double squares) { f(output, output, squares); });
    for (const AdapterBlock& block : blocks.all())
      ctx.pool.run(tasks_of(block.outputs, kRows), [&](std::uint32_t i, std::uint32_t) {
        const std::uint64_t first = i * kRows, rows = std::min(kRows, block.outputs - first);
        std::array<double, kRows> squares;
        ctx.rows<T>().adapted_squares(
            rows, k, rank, weight + (block.output_column + first) * k, right + block.inner_column * k,
            left + (block.first_row_of_b + first) * rank, static_cast<float>(blocks.scale), squares.data());
        for (std::uint64_t r = 0; r < rows; ++r)
          f(block.output_column + first + r, block.first_row_of_b + first + r, squares[r]);
      });
  }
};

/// factor = m / norm and inverse = 1 / norm of an output.
void set_factors(double squares, double magnitude, float& factor, float& inverse) {
  const double norm = std::sqrt(squares);
  factor = norm > 0 ? static_cast<float>(magnitude / norm) : 0.0f;
  inverse = norm > 0 ? static_cast<float>(1.0 / norm) : 0.0f;
}

/// Element i of the magnitudes.
float magnitude_of(OpContext& ctx, step::BufferId magnitude, std::uint64_t i) {
  if (!ctx.stores_bf16()) return ctx.f32(magnitude)[i];
  return f32_from_bf16(ctx.at<Bf16>(magnitude)[i]);
}

template <class T>
void dora_rows(OpContext& ctx, const step::Op& op) {
  const bool added = op[dora::kAdded] != step::kNoBuffer;
  T* y = ctx.at<T>(op[dora::kY]);
  multiply_by_factors<T>(ctx, ctx.step.rows, ctx.buffer(op[dora::kUnscaled]).cols,
                         ctx.at<T>(op[dora::kUnscaled]), ctx.f32(op[dora::kScale]), added ? 1.0f : 0.0f,
                         ctx.at<T>(op[dora::kBias]), added ? y : ctx.at<T>(op[dora::kResidual]), y);
}

template <class T>
void dora_bwd_rows(OpContext& ctx, const step::Op& op) {
  const bool drops = op.outs > dora_bwd::kDProduct.slot;
  magnitude_gradient<T>(ctx, step::lora_blocks(ctx.program, op[dora_bwd::kGradMagnitude]), ctx.step.rows,
                        ctx.at<T>(op[dora_bwd::kDy]), ctx.f32(op[dora_bwd::kScale]), ctx.overwrite(op),
                        ctx.at<T>(op[dora_bwd::kUnscaled]),
                        drops ? ctx.at<T>(op[dora_bwd::kDProduct]) : nullptr,
                        ctx.f32(op[dora_bwd::kGradMagnitude]));
}

}  // namespace

template <class T>
void multiply_by_factors(OpContext& ctx, std::uint64_t m, std::uint64_t outputs, const T* x,
                         const float* factor, float less, const T* bias, const T* residual, T* y) {
  ctx.over_rows(m, outputs, [&](std::uint64_t first, std::uint64_t rows) {
    ctx.rows<T>().dora(rows, outputs, x + first * outputs, factor, less, bias,
                       residual ? residual + first * outputs : nullptr, y + first * outputs);
  });
}

// A task has columns of all rows, so the sums of a magnitude's gradient need no partial results.
template <class T>
void magnitude_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const T* dy,
                        const float* scale, bool overwrite, T* x, T* product, float* grad) {
  const std::uint64_t width = blocks.width;
  const float *factor = scale, *inverse = scale + width;
  ctx.pool.run(tasks_of(width, kColumns), [&](std::uint32_t i, std::uint32_t) {
    const std::uint64_t first = i * kColumns, last = std::min(width, first + kColumns);
    std::array<float, kColumns> sums{};
    ctx.rows<T>().dora_bwd(m, last - first, width, dy + first, x + first, factor + first,
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

#define TRAINHOST_DORA(T)                                                                                \
  template void multiply_by_factors<T>(OpContext&, std::uint64_t, std::uint64_t, const T*, const float*, \
                                       float, const T*, const T*, T*);                                   \
  template void magnitude_gradient<T>(OpContext&, const AdapterBlocks&, std::uint64_t, const T*,         \
                                      const float*, bool, T*, T*, float*);
TRAINHOST_DORA(float)
TRAINHOST_DORA(Bf16)
#undef TRAINHOST_DORA

void run_dora_scale(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_scale::kMagnitude]);
  const step::BufferId magnitude = op[dora_scale::kMagnitude];
  float *factor = ctx.f32(op[dora_scale::kScale]), *inverse = factor + blocks.width;
  std::fill_n(factor, blocks.width, 1.0f), std::fill_n(inverse, blocks.width, 0.0f);
  const AdaptedRows rows{op[dora_scale::kWeight], op[dora_scale::kA], op[dora_scale::kB], blocks};
  rows.for_squares(ctx, [&](std::uint64_t output, std::uint64_t row, double squares) {
    set_factors(squares, magnitude_of(ctx, magnitude, row), factor[output], inverse[output]);
  });
}

void run_dora_squares(OpContext& ctx, const step::Op& op) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, op[dora_squares::kB]);
  float* out = ctx.f32(op[dora_squares::kSquares]);
  const AdaptedRows rows{op[dora_squares::kWeight], op[dora_squares::kA], op[dora_squares::kB], blocks};
  rows.for_squares(ctx, [&](std::uint64_t output, std::uint64_t, double squares) {
    out[output] = static_cast<float>(squares);
  });
}

void run_dora_factors(OpContext& ctx, const step::Op& op) {
  const std::uint64_t outputs = ctx.buffer(op[dora_factors::kSquares]).cols;
  const float* squares = ctx.f32(op[dora_factors::kSquares]);
  float *factor = ctx.f32(op[dora_factors::kScale]), *inverse = factor + outputs;
  for (std::uint64_t i = 0; i < outputs; ++i)
    set_factors(squares[i], magnitude_of(ctx, op[dora_factors::kMagnitude], i), factor[i], inverse[i]);
}

void run_dora(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { dora_rows<decltype(stored)>(ctx, op); });
}

void run_dora_bwd(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) { dora_bwd_rows<decltype(stored)>(ctx, op); });
}

}  // namespace trainhost::cpu
