// See cut_loss.hpp. Allocations in the order of linear_cross_entropy() and LinearCrossEntropyFunction. No
// label is ignored, so n = B * (S - 1) targets count.
#include "core/frameworks/kernels/cut_loss.hpp"

#include <array>

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kRowsPerLock = 128, kColumnsPerLock = 64;

std::int64_t locks_for(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// _build_flat_valids(): the rows whose labels count, [n].
Tensor valid_rows(Tape& t, std::int64_t batch, std::int64_t length) {
  const std::int64_t count = batch * length;
  Tensor narrow;
  {
    Tensor mask = t.make({batch, length}, Element::kBool, "labels that count");
    const Tensor places = t.make({count, 2}, Element::kI64, "places of labels");
    mask.reset();
    narrow = t.make({count, 2}, Element::kI32, "places of labels");
  }
  return t.make({count}, Element::kI64, "rows that count");
}

}  // namespace

Tensor cut_cross_entropy(Tape& t, const Tensor& hidden, const Tensor& head, const Tensor& labels,
                         bool soft_cap) {
  const std::int64_t batch = hidden->shape[0], length = hidden->shape[1] - 1, width = hidden->shape[2];
  const std::int64_t count = batch * length, vocabulary = head->shape[0];
  const Tensor valids = valid_rows(t, batch, length);
  const Tensor rows = view(t, hidden, {batch * (length + 1), width});
  const Tensor sums = t.make({count}, Element::kF32, "log-sum-exp");
  Tensor locks = t.make({locks_for(count, kRowsPerLock)}, Element::kI32, "locks");
  // The order in which the backward pass visits the vocabulary.
  const Tensor averages = t.make({vocabulary}, Element::kF32, "average logits");
  locks.reset();
  Tensor loss;
  {
    Tensor losses = t.make({count}, Element::kF32, "losses");
    if (soft_cap) losses = t.make({count}, Element::kF32, "losses");
    loss = t.make({}, Element::kF32, "loss");
  }
  const std::array inputs{rows, head};
  const std::array saved{rows, head, sums, labels, valids, averages};
  return t.apply_view(
      {"loss", inputs, saved, false,
       [=](BackwardCall& c) {
         Tape& tape = c.tape;
         tape.keep_with_graph(valids);  // an attribute of ctx.params
         Tensor order;
         {
           Tensor sorted = tape.make({vocabulary}, Element::kF32, "average logits");
           const Tensor wide = tape.make({vocabulary}, Element::kI64, "order");
           sorted.reset();
           order = tape.make({vocabulary}, Element::kI32, "order");
         }
         const std::int64_t columns = locks_for(width, kColumnsPerLock);
         Tensor of_rows, of_head, row_locks, head_locks;
         if (c.needs(0)) of_rows = tape.make(c.saved[0]->shape, c.saved[0]->type, "gradient");
         if (c.needs(1)) of_head = tape.make(c.saved[1]->shape, c.saved[1]->type, "gradient of the weight");
         if (c.needs(0))
           row_locks = tape.make({locks_for(count, kRowsPerLock), columns}, Element::kI32, "locks");
         if (c.needs(1))
           head_locks = tape.make({locks_for(vocabulary, kRowsPerLock), columns}, Element::kI32, "locks");
         c.results[0] = std::move(of_rows);
         c.results[1] = std::move(of_head);
       }},
      loss, loss->shape);
}

}  // namespace trainhost::frameworks
