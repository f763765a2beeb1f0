// The equations of docs/memory-model.md, section "Memory contract of a LLaMA", that verify compares trainers
// with. Written independently of the `contract` estimator, so that one mistake cannot hide in both. Pure
// arithmetic. Symbols: V vocab, H hidden, L layers, A heads, K kv_heads, I intermediate, S sequence
// length, B micro-batch.
#pragma once
#include <cstdint>
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::verify {

/// P = V*H + L*(2H + 2H^2 + 2*H*K*(H/A) + 3*H*I) + H, parameters. Throws Error when a product exceeds 63
/// bits.
std::uint64_t contract_parameters(const ModelSpec& m);

/// The parts of the model that the formula omits, e.g. "an untied head (V*H = 1,024), biases of q, k and v";
/// "" if the formula is exact.
std::string broken_assumptions(const ModelSpec& m);

/// M_act * B = L*S*H*10*4*B, bytes.
std::uint64_t contract_activation_bytes(const ModelSpec& m, const RunSpec& r);

/// Bytes as a multiple of L*S*H*4*B. The contract states 10.
double measured_k(const ModelSpec& m, const RunSpec& r, std::uint64_t bytes);

/// b_w: bytes of a stored parameter including an f32 master copy; 4 if the trainer always stores f32.
std::uint64_t bytes_per_weight(const RunSpec& r, bool f32_storage);

/// M_total = P*b_w + P*4 + P*8 + M_act*B + 512 MiB in bytes, with P = `parameters`.
std::uint64_t contract_total_bytes(const ModelSpec& m, const RunSpec& r, std::uint64_t parameters,
                                   bool f32_storage);

inline constexpr std::uint64_t kContractRuntimeBytes = 512ull << 20;

}  // namespace trainhost::verify
