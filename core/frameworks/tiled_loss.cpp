// See tiled_loss.hpp. Allocations in the order of add_fused_lm_head() and ChunkedLogProbFunction of TRL 1.16,
// on a device with Triton. n = B * (S - 1) targets count. Not counted: a dozen scalars, and tensors [B, S -
// 1] of the sums behind the function.
#include "core/frameworks/tiled_loss.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kTokensPerTile = 4096, kWordsPerTile = 32768;

/// x[mask]: the places of true values exist during the operator. The mask is saved; the gradient is zeros of
/// x, to which rows are added in the order of sorted indices.
Tensor masked_rows(Tape& t, const Tensor& x, const Tensor& mask) {
  const std::int64_t count = x->shape[0] * x->shape[1], width = x->shape[2];
  const Tensor places = t.make({count, 2}, Element::kI64, "places of labels");
  return t.apply(
      {"rows that count", std::span(&x, 1), std::span(&mask, 1), false,
       [before = x->shape, count](BackwardCall& c) {
         c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient of rows");
         constexpr std::uint64_t kIndices = 5, kBytes = 8;  // places, linear, sorted, their order
         c.tape.kernel_temporary(kIndices * kBytes * static_cast<std::uint64_t>(count), "sorted indices");
       }},
      {count, width}, x->type);
}

/// The tensors in which one tile is computed; every tile has equal ones.
std::vector<Tensor> tile(Tape& t, const Shape& rows, Element hidden, const Shape& head, Element weight,
                         Element compute) {
  const std::int64_t tokens = std::min(rows[0], kTokensPerTile);
  std::vector<Tensor> out{t.make({tokens, kWordsPerTile}, compute, "logits of a tile")};
  if (hidden != compute) out.push_back(t.make({tokens, rows[1]}, compute, "hidden states of a tile, cast"));
  if (weight != compute)
    out.push_back(t.make({std::min(head[0], kWordsPerTile), head[1]}, compute, "weight of a tile, cast"));
  return out;
}

}  // namespace

Tensor tiled_loss(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels, Element compute) {
  const std::int64_t length = hidden->shape[1] - 1, count = hidden->shape[0] * length;
  const Tensor mask = t.make({hidden->shape[0], length}, Element::kBool, "labels that count");
  const Tensor rows = masked_rows(t, slice(t, hidden, 1, length), mask);
  const auto of_rows = [&](const char* name) { return t.make({count}, Element::kF32, name); };
  Tensor targets;
  {
    const Tensor places = t.make({count, 2}, Element::kI64, "places of labels");
    targets = t.make({count}, Element::kI64, "labels that count");
  }
  std::vector<Tensor> sums;
  for (const char* name :
       {"largest logits", "sums of exponentials", "sums for the entropy", "sums of squares", "sums of logits",
        "largest logits before the label", "logits of the labels"})
    sums.push_back(of_rows(name));
  std::vector<Tensor> tiles = tile(t, rows->shape, rows->type, head->shape, head->type, compute);
  tiles.resize(1);
  const Tensor log_sums = of_rows("log-sum-exp");
  const Tensor log_probabilities = of_rows("log-probabilities");
  const Tensor entropy = of_rows("entropy");
  sums.clear(), tiles.clear();
  const Tensor loss = t.make({}, Element::kF32, "loss");
  const std::array inputs{rows, head};
  const std::array saved{rows, head, targets, log_sums, entropy, mask, labels};
  return t.apply_view(
      {"loss", inputs, saved, false,
       [compute](BackwardCall& c) {
         Tape& tape = c.tape;
         const std::array<const char*, 2> names{"gradient", "gradient of the weight"};
         std::array<Tensor, 2> sum;
         for (std::size_t i = 0; i < 2; ++i)
           if (c.needs(i))
             sum[i] = tape.make(c.saved[i]->shape, Element::kF32,
                                i ? "gradient of the weight, summed" : "gradient, summed");
         const std::vector<Tensor> of_tile =
             tile(tape, c.saved[0]->shape, c.saved[0]->type, c.saved[1]->shape, c.saved[1]->type, compute);
         for (std::size_t i = 0; i < 2; ++i) {
           if (!sum[i]) continue;
           const Element type = c.saved[i]->type;
           c.results[i] = type == Element::kF32 ? sum[i] : tape.make(c.saved[i]->shape, type, names[i]);
         }
       }},
      loss, loss->shape);
}

}  // namespace trainhost::frameworks
