// Calculon's memory of one rank, from blocks to tiers, and the embedding terms that its static memory note
// adds. Tier 1 is the device, tier 2 whatever takes what is offloaded. Pure arithmetic on whole bytes: a
// share of a byte, which the source keeps as a fraction where it divides, is a byte. Words and leaves are
// report.hpp, the run file mapping.hpp.
#pragma once
#include <cstdint>

#include "plugins/estimators/calculon/block.hpp"

namespace trainhost::calculon {

/// Bytes of one thing: all of it, and where it stands. Without offload tier1 == all and tier2 == 0; with it
/// tier 1 keeps what is in use (two blocks, so that one moves while the other works) and tier 2 holds all.
struct Space {
  std::uint64_t all = 0, tier1 = 0, tier2 = 0;
};

/// numerator / denominator blocks' worth of micro-batches in flight on a rank: min(microbatches, p) for plain
/// 1F1B, that times 1 + (p-1)/(i*p) with i > 1 chunks.
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
  std::uint64_t optimizer_space() const;   // master and moments: Calculon's one figure
  std::uint64_t tier1() const, tier2() const;
};

/// Throws usage_error naming what does not go together: the source's own conditions, and a stage without a
/// layer.
void check(const Application& a, const Execution& e);

/// Blocks alone, as Calculon gives them. Throws as check(), and Error (too large).
Sizes sizes(const Application& a, const Execution& e);

/// The note's embedding terms on one rank. rows: of the vocabulary on this rank; matrices: 1, or 2 where the
/// embedding and an untied head stand on the same (only) stage. Weights and optimizer state; the note counts
/// no gradients of them.
struct Embedding {
  std::uint64_t rows = 0, hidden = 0, matrices = 0;
  std::uint64_t elements() const;
};
struct EmbeddingSizes {
  Space weights, master, moments;
  std::uint64_t tier1() const, tier2() const;
};
EmbeddingSizes embedding_sizes(const Embedding& m, const Execution& e);

/// bytes * numerator / denominator, rounded up. Throws Error (too large) where it leaves 63 bits.
std::uint64_t share(std::uint64_t bytes, std::uint64_t numerator, std::uint64_t denominator);

}  // namespace trainhost::calculon
