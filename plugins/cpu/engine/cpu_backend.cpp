// Dispatches operations to run_*() by kind, and measures the peak FLOP/s. Knows neither their order nor the
// arena: core/executor. The operations: ops_*.cpp. See cpu_backend.hpp.
#include "plugins/cpu/engine/cpu_backend.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/engine/openblas.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

namespace trainhost::cpu {

using step::OpKind;

// Operations of the update: single ones are too short to occupy all threads (ops_optimizer.cpp).
bool run_together(OpKind kind) {
  return kind == OpKind::kGradSquares || kind == OpKind::kAddGrad || kind == OpKind::kAdamW ||
         kind == OpKind::kSgd || kind == OpKind::kSgdMomentum || kind == OpKind::kLion ||
         kind == OpKind::kAdamW8bit;
}

void run_ops(OpContext& ctx, std::span<const step::Op> ops) {
  const step::Op& op = ops.front();
  // No default: the compiler reports an operation that is missing here.
  switch (op.kind) {
    case OpKind::kEmbed:
      return run_embed(ctx, op);
    case OpKind::kRmsNorm:
      return run_rms_norm(ctx, op);
    case OpKind::kLinear:
      return run_linear(ctx, op);
    case OpKind::kQkNorm:
      return run_qk_norm(ctx, op);
    case OpKind::kRope:
      return run_rope(ctx, op, 1.0f);
    case OpKind::kAttention:
      return run_attention(ctx, op);
    case OpKind::kSwiGlu:
      return run_swiglu(ctx, op);
    case OpKind::kHeadLoss:
      return run_head(ctx, op);
    case OpKind::kHeadEval:
      return run_head(ctx, op);
    case OpKind::kHeadStats:
      return run_head_stats(ctx, op);
    case OpKind::kHeadLogits:
      return run_head_logits(ctx, op);
    case OpKind::kRmsNormBwd:
      return run_rms_norm_bwd(ctx, op);
    case OpKind::kLinearDx:
      return run_linear_dx(ctx, op);
    case OpKind::kLinearDw:
      return run_linear_dw(ctx, op);
    case OpKind::kSwiGluBwd:
      return run_swiglu_bwd(ctx, op);
    case OpKind::kAttentionBwd:
      return run_attention_bwd(ctx, op);
    case OpKind::kRopeBwd:
      // The gradient of a rotation is the rotation by the negative angle.
      return run_rope(ctx, op, -1.0f);
    case OpKind::kQkNormBwd:
      return run_qk_norm_bwd(ctx, op);
    case OpKind::kEmbedBwd:
      return run_embed_bwd(ctx, op);
    case OpKind::kGradSquares:
      return run_grad_squares(ctx, ops);
    case OpKind::kAdamW:
      return run_optimizer(ctx, ops);
    case OpKind::kSgd:
      return run_optimizer(ctx, ops);
    case OpKind::kSgdMomentum:
      return run_optimizer(ctx, ops);
    case OpKind::kLion:
      return run_optimizer(ctx, ops);
    case OpKind::kAdamW8bit:
      return run_adamw_8bit(ctx, ops);
    case OpKind::kAdafactor:
      return run_adafactor(ctx, op);
    case OpKind::kMuon:
      return run_muon(ctx, op);
    case OpKind::kAttentionStep:
      return run_attention_step(ctx, op);
    case OpKind::kLoraB:
      return run_lora_b(ctx, op);
    case OpKind::kLoraBDx:
      return run_lora_b_dx(ctx, op);
    case OpKind::kLoraBDw:
      return run_lora_b_dw(ctx, op);
    case OpKind::kLinearDxAdd:
      return run_linear_dx_add(ctx, op);
    case OpKind::kDropout:
      return run_dropout(ctx, op);
    case OpKind::kDropoutAdd:
      return run_dropout_add(ctx, op);
    case OpKind::kDequantize:
      return run_dequantize(ctx, op);
    case OpKind::kDoraScale:
      return run_dora_scale(ctx, op);
    case OpKind::kDora:
      return run_dora(ctx, op);
    case OpKind::kDoraBwd:
      return run_dora_bwd(ctx, op);
    case OpKind::kAddGrad:
      return run_add_grad(ctx, ops);
    // Only in programs that use more than one memory tier; traits_of() selects a single tier.
    case OpKind::kCopy:
    case OpKind::kHold:
    case OpKind::kCrossEntropy:
    case OpKind::kHeadBwd:
    // The executor runs collective operations.
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter:
    case OpKind::kAllGather:
    case OpKind::kWait:
    case OpKind::kSumScalars:
    case OpKind::kCount_:
      break;
  }
  throw std::logic_error("operation for more than one memory tier in the cpu trainer");
}

CpuBackend::CpuBackend(const step::Program& program, Storage& storage, const Kernels& kernels,
                       const Bf16Kernels* bf16)
    : pool_(program.traits.threads),
      ctx_{program,
           storage,
           pool_,
           kernels,
           {},
           // Allocated once: a step allocates nothing.
           std::vector<double>(partials_needed(program)),
           program.find("vendor_workspace"),
           program.run.compute == DType::kBF16 ? bf16 : nullptr} {
  // Now and not in the first product: a mapping that fails would be repeated for ever (README.md, "Memory").
  reserve_openblas_buffers(pool_.threads());
}

void CpuBackend::run(std::span<const step::Op> ops, const StepState& step) {
  // The mode of the calling thread is restored at the end of the call; workers set theirs when they start.
  FlushDenormals mode;
  ctx_.step = step;
  run_ops(ctx_, ops);
}

void CpuBackend::for_each(std::uint32_t count, const std::function<void(std::uint32_t)>& piece) {
  pool_.run(count, [&](std::uint32_t i, std::uint32_t) { piece(i); });
}

std::string CpuBackend::kernel_set() const {
  return std::string(kId) + " " + kVersion + " " + ctx_.kernels.name +
         (ctx_.bf16 ? std::string(" bf16:") + ctx_.bf16->name : "") + ", " + openblas_version();
}

// Runs products of 256 x 512 x 512 on every thread for about 50 ms, in the arithmetic of the run: small
// enough for the caches, large enough for the library's best rate. The operands are allocated here and freed;
// they are not part of the plan.
double CpuBackend::peak_flops() {
  using Clock = std::chrono::steady_clock;
  const auto ns_since = [](Clock::time_point t) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
  };
  const Bf16Kernels* bf16 = ctx_.bf16;
  constexpr std::uint64_t kM = 256, kN = 512, kK = 512;
  static_assert(kM % kBf16Block == 0 && kN % kBf16Block == 0, "whole tiles, so no spare tile is needed");
  // Operands of each thread are its own, so that no thread reads what another core has in its cache.
  const std::uint32_t threads = pool_.threads();
  std::vector<float> a(threads * kM * kK, 0.5f), b(threads * kN * kK, 0.25f), c(threads * kM * kN);
  std::vector<std::uint64_t> done(threads * 8);  // products per thread, one cache line each
  FlushDenormals mode;
  const auto start = Clock::now();
  pool_.run(threads, [&](std::uint32_t i, std::uint32_t) {
    // At least one product per thread, however long it takes.
    do {
      float *left = a.data() + i * kM * kK, *right = b.data() + i * kN * kK, *out = c.data() + i * kM * kN;
      if (bf16)  // packed operands; bf16 needs half of the allocated bytes
        bf16->multiply(kM, kN, kK / kBf16Block, reinterpret_cast<std::uint16_t*>(left),
                       reinterpret_cast<std::uint16_t*>(right), false, out, kN, nullptr);
      else
        blas_tile(Right::kTransposed, {0, kM}, {0, kN}, kN, kK, left, right, false, out);
      ++done[i * 8];
    } while (ns_since(start) < 50'000'000);
  });
  std::uint64_t products = 0;
  for (std::uint32_t i = 0; i < threads; ++i) products += done[i * 8];
  return static_cast<double>(products) * 2.0 * kM * kN * kK / (static_cast<double>(ns_since(start)) * 1e-9);
}

}  // namespace trainhost::cpu
