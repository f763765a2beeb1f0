// plugin.cuda.attention: which library computes attention over whole sequences, and what that adds to the
// plan. A pure function of model, run and option, as all traits (cuda_traits.hpp): nothing here asks for a
// library or a device, so a plan is the same whether cuDNN is installed or not.
#pragma once
#include <cstdint>
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::cuda {

enum class Attention : std::uint8_t { kOwn, kCudnn };

/// Throws abi::StatusError (TH_E_ARG) unless the option is auto, own or cudnn.
void require_known_attention(const char* option);

/// option: auto | own | cudnn, null: auto. `auto` is `own` until cuDNN has been measured to be faster
/// (plugins/cuda/README.md). Throws abi::StatusError: TH_E_ARG for any other value, TH_E_UNSUPPORTED for
/// "cudnn" if cudnn_limit() is not empty.
Attention choose_attention(const ModelSpec& model, const RunSpec& run, const char* option);

/// Why cuDNN cannot compute the attention of this run on every supported device; empty if it can.
std::string cudnn_limit(const ModelSpec& model, const RunSpec& run);

/// Sequences per call of the backward pass: the largest divisor of the micro-batch whose workspace is at most
/// kCudnnWorkspaceGoal, else the smallest one. Only divisors with which each call starts at a multiple of 16
/// bytes in the statistics count: with odd sizes that may be the micro-batch alone. The workspace of one call
/// grows with the square of the sequence length.
std::uint32_t cudnn_backward_sequences(const ModelSpec& model, const RunSpec& run);
inline constexpr std::uint64_t kCudnnWorkspaceGoal = 256ull << 20;

/// Bytes of workspace that cuDNN needs for one backward call over `sequences` sequences on any supported
/// device, and so the limit for the plans of the engine. The forward pass needs at most 256 bytes.
std::uint64_t cudnn_workspace_bytes(const ModelSpec& model, const RunSpec& run, std::uint32_t sequences);

}  // namespace trainhost::cuda
