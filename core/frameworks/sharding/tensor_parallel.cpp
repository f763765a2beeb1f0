// See tensor_parallel.hpp. Collectives of DTensor gather and scatter dimension 0; along the tokens (dimension
// 1) the parts are copied besides, so two tensors of all tokens exist.
#include "core/frameworks/sharding/tensor_parallel.hpp"

#include <array>

namespace trainhost::frameworks {
namespace {

/// Sizes with `factor` times or a `divisor`-th of the tokens.
Shape tokens(const Shape& s, std::int64_t factor, std::int64_t divisor) {
  Shape out = s;
  out.size[1] = s[1] * factor / divisor;
  return out.made_contiguous();
}

/// Tensors in 8 bits are used as those of the type that they were cast from.
Element wire_type(const Tensor& x, const TokenExchange& e) { return e.float8 ? Element::kByte : x->type; }

Tensor gathered(Tape& t, const Tensor& x, const TokenExchange& e, const char* name) {
  const Shape shape = tokens(x->shape, e.ranks, 1);
  const Tensor received = t.make(shape, wire_type(x, e), "gathered tokens, by rank");
  Tensor out = t.make(shape, wire_type(x, e), name);
  out->type = x->type;
  return out;
}

/// kept: by selective recomputation, as torchtitan's list has reduce_scatter_tensor.
Tensor scattered(Tape& t, const Tensor& x, const TokenExchange& e, const char* name, bool kept = false) {
  const Tensor sent = t.make(x->shape.made_contiguous(), x->type, "tokens to reduce, by rank");
  return t.make_result(tokens(x->shape, 1, e.ranks), x->type, name, kept);
}

}  // namespace

Tensor gather_tokens(Tape& t, const Tensor& x, const TokenExchange& e) {
  if (e.ranks == 1) return x;
  const std::array inputs{x};
  const Tensor out = gathered(t, x, e, "gathered tokens");
  return t.apply_view({"gathered tokens",
                       inputs,
                       {},
                       false,
                       [e](BackwardCall& c) {
                         c.results[0] = scattered(c.tape, c.take(), e, "gradient of the rank's tokens");
                       }},
                      out, out->shape);
}

Tensor scatter_tokens(Tape& t, const Tensor& x, const TokenExchange& e) {
  if (e.ranks == 1) return x;
  const std::array inputs{x};
  const Tensor out = scattered(t, x, e, "tokens of the rank", true);
  return t.apply_view(
      {"tokens of the rank",
       inputs,
       {},
       false,
       [e](BackwardCall& c) { c.results[0] = gathered(c.tape, c.take(), e, "gradient of all tokens"); }},
      out, out->shape);
}

Tensor parallel_cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets) {
  const std::array inputs{logits};
  Tensor shifted = t.make(logits->shape, Element::kF32, "logits minus their maximum");
  t.make(logits->shape, Element::kF32, "exponentials");
  const Tensor log_probabilities = t.make(logits->shape, Element::kF32, "log-probabilities");
  shifted.reset();
  const std::array saved{log_probabilities, targets};
  return t.apply({"loss", inputs, saved, false,
                  [](BackwardCall& c) {
                    const Shape shape = c.saved[0]->shape;
                    const auto make = [&](const char* name) {
                      return c.tape.make(shape, Element::kF32, name);
                    };
                    const Tensor of_targets = make("gradient of the targets");
                    Tensor exponentials = make("exponentials");
                    const Tensor sum = make("gradient, not scaled");
                    exponentials.reset();
                    c.results[0] = make("gradient of the logits");
                  }},
                 {}, Element::kF32);
}

}  // namespace trainhost::frameworks
