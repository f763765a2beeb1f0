// Symbolic values: the mathematical quantity that a buffer contains, as "rotated qkv of layer 3" or "the
// gradient of the residual stream before layer 3". The checker runs the program on these instead of numbers.
#pragma once
#include <cstdint>
#include <string>

#include "core/placement/check_arena.hpp"
#include "core/placement/check_findings.hpp"

namespace trainhost::placement {

enum class Quantity : std::uint8_t {
  kNothing,
  kResidual,
  kNormed,
  kRstd,
  kQkv,
  kQkvNormed,
  kQkvRotated,
  kQkPre,
  kQkRstd,
  kAttnOut,
  kLse,
  kGateUp,
  kAct,
  kLogits,
  kKeys,
  kValues,
  kWeightCopy,   // copy of the weight of parameter `at` in another tier
  kLoraInner,    // u = x A^T of the adapters of a product; `at`: 4 * layer + AdapterGroup
  kDropped,      // the input of these adapters after dropout; `at` likewise
  kGradPart,     // one micro-batch's gradient of parameter `at`
  kGradSum,      // the same, added up over the ranks: this rank's shard of it
  kUnscaled,     // with DoRA, the output of a product and its adapters before the magnitudes; `at` likewise
  kDoraScale,    // the factors that the magnitudes give; `at` likewise
  kDoraSquares,  // the squared norms of rows from which they follow; `at` likewise
  kHeadStats,    // per token and TP rank, of the part of the vocabulary
  kDirection,    // of Muon, of parameter `at`
  kOrthogonal,   // the same, orthogonalised: of a divided parameter, this rank's piece of it
  kFactored,     // of Adafactor, of parameter `at`: the sums of squared gradients that TP ranks add up
  kChange,       // the sums of squared changes, likewise
  kTransposed,   // A of the adapter of the head, which is B of that of the embedding transposed
};

/// What a value lacks, which is added to it next: the part of the adapters, or then that of the magnitudes;
/// the parts of the other TP ranks, or then the residual, which each of them adds to its rows.
enum class Lacks : std::uint8_t { kNothing, kAdapters, kMagnitudes, kTensorRanks, kResidual };

/// `own_rows`: with sequence parallelism, the rows of this TP rank alone.
/// `at`: the layer. For the residual stream, norm outputs and their 1/rms it counts half layers: 2l before
/// the attention of layer l, 2l + 1 before its MLP, 2L after the last layer.
struct Value {
  Quantity quantity = Quantity::kNothing;
  std::int32_t at = 0;
  bool gradient = false;
  Lacks lacks = Lacks::kNothing;
  bool own_rows = false;
  bool operator==(const Value&) const = default;
};
std::string text(const Value& v);

/// Runs all sections on symbolic values in the order of training (micro-batches, update, eval, generate
/// twice, micro-batches, update, eval); every write takes its bytes in the arena map. Finds reads of buffers
/// that were never written, contain another quantity or were overwritten; gradients without exactly one first
/// writer or with missing contributions; parameters that are not updated.
void check_values(const Program& p, const MemoryPlan& plan, Findings& f);

}  // namespace trainhost::placement
