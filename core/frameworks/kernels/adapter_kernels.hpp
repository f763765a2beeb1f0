// Adapters of LoRA as functions of autograd of axolotl (July 2026): LoRA_MLP, LoRA_QKV and LoRA_O
// (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel). Weights in 16 bits, or in NF4 of bitsandbytes. Adapters
// without a bias and without DoRA.
#pragma once
#include <array>
#include <optional>

#include "core/frameworks/kernels/nf4.hpp"

namespace trainhost::frameworks {

/// A linear layer whose adapter exists.
struct AdaptedWeights {
  Tensor weight;                       // [outputs, inputs], or the packed tensor of `quantized`
  std::optional<Nf4Weight> quantized;  // by bitsandbytes
  Tensor a, b;                         // [r, inputs], [outputs, r]
};

/// x: [B, S, H]; dropped: x after dropout, or none where there is no dropout. Results: q, k and v.
std::array<Tensor, 3> axolotl_qkv(Tape& t, const Tensor& x, const Tensor& dropped,
                                  const std::array<AdaptedWeights, 3>& w);

/// down(act(gate(x)) * up(x)); w: gate, up, down. Keeps x, gate and up, over which it writes their gradients.
Tensor axolotl_mlp(Tape& t, const Tensor& x, const Tensor& dropped, const std::array<AdaptedWeights, 3>& w);

/// The output projection of attention.
Tensor axolotl_output(Tape& t, const Tensor& x, const Tensor& dropped, const AdaptedWeights& w);

}  // namespace trainhost::frameworks
