// Operators that only litgpt uses.
#include <array>
#include <numeric>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

Tensor concatenate_at(Tape& t, const std::vector<Tensor>& parts, int dim) {
  Shape whole = parts.front()->shape;
  std::vector<std::int64_t> lengths;
  for (const Tensor& p : parts) lengths.push_back(p->shape[dim]);
  whole.size[static_cast<std::size_t>(dim)] =
      std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return t.apply({"cat",
                  parts,
                  {},
                  false,
                  [lengths, dim](BackwardCall& c) {
                    const Tensor g = c.take();
                    for (std::size_t i = 0; i < lengths.size(); ++i)
                      if (c.needs(i)) c.results[i] = c.tape.alias(g, g->shape.sliced(dim, lengths[i]));
                  }},
                 whole.made_contiguous(), parts.front()->type);
}

std::vector<Tensor> split_at(Tape& t, const Tensor& x, int dim, const std::vector<std::int64_t>& sizes) {
  std::vector<Shape> shapes;
  for (const std::int64_t n : sizes) shapes.push_back(x->shape.sliced(dim, n));
  return t.apply_views({"split",
                        std::span(&x, 1),
                        {},
                        false,
                        [before = x->shape, type = x->type](BackwardCall& c) {
                          c.results[0] = c.tape.make(before.made_contiguous(), type, "gradient of the parts");
                        }},
                       x, shapes);
}

Tensor copy_columns(Tape& t, const Tensor& x, const Tensor& index, const Tensor& source) {
  const std::array saved{index, source};  // of the source only the sizes are needed
  return t.apply_view({"padded with zeros", std::span(&source, 1), saved, false,
                       [shape = source->shape](BackwardCall& c) {
                         c.results[0] = c.tape.make(shape.made_contiguous(), c.grads[0]->type, "gradient");
                       }},
                      x, x->shape);
}

Tensor cross_entropy_of_rows(Tape& t, const Tensor& logits, const Tensor& targets) {
  const Tensor probabilities = log_softmax(t, logits, "log-probabilities");
  const Tensor total = t.make({}, Element::kF32, "sum of weights");
  const std::array saved{probabilities, targets, total};
  const std::size_t count = logits->shape[0] ? 3 : 2;  // no rows: without the sum
  return t.apply({"loss", std::span(&probabilities, 1), std::span(saved.data(), count), false,
                  [shape = probabilities->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(shape, Element::kF32, "gradient of the log-probabilities");
                  }},
                 {logits->shape[0]}, Element::kF32);
}

}  // namespace trainhost::frameworks
