// Computes the traits of a run from constants that were chosen by measurement (plugins/cpu/README.md), and
// checks that the trainer supports the run. Sizes of the workspace: workspace.hpp. See cpu_traits.hpp.
#include "plugins/cpu/common/cpu_traits.hpp"

#include <algorithm>

#include "core/abi/error_guard.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/process/cpu_quota.hpp"
#include "plugins/cpu/common/workspace.hpp"
#include "trainhost/status.h"

namespace trainhost::cpu {
namespace {

// Rows per chunk: logits of at most 64 MiB, a multiple of 64 tokens, chunks of about equal size.
std::uint32_t head_chunk(std::uint64_t vocab, std::uint64_t tokens) {
  constexpr std::uint64_t kLogitBytes = 64ull << 20, kStep = 64;
  std::uint64_t fit =
      std::max<std::uint64_t>(1, kLogitBytes / (4 * std::max<std::uint64_t>(1, vocab)) / kStep) * kStep;
  if (fit >= tokens) return static_cast<std::uint32_t>(tokens);
  std::uint64_t chunks = (tokens + fit - 1) / fit, even = (tokens + chunks - 1) / chunks;
  return static_cast<std::uint32_t>((even + kStep - 1) / kStep * kStep);
}

}  // namespace

bool stores_bf16(const RunSpec& r) {
  return r.weight == DType::kBF16 && r.mode != RunMode::kInference;
}

TrainerTraits traits_of(const ModelSpec& whole, const RunSpec& run, std::uint32_t threads) {
  const ModelSpec model = run.mode == RunMode::kInference ? whole : part_of_model(whole, run.parallel);
  TrainerTraits p;
  p.trainer = kId;
  p.alignment = 64;
  p.tier = Tier::kHost;
  p.threads = threads ? threads : default_threads();
  p.slots = 16;
  p.f32_storage = !stores_bf16(run);
  p.head_chunk_tokens = head_chunk(model.vocab, run.tokens_per_micro_batch());
  p.attention_tile_q = std::min<std::uint32_t>(32, run.seq_len);
  p.attention_tile_k = std::min<std::uint32_t>(128, run.seq_len);
  p.workspace_bytes = workspace_floats(model, run, p) * sizeof(float);
  return p;
}

void require_supported(const RunSpec& r) {
  auto refuse = [](const char* what) {
    throw abi::StatusError(TH_E_UNSUPPORTED,
                           std::string("the cpu trainer supports only f32 and bf16 on one rank: ") + what);
  };
  const bool f32 = r.compute == DType::kF32 && r.weight == DType::kF32;
  const bool bf16 = r.compute == DType::kBF16 && r.weight == DType::kBF16 && r.master == DType::kF32;
  if (!(f32 || bf16) || r.grad != DType::kF32 || r.moment != DType::kF32)
    refuse("train.precision must be \"fp32\" or \"bf16\"");
  if (const PlannedOnly b = planned_only_setting(r)) refuse((b.key + " = " + b.value).c_str());
}

std::string best_core_type() {
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512cd");
  return avx512 ? "SkylakeX" : avx2 ? "Haswell" : "";
}

}  // namespace trainhost::cpu
