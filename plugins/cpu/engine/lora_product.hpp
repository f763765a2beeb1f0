// The products with B of low-rank adapters over m rows of any operation: those of a layer (ops_lora.cpp), and
// a chunk of the head (ops_head.cpp). u is [m, blocks.inner()], y and dy are [m, blocks.width]. The shared
// workspace is overwritten.
#pragma once
#include <cstdint>

#include "core/model/adapters.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// y += scale * u B^T
void add_lora_b(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* u, const float* b,
                float* y);
void add_lora_b(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* u, const Bf16* b,
                Bf16* y);
/// du = scale * dy B
void lora_b_input_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* dy,
                           const float* b, float* du);
void lora_b_input_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* dy,
                           const Bf16* b, Bf16* du);
/// grad_b (= or +=) scale * dy^T u
void lora_b_weight_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const float* dy,
                            const float* u, bool overwrite, float* grad_b);
void lora_b_weight_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const Bf16* dy,
                            const Bf16* u, bool overwrite, float* grad_b);

}  // namespace trainhost::cpu
