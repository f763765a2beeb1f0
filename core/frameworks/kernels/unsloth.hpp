// Functions of Unsloth for autograd (unsloth and unsloth_zoo 2026.10): adapters of LoRA, rotary embedding,
// head and loss; and the buffers that its checkpoints keep. Triton kernels write into tensors that exist. Its
// norms allocate what those of Liger do: liger.hpp. Adapters without bias and DoRA.
#pragma once
#include <array>
#include <utility>

#include "core/frameworks/kernels/adapter_kernels.hpp"
#include "core/frameworks/trace/host_memory.hpp"

namespace trainhost::frameworks {

/// LoRA_QKV. x: [B, S, H]. The gradient of x is written over x.
std::array<Tensor, 3> unsloth_qkv(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w);

/// LoRA_MLP; w: gate, up, down. Keeps x, gate and up, and writes their gradients over them.
Tensor unsloth_mlp(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w);

/// LoRA_W: the output projection of attention.
Tensor unsloth_output(Tape& t, const Tensor& x, const AdaptedWeights& w);

/// The same with dropout before the adapters, of which a mask per input is saved: unsloth_dropout.cpp.
std::array<Tensor, 3> unsloth_qkv_dropped(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w);
Tensor unsloth_mlp_dropped(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w);
Tensor unsloth_output_dropped(Tape& t, const Tensor& x, const AdaptedWeights& w);

/// Fast_RoPE_Embedding_QK_Positions rotates q and k [B, heads, S, D] in place; their gradients are new
/// tensors.
std::pair<Tensor, Tensor> unsloth_rope(Tape& t, const Tensor& q, const Tensor& k);

/// fused_linear_cross_entropy() with a frozen head, of hidden [rows, H] of which `targets` count. The
/// gradient of the hidden states is computed in the forward pass, and kept. tiles_always: the device has at
/// most 24.5 GiB, so that logits of few rows are computed in tiles of the vocabulary too.
Tensor unsloth_loss(Tape& t, const Tensor& hidden, const Tensor& head, std::int64_t targets,
                    bool tiles_always);

/// Inputs of layers with at most this many bytes stay on the device.
inline constexpr std::uint64_t kLeastOffloadedByUnsloth = std::uint64_t{2} << 20;

/// Host memory of its checkpoints, whose inputs have `bytes` each.
HostMemory host_memory_of_unsloth(std::uint64_t layers, std::uint64_t bytes);

}  // namespace trainhost::frameworks
