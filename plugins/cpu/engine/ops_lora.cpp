// B of low-rank adapters: y += scale * u B^T and its gradients. u = x A^T and the gradients of A and x are
// products like those of other weights (ops_linear.cpp). The blocks of a product read and write parts of
// rows. In f32 the small products are used with leading dimensions; the scale is multiplied into the operand
// that is packed or copied to the workspace, which is the smallest one. Where bf16 is stored, sums are
// multiplied by the scale before they are rounded or added to a gradient.
#include <algorithm>
#include <cassert>

#include "core/step/operands.hpp"
#include "plugins/cpu/engine/lora_product.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

void multiply(float* values, std::uint64_t count, float factor) {
  for (std::uint64_t i = 0; i < count; ++i) values[i] *= factor;
}

/// Floats of a right operand of n columns and k rows when it is packed.
std::uint64_t packed_size(std::uint64_t n, std::uint64_t k, std::uint64_t width) {
  return (n + width - 1) / width * width * k;
}

/// c[m,n] (= or +=) a[m,k] times the packed operand, rows divided among the threads.
void product_of_rows(OpContext& ctx, std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a,
                     std::uint64_t lda, const float* packed, std::uint64_t width, bool add, float* c,
                     std::uint64_t ldc) {
  const Grid g = small_grid(m, n);
  ctx.pool.run(g.tiles(), [&](std::uint32_t i, std::uint32_t) {
    const Range rows = g.row_range(i, m);
    ctx.kernels.product_packed(rows.size(), n, k, a + rows.begin * lda, lda, packed, k, width, add,
                               c + rows.begin * ldc, ldc);
  });
}

}  // namespace

void add_lora_b(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* u, const float* w,
                float* y) {
  float* packed = ctx.shared_workspace();
  for (const AdapterBlock& b : blocks.all()) {
    const std::uint64_t width = ctx.kernels.panel_width(b.outputs);
    ctx.kernels.pack_transposed(b.outputs, blocks.rank, w + b.first_row_of_b * blocks.rank, blocks.rank,
                                width, packed);
    multiply(packed, packed_size(b.outputs, blocks.rank, width), static_cast<float>(blocks.scale));
    product_of_rows(ctx, m, b.outputs, blocks.rank, u + b.inner_column, blocks.inner(), packed, width, true,
                    y + b.output_column, blocks.width);
  }
}

void lora_b_input_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* dy,
                           const float* w, float* du) {
  float* packed = ctx.shared_workspace();
  for (const AdapterBlock& b : blocks.all()) {
    const std::uint64_t width = ctx.kernels.panel_width(blocks.rank);
    ctx.kernels.pack(blocks.rank, b.outputs, w + b.first_row_of_b * blocks.rank, blocks.rank, width, packed);
    multiply(packed, packed_size(blocks.rank, b.outputs, width), static_cast<float>(blocks.scale));
    product_of_rows(ctx, m, blocks.rank, b.outputs, dy + b.output_column, blocks.width, packed, width, false,
                    du + b.inner_column, blocks.inner());
  }
}

// The rows of a block of B are divided among the threads; every task sums over all tokens, so the bits do not
// depend on the number of threads.
void lora_b_weight_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* dy,
                            const float* u, bool overwrite, float* grad) {
  const std::uint64_t inner = blocks.inner();
  float* scaled = ctx.shared_workspace();
  ctx.over_rows(m, inner, [&](std::uint64_t first, std::uint64_t rows) {
    std::copy_n(u + first * inner, rows * inner, scaled + first * inner);
    multiply(scaled + first * inner, rows * inner, static_cast<float>(blocks.scale));
  });
  for (const AdapterBlock& b : blocks.all()) {
    const auto tasks = static_cast<std::uint32_t>((b.outputs + kGradientRows - 1) / kGradientRows);
    ctx.pool.run(tasks, [&](std::uint32_t i, std::uint32_t worker) {
      const Range rows = part(b.outputs, i, tasks);
      ctx.kernels.product(rows.size(), blocks.rank, m, dy + b.output_column + rows.begin, blocks.width, true,
                          scaled + b.inner_column, inner, !overwrite,
                          grad + (b.first_row_of_b + rows.begin) * blocks.rank, blocks.rank,
                          ctx.worker_workspace(worker));
    });
  }
}

