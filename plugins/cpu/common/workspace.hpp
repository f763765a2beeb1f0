// The planned work space of the trainer, in floats: one piece for a packed weight, shared by all threads, then one piece
// a thread for copies of operands. The profile asks for it, the engine lays it out; both by these functions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/cpu/kernels/kernels.hpp"

namespace trainhost::cpu {

/// Weights of at most this many elements go through the trainer's own small products, larger ones through OpenBLAS,
/// which is about as quick there. 4 MiB packed.
inline constexpr std::uint64_t kSmallWeight = 1u << 20;
inline bool small_weight(std::uint64_t n, std::uint64_t k) { return k == 0 || n <= kSmallWeight / k; }

/// The widest panel of any instruction set.
inline constexpr std::uint64_t kWidestPanel = 48;

/// Packing pads one side of a weight to whole panels; either side may be the one.
inline std::uint64_t packed_floats(std::uint64_t n, std::uint64_t k) {
  return std::max((n + kWidestPanel) * k, (k + kWidestPanel) * n);
}
inline std::uint64_t shared_floats(const ModelSpec& m) {
  std::uint64_t most = 0;
  const std::uint64_t h = m.hidden, i = m.intermediate;
  for (auto [n, k] : std::initializer_list<std::pair<std::uint64_t, std::uint64_t>>{
           {m.qkv_width(), h}, {h, m.q_width()}, {2 * i, h}, {h, i}, {m.vocab, h}})
    if (small_weight(n, k)) most = std::max(most, packed_floats(n, k));
  return (most + 15) / 16 * 16;
}
/// Copies for one product, then two packed tiles of keys or values for attention.
inline std::uint64_t worker_floats(const ModelSpec& m, const Profile& p) {
  return kProductWork + (2 * (p.attention_tile_k + kWidestPanel) * m.head_dim + 15) / 16 * 16;
}
inline std::uint64_t workspace_floats(const ModelSpec& m, const Profile& p) {
  return shared_floats(m) + p.threads * worker_floats(m, p);
}

}  // namespace trainhost::cpu
