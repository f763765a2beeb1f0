// Scratch sizes, used by the builders and by the trainers, so that both agree. Units: elements of the
// buffer's type, before alignment, unless a name says bytes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/checked.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::step {

/// Floats of attention scratch per thread: a tile of scores and a tile of their gradients, [tile_q, tile_k]
/// each, one output tile [tile_q, D], and two values per query (running maximum and sum, or lse and delta).
/// One attention operation, forward or backward, gets f32[threads, attention_scratch_floats()].
inline std::uint64_t attention_scratch_floats(const TrainerTraits& p, std::uint64_t head_dim) {
  return checked_mul(p.attention_tile_q, checked_add(2 * std::uint64_t{p.attention_tile_k}, head_dim + 2));
}

/// Rows of logits that are materialised at the same time, for a micro-batch of `tokens`.
inline std::uint64_t head_chunk(const TrainerTraits& p, std::uint64_t tokens) {
  return p.head_chunk_tokens == 0 || p.head_chunk_tokens > tokens ? tokens : p.head_chunk_tokens;
}

/// Numbers per token that a device is fed: id, target, order of the rows, and the start of its document.
inline std::uint64_t fed_per_token(const RunSpec& r) { return r.document_mask ? 4 : 3; }

/// Numbers per micro-batch that a device is fed: two i32 with its number, for dropout.
inline std::uint64_t fed_per_micro_batch(const RunSpec& r) { return r.memory.lora_dropout > 0 ? 2 : 0; }

/// Page-locked bytes for the small transfers of a step: what all its micro-batches are fed, and the scalars
/// once per direction.
inline std::uint64_t feed_bytes(const RunSpec& r) {
  const std::uint64_t numbers = checked_add(checked_mul(fed_per_token(r), r.tokens_per_step()),
                                            checked_mul(fed_per_micro_batch(r), r.accumulate));
  return checked_add(checked_mul(numbers, sizeof(std::int32_t)), 2 * 16 * sizeof(double));
}

/// Page-locked bytes for parts of tensors between files and a device, and for the logits of one generated
/// token over the whole vocabulary.
inline std::uint64_t staging_bytes(std::uint64_t vocab) {
  constexpr std::uint64_t kPiece = 4u << 20;
  return std::max(kPiece, checked_mul(vocab, sizeof(float)));
}

/// Floats of scratch of Muon for a matrix [rows, cols]: two copies of it, and two square matrices of its
/// smaller dimension.
inline std::uint64_t muon_work_floats(std::uint64_t rows, std::uint64_t cols) {
  const std::uint64_t least = std::min(rows, cols);
  return checked_mul(2, checked_add(checked_mul(rows, cols), checked_mul(least, least)));
}

/// Bytes in which a rank receives what other ranks send in a collective, part by part: those of the largest
/// gradient, of `elements` f32, up to 8 MiB. More than a few MiB make a transfer no faster.
inline std::uint64_t collective_scratch_bytes(std::uint64_t elements) {
  return std::clamp<std::uint64_t>(checked_mul(elements, sizeof(float)), 64 << 10, 8 << 20);
}

// The other scratch shapes are listed in operands.hpp.

}  // namespace trainhost::step
