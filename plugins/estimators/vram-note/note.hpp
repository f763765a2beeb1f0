// Equations of the VRAM note (docs/memory-model.md): LoRA training and inference in bf16, as the source
// writes them. Pure arithmetic; every number takes 2 bytes, whatever the types of the run. breakdown.hpp
// applies them to a run. Symbols: P parameters, L layers, B sequences, S tokens, H hidden, V vocabulary.
#pragma once
#include <cstdint>

namespace trainhost::vram_note {

using Bytes = std::uint64_t;
inline constexpr Bytes kGiB = 1ull << 30;
inline constexpr Bytes kCuda = 2 * kGiB;               // CUDA context, as the source counts it
inline constexpr Bytes kCudaMeasured = 1000ull << 20;  // first CUDA call, by the calculator that it cites
inline constexpr std::uint64_t kHalf = 2;              // bytes of a bf16 number
inline constexpr double kLoraRatio = 0.02;             // trainable share of LoRA on q, k and v

struct Inputs {
  std::uint64_t parameters = 0, trainable = 0;  // P; trained parameters, of P or of adapters
  std::uint64_t layers = 0, hidden = 0, vocab = 0, batch = 1, seq = 1;
};

/// P*ratio rounded to the nearest integer. ratio in [0, 1].
std::uint64_t trainable(std::uint64_t parameters, double ratio);

struct Parts {
  Bytes cuda = 0, parameters = 0, gradients = 0, first_moments = 0, second_moments = 0, activations = 0,
        outputs = 0;
  Bytes total = 0;
};
/// 2 GiB, 2P, three times 2*r*P, L*B*S*H*2, B*S*V*2*2. All functions throw Error if a size exceeds 63 bits.
Parts training(const Inputs& in);
/// 2 GiB, 2P, L*B*S*H*2, B*S*V*2.
Parts inference(const Inputs& in);

/// B*S*V numbers of `each` bytes, `copies` times; the calculator that the source cites has 4 bytes, 2 copies.
Bytes outputs(const Inputs& in, std::uint64_t each, std::uint64_t copies);
/// Keys and values of all tokens, kv_width = K*D numbers each; the source does not count them.
Bytes kv_cache(const Inputs& in, std::uint64_t kv_width, std::uint64_t each);

}  // namespace trainhost::vram_note
