// See tiled_loss.hpp. Allocations in the order of add_fused_lm_head() and ChunkedLogProbFunction of TRL 1.16,
// on a device with Triton. n = B * (S - 1) targets count. C++ variables are those of the Python functions.
#include "core/frameworks/kernels/tiled_loss.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

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

/// x.new_zeros(mask.shape).masked_scatter(mask, x)
Tensor scattered(Tape& t, const Tensor& x, const Tensor& mask) {
  const Tensor zeros = t.make(mask->shape, x->type, "zeros");
  return t.apply({"values of labels", std::span(&x, 1), std::span(&mask, 1), false,
                  [count = x->shape, type = x->type](BackwardCall& c) {
                    c.results[0] = c.tape.make(count, type, "gradient of values");
                  }},
                 mask->shape, x->type);
}

/// The tensors in which tiles are computed, one after the other: a variable is given the next tensor while it
/// still has the last one.
class Tiles {
 public:
  /// keeps_weight: the part of the weight is a variable too, as in the backward pass.
  Tiles(Tape& t, const Shape& rows, Element hidden, const Shape& head, Element weight, Element compute,
        bool keeps_weight) {
    logits_ = t.make({std::min(rows[0], kTokensPerTile), kWordsPerTile}, compute, "logits of a tile");
    for (std::int64_t token = 0; token < rows[0]; token += kTokensPerTile) {
      if (hidden != compute)
        hidden_ = t.make({std::min(kTokensPerTile, rows[0] - token), rows[1]}, compute,
                         "hidden states of a tile, cast");
      if (weight == compute) continue;
      for (std::int64_t word = 0; word < head[0]; word += kWordsPerTile) {
        weight_ =
            t.make({std::min(kWordsPerTile, head[0] - word), head[1]}, compute, "weight of a tile, cast");
        if (!keeps_weight) weight_.reset();
      }
    }
  }

 private:
  Tensor logits_, hidden_, weight_;
};

struct PerToken {
  Tensor log_probabilities, entropy, mean_logits, is_top1;
};

/// ChunkedLogProbFunction.apply(), whose outputs are [n].
PerToken chunked(Tape& t, const Tensor& rows, const Tensor& head, const Tensor& targets, Element compute,
                 TiledMetrics metrics) {
  const std::int64_t count = rows->shape[0];
  const auto vector = [&](const char* name, Element type = Element::kF32) {
    return t.make({count}, type, name);
  };
  std::vector<Tensor> sums;
  for (const char* name :
       {"largest logits", "sums of exponentials", "sums for the entropy", "sums of squares", "sums of logits",
        "largest logits before the label", "logits of the labels"})
    sums.push_back(vector(name));
  const Tiles tiles(t, rows->shape, rows->type, head->shape, head->type, compute, false);
  PerToken out;
  Tensor log_sums;
  {
    const Tensor logarithms = vector("logarithms of sums");
    log_sums = vector("log-sum-exp");
  }
  Tensor place = vector("log-probabilities");
  if (metrics != TiledMetrics::kNone) {
    const Tensor quotients = vector("quotients");
    out.entropy = vector("entropy");
  }
  if (metrics == TiledMetrics::kDpo) out.mean_logits = vector("mean logits");
  if (metrics != TiledMetrics::kNone) {
    const Tensor at_least = vector("labels that are largest", Element::kBool),
                 above = vector("labels above those before", Element::kBool);
    out.is_top1 = vector("labels with the largest logit", Element::kBool);
  }
  place.reset();
  // Without the entropy the log-sum-exp is saved twice.
  const std::array inputs{rows, head};
  const std::array saved{rows, head, targets, log_sums, out.entropy ? out.entropy : log_sums};
  out.log_probabilities =
      t.apply({"log-probabilities of labels", inputs, saved, false,
               [compute](BackwardCall& c) {
                 Tape& tape = c.tape;
                 const std::array<const char*, 2> names{"gradient", "gradient of the weight"},
                     summed{"gradient, summed", "gradient of the weight, summed"};
                 std::array<Tensor, 2> sum;
                 for (std::size_t i = 0; i < 2; ++i)
                   if (c.needs(i))
                     sum[i] = tape.make(c.saved[i]->shape.made_contiguous(), Element::kF32, summed[i]);
                 const Tiles of_backward(tape, c.saved[0]->shape, c.saved[0]->type, c.saved[1]->shape,
                                         c.saved[1]->type, compute, true);
                 for (std::size_t i = 0; i < 2; ++i) {
                   if (!sum[i]) continue;
                   const Element type = c.saved[i]->type;
                   c.results[i] = type == Element::kF32
                                      ? sum[i]
                                      : tape.make(c.saved[i]->shape.made_contiguous(), type, names[i]);
                 }
               }},
              {count}, Element::kF32);
  return out;
}

}  // namespace

TiledOutputs tiled_log_probabilities(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels,
                                     Element compute, TiledMetrics metrics) {
  const std::int64_t length = hidden->shape[1] - 1, count = hidden->shape[0] * length;
  static_cast<void>(labels);  // views of them are compared
  const Tensor mask = t.make({hidden->shape[0], length}, Element::kBool, "labels that count");
  PerToken each;
  {
    const Tensor rows = masked_rows(t, slice(t, hidden, 1, length), mask);
    Tensor targets;
    {
      const Tensor places = t.make({count, 2}, Element::kI64, "places of labels");
      targets = t.make({count}, Element::kI64, "labels that count");
    }
    each = chunked(t, rows, head, targets, compute, metrics);
  }
  TiledOutputs out;
  out.log_probabilities = scattered(t, each.log_probabilities, mask);
  for (const Tensor& metric : {each.entropy, each.mean_logits, each.is_top1})
    if (metric) out.metrics.push_back(scattered(t, metric, mask));
  // The model's own loss, which no trainer of one device reads.
  const Tensor sum = neg(t, sum_of_all(t, out.log_probabilities));
  out.metrics.push_back(divide(t, sum, t.make({}, Element::kI64, "number of labels")));
  return out;
}

}  // namespace trainhost::frameworks