void add_lora_b(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* u, const Bf16* w,
                Bf16* y) {
  for (const AdapterBlock& b : blocks.all()) {
    Bf16* const to = y + b.output_column;
    bf16_product(ctx, m, b.outputs, blocks.rank, {u + b.inner_column, blocks.inner(), false},
                 {w + b.first_row_of_b * blocks.rank, blocks.rank, false},
                 {to, blocks.width, nullptr, to, static_cast<float>(blocks.scale)});
  }
}

void lora_b_input_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* dy,
                           const Bf16* w, Bf16* du) {
  for (const AdapterBlock& b : blocks.all())
    bf16_product(ctx, m, blocks.rank, b.outputs, {dy + b.output_column, blocks.width, false},
                 {w + b.first_row_of_b * blocks.rank, blocks.rank, true},
                 {du + b.inner_column, blocks.inner(), nullptr, nullptr, static_cast<float>(blocks.scale)});
}

// The sums stand in the workspace behind the packed operands (workspace.hpp) until they are scaled.
void lora_b_weight_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* dy,
                            const Bf16* u, bool overwrite, float* grad_b) {
  const std::uint64_t rank = blocks.rank, tokens = ctx.program.run.tokens_per_micro_batch();
  const float scale = static_cast<float>(blocks.scale);
  for (const AdapterBlock& b : blocks.all()) {
    const std::uint64_t packed = max_bf16_block_floats(b.outputs, rank, tokens);
    assert(m <= tokens &&
           packed + b.outputs * rank <= shared_floats(ctx.model(), ctx.program.run, ctx.program.traits));
    float* const grad = grad_b + b.first_row_of_b * rank;
    float* const sums = ctx.shared_workspace() + packed;
    bf16_product(ctx, b.outputs, rank, m, {dy + b.output_column, blocks.width, true},
                 {u + b.inner_column, blocks.inner(), true}, false, sums);
    ctx.over_rows(b.outputs, rank, [&](std::uint64_t first, std::uint64_t rows) {
      for (std::uint64_t i = first * rank; i < (first + rows) * rank; ++i)
        grad[i] = (overwrite ? 0.0f : grad[i]) + scale * sums[i];
    });
  }
}

void run_transpose(OpContext& ctx, const step::Op& op) {
  const step::Buffer& matrix = ctx.buffer(op[transpose::kMatrix]);
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    const T* from = ctx.at<T>(op[transpose::kMatrix]);
    T* to = ctx.at<T>(op[transpose::kY]);
    ctx.over_rows(matrix.cols, matrix.rows, [&](std::uint64_t first, std::uint64_t rows) {
      for (std::uint64_t c = first; c < first + rows; ++c)
        for (std::uint64_t r = 0; r < matrix.rows; ++r) to[c * matrix.rows + r] = from[r * matrix.cols + c];
    });
  });
}

void run_lora_b(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    add_lora_b(ctx, step::lora_blocks(ctx.program, op[lora_b::kWeight]), ctx.step.rows,
               static_cast<const T*>(ctx.at<T>(op[lora_b::kU])),
               static_cast<const T*>(ctx.at<T>(op[lora_b::kWeight])), ctx.at<T>(op[lora_b::kY]));
  });
}

void run_lora_b_dx(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    lora_b_input_gradient(ctx, step::lora_blocks(ctx.program, op[lora_b_dx::kWeight]), ctx.step.rows,
                          static_cast<const T*>(ctx.at<T>(op[lora_b_dx::kDy])),
                          static_cast<const T*>(ctx.at<T>(op[lora_b_dx::kWeight])),
                          ctx.at<T>(op[lora_b_dx::kDu]));
  });
}

void run_lora_b_dw(OpContext& ctx, const step::Op& op) {
  ctx.by_storage([&](auto stored) {
    using T = decltype(stored);
    lora_b_weight_gradient(ctx, step::lora_blocks(ctx.program, op[lora_b_dw::kGradWeight]), ctx.step.rows,
                           static_cast<const T*>(ctx.at<T>(op[lora_b_dw::kDy])),
                           static_cast<const T*>(ctx.at<T>(op[lora_b_dw::kU])), ctx.overwrite(op),
                           ctx.f32(op[lora_b_dw::kGradWeight]));
  });
}

}  // namespace trainhost::cpu
