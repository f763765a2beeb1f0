// Dispatches operations to run_*() by kind, and measures the peak FLOP/s. Knows neither their order nor the
// arena: core/executor. The operations: ops_*.cpp. See cpu_backend.hpp.
#include "plugins/cpu/engine/cpu_backend.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/process/cpu_topology.hpp"
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
    case OpKind::kTakeRows:
      return run_take_rows(ctx, op);
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
    case OpKind::kAdafactorSums:
      return run_adafactor_sums(ctx, op);
    case OpKind::kAdafactorChange:
      return run_adafactor_change(ctx, op);
    case OpKind::kMuon:
      return run_muon(ctx, op);
    case OpKind::kMuonDirection:
      return run_muon_direction(ctx, op);
    case OpKind::kMuonOrthogonalise:
      return run_muon_orthogonalise(ctx, op);
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
    case OpKind::kDoraSquares:
      return run_dora_squares(ctx, op);
    case OpKind::kDoraFactors:
      return run_dora_factors(ctx, op);
    case OpKind::kTranspose:
      return run_transpose(ctx, op);
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
    : pool_(program.traits.threads, worker_cpus(program.traits.threads)),
      ctx_{program,
           storage,
           pool_,
           kernels,
           {},
           // Allocated once: a step allocates nothing.
           std::vector<double>(partials_needed(program)),
           program.find("vendor_workspace"),
           program.run.compute == DType::kBF16 ? bf16 : nullptr,
           select_own_products(kernels)} {
  // Now and not in the first product: a mapping that fails would be repeated for ever (README.md, "Memory").
  reserve_openblas_buffers(pool_.threads());
  // A rank that has no element of any gradient computes no squares: its part of every norm is 0.
  const bool computes_squares = std::any_of(program.ops.begin(), program.ops.end(), [](const step::Op& op) {
    return op.kind == OpKind::kGradSquares;
  });
  if (!computes_squares) std::fill(ctx_.layer_squares.begin(), ctx_.layer_squares.end(), 0.0);
}

void CpuBackend::divide_state() {
  for (std::size_t b = 0; b < ctx_.program.buffers.size(); ++b) {
    const step::Buffer& buffer = ctx_.program.buffers[b];
    if (buffer.persistent && buffer.storage == step::Storage::kArena)
      divide_pages(pool_, ctx_.storage.at(static_cast<step::BufferId>(b)), buffer.bytes());
  }
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

// The bits of large products depend on who computes them, so that is part of the name.
std::string CpuBackend::kernel_set() const {
  return std::string(kId) + " " + kVersion + " " + ctx_.kernels.name +
         (ctx_.bf16 ? std::string(ctx_.stores_bf16() ? " stored-bf16:" : " bf16:") + ctx_.bf16->name : "") +
         (ctx_.own_products ? ", own products" : ", products of OpenBLAS") + ", " + openblas_version();
}

// The peak of the hardware: a loop of FMAs on registers on every thread, three times 4 ms, of which the best
// counts. bf16 instructions have another peak: packed tiles that stay in the caches, 50 ms.
double CpuBackend::peak_flops() {
  FlushDenormals mode;
  if (ctx_.bf16 && ctx_.bf16->native) return bf16_flops(50'000'000);
  double best = 0;
  for (int i = 0; i < 3; ++i) best = std::max(best, fma_flops(4'000'000));
  return best;
}

namespace {
using Clock = std::chrono::steady_clock;
std::uint64_t ns_since(Clock::time_point t) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count());
}
}  // namespace

// FLOP/s of all threads together, each for `ns`.
template <class Work>
double CpuBackend::rate_of(std::uint64_t ns, Work&& work) {
  const std::uint32_t threads = pool_.threads();
  std::vector<double> rates(threads * 8);  // one cache line each
  pool_.run(threads, [&](std::uint32_t i, std::uint32_t) {
    const auto start = Clock::now();
    double flops = 0;
    std::uint64_t elapsed = 0;
    do flops += work(i);
    while ((elapsed = ns_since(start)) < ns);
    rates[i * 8] = flops / static_cast<double>(elapsed) * 1e9;
  });
  double sum = 0;
  for (std::uint32_t i = 0; i < threads; ++i) sum += rates[i * 8];
  return sum;
}

double CpuBackend::fma_flops(std::uint64_t ns) {
  constexpr std::uint64_t kRounds = 4096;
  return rate_of(ns, [&](std::uint32_t) {
    float sum = 0;
    return ctx_.kernels.fma_loop(kRounds, &sum);
  });
}

// Packed products of 288 x 480 x 512; operands of each thread are its own. They are allocated here and freed:
// not part of the plan.
double CpuBackend::bf16_flops(std::uint64_t ns) {
  constexpr std::uint64_t kM = 288, kN = 480, kK = 512;
  static_assert(kM % kBf16Unit == 0 && kN % kBf16Unit == 0, "whole tiles, so no spare tile is needed");
  const std::uint32_t threads = pool_.threads();
  std::vector<std::uint16_t> a(threads * kM * kK, 0x3f00), b(threads * kN * kK, 0x3e80);
  std::vector<float> c(threads * kM * kN);
  return rate_of(ns, [&](std::uint32_t i) {
    ctx_.bf16->multiply(kM, kN, kK, a.data() + i * kM * kK, b.data() + i * kN * kK, false,
                        c.data() + i * kM * kN, kN, nullptr);
    return 2.0 * kM * kN * kK;
  });
}

}  // namespace trainhost::cpu
