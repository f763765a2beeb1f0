// The closed form of the training-memory contract (docs/memory-model.md) as its source writes it, and the
// true values of what it leaves out. Pure arithmetic; contract.cpp is the plugin. Symbols: V vocab, H hidden,
// L layers, A heads, K kv_heads, I intermediate, S sequence length, B micro-batch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/memory_report.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::contract {

/// P = V*H + L*(2H + 2H^2 + 2*H*D_kv + 3*H*I) + H with D_kv = K*(H/A). Unit: parameters. Exact for a tied
/// head, A*head_dim = H, no biases and no q/k norms. Throws Error if a product exceeds 63 bits.
std::uint64_t parameters(const ModelSpec& m);

/// M_act = L*S*H*10*4. Unit: bytes, for one sequence.
std::uint64_t activation_bytes(const ModelSpec& m, const RunSpec& r);

/// The ten tensors behind K = 10 at their real sizes: Q, K, V, scores A*S*S, attention out, gate, up, down
/// and two residuals, f32, one sequence, every layer kept. Bytes.
std::uint64_t ten_tensor_bytes(const ModelSpec& m, const RunSpec& r);

/// The three transfers of a hybrid step for one sequence (docs/memory-model.md): hidden states to the device,
/// logits to the host, gradient of the logits to the device: S*(H + 2V)*4 bytes; and their time at a
/// bandwidth.
std::uint64_t transfer_bytes(const ModelSpec& m, const RunSpec& r);
double transfer_milliseconds(std::uint64_t bytes, double bytes_per_second);
inline constexpr double kPcie4BytesPerSecond = 32e9;  // x16, the value of the source

inline constexpr std::uint64_t kRuntimeBytes = 512ull
                                               << 20;  // "about 512 MB" of CUDA context, workspace, allocator

/// Entries weights, master_weights (mixed precision), gradients, optimizer_state, activations and runtime in
/// `tier`, all in memory at the peak; claim upper_bound; one note per assumption that the model or run
/// breaks.
MemoryReport estimate(const ModelSpec& m, const RunSpec& r, Tier tier);

}  // namespace trainhost::contract
