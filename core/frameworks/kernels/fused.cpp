// See fused.hpp. These are assumptions about what torch.compile divides into forward and backward pass: they
// were compared with published runs, not with graphs that torch compiled.
#include "core/frameworks/kernels/fused.hpp"

#include <array>

namespace trainhost::frameworks {

Tensor fused_map(Tape& t, const Tensor& x, const Shape& shape) {
  return t.apply({"output",
                  std::span(&x, 1),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                  }},
                 shape, x->type);
}

Tensor fused_swiglu(Tape& t, const Tensor& gate, const Tensor& up) {
  const std::array inputs{gate, up};
  return t.apply({"output", inputs, inputs, false,
                  [](BackwardCall& c) {
                    for (std::size_t i = 0; i < 2; ++i)
                      if (c.needs(i))
                        c.results[i] = c.tape.make(c.saved[i]->shape, c.saved[i]->type, "gradient");
                  }},
                 gate->shape, gate->type);
}

Tensor fused_cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets) {
  const Shape rows{logits->shape[0]};
  const Tensor largest = t.make(rows, Element::kF32, "largest logit of each row");
  const Tensor sums = t.make(rows, Element::kF32, "log-sum-exp");
  const std::array saved{logits, largest, sums, targets};
  return t.apply({"loss", std::span(&logits, 1), saved, false,
                  [](BackwardCall& c) {
                    c.results[0] = c.tape.make(c.saved[0]->shape.made_contiguous(), c.saved[0]->type,
                                               "gradient of the logits");
                  }},
                 {}, Element::kF32);
}

}  // namespace trainhost::frameworks
