// Calculon's memory of one rank: from blocks to tiers, and the embedding terms of its static memory note.
// Tier 1 is the device, tier 2 the target of offloading. Pure arithmetic on whole bytes, rounded up where the
// source has fractions. Entries: report.hpp; conversion of the run: mapping.hpp.
#pragma once
#include <cstdint>

#include "plugins/estimators/calculon/block.hpp"

namespace trainhost::calculon {

/// Bytes of one kind of data: total and per tier. Without offload tier1 == all and tier2 == 0. With offload
/// tier 1 has the part in use (two blocks: one is computed while the other is transferred) and tier 2 has
/// all.
struct Space {
  std::uint64_t all = 0, tier1 = 0, tier2 = 0;
};

/// Micro-batches in flight on a rank, numerator / denominator: min(microbatches, p) for non-interleaved 1F1B,
/// times 1 + (p-1)/(i*p) with i > 1 chunks.
struct InFlight {
  std::uint64_t numerator = 1, denominator = 1;
};

struct Sizes {
  Block block;
  std::uint64_t blocks = 0;  // of this rank, rounded up
  InFlight in_flight;
  Space weights, gradients, master, moments;  // gradients of weights
  Space activations, checkpoints;
  std::uint64_t activation_gradients = 0;  // of one block, in tier 1
  std::uint64_t optimizer_space() const;   // master + moments, one number in Calculon
  std::uint64_t tier1() const, tier2() const;
};

/// Throws usage_error for incompatible settings (the conditions of the source) and for a stage without a
/// layer.
void check(const Application& a, const Execution& e);

/// Memory of the blocks, as in Calculon. Throws like check(), and Error (too large).
Sizes sizes(const Application& a, const Execution& e);

/// Embedding terms of the note on one rank. rows: of the vocabulary on this rank; matrices: 1, or 2 if
/// embedding and untied head are on the same (only) stage. Weights and optimizer state; the note counts no
/// gradients.
struct Embedding {
  std::uint64_t rows = 0, hidden = 0, matrices = 0;
  std::uint64_t elements() const;
};
struct EmbeddingSizes {
  Space weights, master, moments;
  std::uint64_t tier1() const, tier2() const;
};
EmbeddingSizes embedding_sizes(const Embedding& m, const Execution& e);

/// bytes * numerator / denominator, rounded up. Throws Error (too large) above 63 bits.
std::uint64_t share(std::uint64_t bytes, std::uint64_t numerator, std::uint64_t denominator);

}  // namespace trainhost::calculon
