// The resident profile alone: everything on the device. The other modes are chosen here once they can be executed.
#include "plugins/cuda/common/profile.hpp"

#include <algorithm>

#include "core/bridge/guard.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

// Logits of a chunk stay within 1 GiB, in multiples of 128 tokens, and no chunk is nearly empty.
std::uint32_t head_chunk(std::uint64_t vocab, std::uint64_t tokens) {
  constexpr std::uint64_t kLogitBytes = 1ull << 30, kStep = 128;
  const std::uint64_t fit = std::max<std::uint64_t>(1, kLogitBytes / (4 * std::max<std::uint64_t>(1, vocab)) / kStep) * kStep;
  if (fit >= tokens) return static_cast<std::uint32_t>(tokens);
  const std::uint64_t chunks = (tokens + fit - 1) / fit, even = (tokens + chunks - 1) / chunks;
  return static_cast<std::uint32_t>((even + kStep - 1) / kStep * kStep);
}

}  // namespace

Choice choose(const ModelSpec& model, const RunSpec& run, const std::string& mode_option, std::uint32_t threads) {
  if (mode_option != "auto" && mode_option != "resident")
    throw bridge::StatusError(TH_E_UNSUPPORTED, "the cuda trainer has no mode \"" + mode_option + "\" yet", "plugin.cuda.mode = \"resident\"");
  Profile p;
  p.trainer = kId;
  p.mode = "resident";
  p.alignment = 256;
  p.tier = Tier::kDevice;
  p.threads = std::max(1u, threads);
  p.slots = 256;
  p.head_chunk_tokens = head_chunk(model.vocab, run.tokens_per_micro_batch());
  p.attention_tile_q = std::min<std::uint32_t>(64, run.seq_len);
  p.attention_tile_k = std::min<std::uint32_t>(64, run.seq_len);
  p.workspace_bytes = 64ull << 20;
  return {p, ""};
}

void require_supported(const RunSpec& r) {
  auto refuse = [](const char* what) {
    throw bridge::StatusError(TH_E_UNSUPPORTED, std::string("the cuda trainer computes in f32, TF32 or bf16, on one rank: ") + what);
  };
  const bool f32 = (r.compute == DType::kF32 || r.compute == DType::kTF32) && r.weight == DType::kF32;
  const bool bf16 = r.compute == DType::kBF16 && r.weight == DType::kBF16 && r.master == DType::kF32;
  if (!(f32 || bf16) || r.grad != DType::kF32 || r.moment != DType::kF32)
    refuse("train.precision must be \"fp32\", \"tf32\" or \"bf16\"");
  if (r.mode != RunMode::kFull && r.mode != RunMode::kInference) refuse("no [lora]");
  if (r.data_parallel > 1 || r.tensor_parallel > 1 || r.pipeline_parallel > 1) refuse("[parallel] must be 1");
}

}  // namespace trainhost::cuda
