// B of low-rank adapters: y += scale * u B^T and its gradients. u = x A^T and the gradients of A and x are
// products like those of other weights (ops_linear.cpp). The blocks of a product read and write parts of
// rows. In f32 the small products are used with leading dimensions; the scale is multiplied into the operand
// that is packed or copied to the workspace, which is the smallest one. Where bf16 is stored, sums are
// multiplied by the scale before they are rounded or added to a gradient.
#include <algorithm>
#include <cassert>

#include "core/model/adapters.hpp"
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using namespace step::operand;

namespace {

/// What the three operations need: the blocks of the product, r and scale, and the widths of u and y.
struct Lora {
  AdapterBlocks blocks;
  std::uint64_t rank, inner, width;  // inner: columns of u
  float scale;
};

Lora lora_of(const OpContext& ctx, step::BufferId b) {
  const AdapterBlocks blocks = step::lora_blocks(ctx.program, b);
  return {blocks, blocks.rank, blocks.inner(), blocks.width, static_cast<float>(blocks.scale)};
}

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

void lora_b_f32(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b::kWeight]);
  const float *u = ctx.f32(op[lora_b::kU]), *w = ctx.f32(op[lora_b::kWeight]);
  float *y = ctx.f32(op[lora_b::kY]), *packed = ctx.shared_workspace();
  for (const AdapterBlock& b : l.blocks.all()) {
    const std::uint64_t width = ctx.kernels.panel_width(b.outputs);
    ctx.kernels.pack_transposed(b.outputs, l.rank, w + b.first_row_of_b * l.rank, l.rank, width, packed);
    multiply(packed, packed_size(b.outputs, l.rank, width), l.scale);
    product_of_rows(ctx, ctx.step.rows, b.outputs, l.rank, u + b.inner_column, l.inner, packed, width, true,
                    y + b.output_column, l.width);
  }
}

void lora_b_dx_f32(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b_dx::kWeight]);
  const float *dy = ctx.f32(op[lora_b_dx::kDy]), *w = ctx.f32(op[lora_b_dx::kWeight]);
  float *du = ctx.f32(op[lora_b_dx::kDu]), *packed = ctx.shared_workspace();
  for (const AdapterBlock& b : l.blocks.all()) {
    const std::uint64_t width = ctx.kernels.panel_width(l.rank);
    ctx.kernels.pack(l.rank, b.outputs, w + b.first_row_of_b * l.rank, l.rank, width, packed);
    multiply(packed, packed_size(l.rank, b.outputs, width), l.scale);
    product_of_rows(ctx, ctx.step.rows, l.rank, b.outputs, dy + b.output_column, l.width, packed, width,
                    false, du + b.inner_column, l.inner);
  }
}

// The rows of a block of B are divided among the threads; every task sums over all tokens, so the bits do not
// depend on the number of threads.
void lora_b_dw_f32(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b_dw::kGradWeight]);
  const std::uint64_t m = ctx.step.rows;
  const float *dy = ctx.f32(op[lora_b_dw::kDy]), *u = ctx.f32(op[lora_b_dw::kU]);
  float *grad = ctx.f32(op[lora_b_dw::kGradWeight]), *scaled = ctx.shared_workspace();
  const bool overwrite = ctx.overwrite(op);
  ctx.over_rows(m, l.inner, [&](std::uint64_t first, std::uint64_t rows) {
    std::copy_n(u + first * l.inner, rows * l.inner, scaled + first * l.inner);
    multiply(scaled + first * l.inner, rows * l.inner, l.scale);
  });
  for (const AdapterBlock& b : l.blocks.all()) {
    const auto tasks = static_cast<std::uint32_t>((b.outputs + kGradientRows - 1) / kGradientRows);
    ctx.pool.run(tasks, [&](std::uint32_t i, std::uint32_t worker) {
      const Range rows = part(b.outputs, i, tasks);
      ctx.kernels.product(rows.size(), l.rank, m, dy + b.output_column + rows.begin, l.width, true,
                          scaled + b.inner_column, l.inner, !overwrite,
                          grad + (b.first_row_of_b + rows.begin) * l.rank, l.rank,
                          ctx.worker_workspace(worker));
    });
  }
}

