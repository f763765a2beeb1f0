// How much scratch an operation gets from the plan. Trainers size their kernels by the same functions;
// nothing else knows these numbers. Units: elements of the buffer's type, before alignment.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/checked.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::step {

/// Floats of attention scratch for one thread: a tile of scores and one of their gradients [tile_q, tile_k]
/// each, one output tile [tile_q, D], and two figures a query (running maximum and sum, or lse and delta).
/// The scratch of one attention operation, forward or backward, is f32[threads, this].
inline std::uint64_t attention_scratch_floats(const TrainerTraits& p, std::uint64_t head_dim) {
  return checked_mul(p.attention_tile_q, checked_add(2 * std::uint64_t{p.attention_tile_k}, head_dim + 2));
}

/// Rows of logits alive at once, for a micro-batch of `tokens`.
inline std::uint64_t head_chunk(const TrainerTraits& p, std::uint64_t tokens) {
  return p.head_chunk_tokens == 0 || p.head_chunk_tokens > tokens ? tokens : p.head_chunk_tokens;
}

/// Page-locked bytes for what a step hands to a device and gets back, beside bulk data: ids, targets and
/// order of all its micro-batches, the scalars on their way up, and on their way down.
inline std::uint64_t feed_bytes(const RunSpec& r) {
  return checked_add(checked_mul(3 * sizeof(std::int32_t), r.tokens_per_step()), 2 * 16 * sizeof(double));
}

/// Page-locked bytes for pieces of tensors between files and a device, and for the logits of a generated
/// token.
inline std::uint64_t staging_bytes(const ModelSpec& m) {
  constexpr std::uint64_t kPiece = 4u << 20;
  return std::max(kPiece, checked_mul(m.vocab, sizeof(float)));
}

// The others, where they are made (builder.cpp): f32[slots, width] partial sums of norm gradients (width H,
// or 2D for q and k together); f64[slots] for the sum of squares; f32[A, S] scores of one generated token.

}  // namespace trainhost::step
