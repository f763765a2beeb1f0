// Frozen weights in NF4 as matrices: the blocks of each matrix are divided among the threads. Scales are
// computed by core/model/nf4.cpp, which is compiled without contraction to FMA, so the bits do not depend on
// the instruction set.
#include <algorithm>
#include <array>

#include "core/model/nf4.hpp"
#include "core/step/operands.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

using namespace step::operand;

void run_dequantize(OpContext& ctx, const step::Op& op) {
  constexpr std::uint64_t kBlocks = 256;  // of a task: 64 KiB of the matrix
  const step::QuantizedParam param = step::quantized_param(ctx.program, op[dequantize::kQuantized]);
  const auto* bytes = static_cast<const std::byte*>(ctx.storage.at(op[dequantize::kQuantized]));
  assert(param.count > 0);
  static_assert(kBlocks * nf4::kBlock <= kProductWork, "a task that is rounded fits the thread's workspace");
  for (const step::QuantizedMatrix& m : param.all()) {
    const nf4::Layout& l = m.layout;
    const std::byte* from = bytes + m.first_byte;
    ctx.pool.run(static_cast<std::uint32_t>((l.blocks + kBlocks - 1) / kBlocks),
                 [&](std::uint32_t i, std::uint32_t worker) {
                   std::array<float, kBlocks> scales;
                   const std::uint64_t first = i * kBlocks, blocks = std::min(kBlocks, l.blocks - first),
                                       element = first * nf4::kBlock;
                   nf4::read_scales(l, from, first, {scales.data(), blocks});
                   const std::uint64_t count = std::min(blocks * nf4::kBlock, l.elements - element);
                   const auto to = [&](float* values) {
                     ctx.kernels.dequantize_nf4(
                         count, reinterpret_cast<const unsigned char*>(from + l.codes + element / 2),
                         nf4::kValues.data(), scales.data(), values);
                   };
                   const std::uint64_t at = m.first_element + element;
                   if (!ctx.stores_bf16()) return to(ctx.f32(op[dequantize::kMatrix]) + at);
                   float* const values = ctx.worker_workspace(worker);
                   to(values);
                   ctx.kernels.narrow(count, values, ctx.at<Bf16>(op[dequantize::kMatrix]) + at);
                 });
  }
}

}  // namespace trainhost::cpu