void lora_b_bf16(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b::kWeight]);
  const Bf16 *u = ctx.at<Bf16>(op[lora_b::kU]), *w = ctx.at<Bf16>(op[lora_b::kWeight]);
  Bf16* y = ctx.at<Bf16>(op[lora_b::kY]);
  for (const AdapterBlock& b : l.blocks.all()) {
    Bf16* const to = y + b.output_column;
    bf16_product(ctx, ctx.step.rows, b.outputs, l.rank, {u + b.inner_column, l.inner, false},
                 {w + b.first_row_of_b * l.rank, l.rank, false}, {to, l.width, nullptr, to, l.scale});
  }
}

void lora_b_dx_bf16(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b_dx::kWeight]);
  const Bf16 *dy = ctx.at<Bf16>(op[lora_b_dx::kDy]), *w = ctx.at<Bf16>(op[lora_b_dx::kWeight]);
  Bf16* du = ctx.at<Bf16>(op[lora_b_dx::kDu]);
  for (const AdapterBlock& b : l.blocks.all())
    bf16_product(ctx, ctx.step.rows, l.rank, b.outputs, {dy + b.output_column, l.width, false},
                 {w + b.first_row_of_b * l.rank, l.rank, true},
                 {du + b.inner_column, l.inner, nullptr, nullptr, l.scale});
}

// The sums stand in the workspace behind the packed operands (workspace.hpp) until they are scaled.
void lora_b_dw_bf16(OpContext& ctx, const step::Op& op) {
  const Lora l = lora_of(ctx, op[lora_b_dw::kGradWeight]);
  const Bf16 *dy = ctx.at<Bf16>(op[lora_b_dw::kDy]), *u = ctx.at<Bf16>(op[lora_b_dw::kU]);
  const bool overwrite = ctx.overwrite(op);
  for (const AdapterBlock& b : l.blocks.all()) {
    assert(max_bf16_block_floats(b.outputs, l.rank, ctx.program.run.tokens_per_micro_batch()) +
               b.outputs * l.rank <=
           shared_floats(ctx.model(), ctx.program.run, ctx.program.traits));
    float* const grad = ctx.f32(op[lora_b_dw::kGradWeight]) + b.first_row_of_b * l.rank;
    float* const sums = ctx.shared_workspace() +
                        max_bf16_block_floats(b.outputs, l.rank, ctx.program.run.tokens_per_micro_batch());
    bf16_product(ctx, b.outputs, l.rank, ctx.step.rows, {dy + b.output_column, l.width, true},
                 {u + b.inner_column, l.inner, true}, false, sums);
    ctx.over_rows(b.outputs, l.rank, [&](std::uint64_t first, std::uint64_t rows) {
      for (std::uint64_t i = first * l.rank; i < (first + rows) * l.rank; ++i)
        grad[i] = (overwrite ? 0.0f : grad[i]) + l.scale * sums[i];
    });
  }
}

}  // namespace

void run_lora_b(OpContext& ctx, const step::Op& op) {
  ctx.stores_bf16() ? lora_b_bf16(ctx, op) : lora_b_f32(ctx, op);
}
void run_lora_b_dx(OpContext& ctx, const step::Op& op) {
  ctx.stores_bf16() ? lora_b_dx_bf16(ctx, op) : lora_b_dx_f32(ctx, op);
}
void run_lora_b_dw(OpContext& ctx, const step::Op& op) {
  ctx.stores_bf16() ? lora_b_dw_bf16(ctx, op) : lora_b_dw_f32(ctx, op);
}

}  // namespace trainhost::cpu
