// Elementwise operators, reductions over the last dimension, rows of a table, and the loss. What each saves
// and allocates follows the formulas of torch's derivatives.yaml (torch 2.15): a tensor that a formula names
// is saved, and each operator inside a formula allocates a tensor. Views: operators_views.cpp; products:
// operators_products.cpp.
#include "core/frameworks/autograd/operators.hpp"

#include <algorithm>
#include <array>

namespace trainhost::frameworks {
namespace {

std::span<const Tensor> one(const Tensor& t) { return std::span(&t, 1); }

/// Gradient with the sizes of g, by an operator that allocates it.
Tensor like(Tape& t, const Tensor& g) { return t.make(elementwise(g->shape), g->type, "gradient"); }

/// g times something of the other's sizes and type: mul_tensor_backward() without its sum over broadcast
/// dimensions, which the engine does. The gradient of a norm's weight [H] thus has [N, H] elements first.
Tensor product_gradient(Tape& t, const Tensor& g, const Tensor& other) {
  return t.make(elementwise(g->shape, other->shape), promoted(g, other), "gradient");
}

Backward elementwise_gradient() {
  return [](BackwardCall& c) { c.results[0] = like(c.tape, c.grads[0]); };
}

/// An operator on one tensor whose gradient is one operator.
Tensor unary(Tape& t, const char* name, const Tensor& x, bool saves_input, bool saves_output = false) {
  return t.apply(
      {name, one(x), saves_input ? one(x) : std::span<const Tensor>(), saves_output, elementwise_gradient()},
      elementwise(x->shape), x->type);
}

}  // namespace

Element promoted(const Tensor& a, const Tensor& b) {
  // at::result_type(): a tensor without dimensions does not widen the other one. Otherwise f32 wins; bf16 and
  // f16 never meet, because a run has one narrow type.
  if (a->shape.dims == 0 && is_floating(b->type)) return b->type;
  if (b->shape.dims == 0 && is_floating(a->type)) return a->type;
  if (a->type == b->type) return a->type;
  return a->type == Element::kF32 || b->type == Element::kF32 ? Element::kF32 : a->type;
}

Tensor add(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply({"sum",
                  inputs,
                  {},
                  false,
                  [](BackwardCall& c) {
                    // AddBackward0 returns the same tensor for both inputs. An alias counts as a second
                    // tensor of the memory, so that the engine adds to neither of them in place.
                    if (c.needs(0)) c.results[0] = c.needs(1) ? c.tape.alias(c.grads[0]) : c.grads[0];
                    if (c.needs(1)) c.results[1] = c.take();
                  }},
                 elementwise(a->shape, b->shape), promoted(a, b));
}

Tensor subtract(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply({"difference",
                  inputs,
                  {},
                  false,
                  [](BackwardCall& c) {
                    // -grad is a tensor of its own; the other input has the gradient as it arrived.
                    if (c.needs(1)) c.results[1] = like(c.tape, c.grads[0]);
                    if (c.needs(0)) c.results[0] = c.take();
                  }},
                 elementwise(a->shape, b->shape), promoted(a, b));
}

Tensor add_in_place(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply_view({"sum",
                       inputs,
                       {},
                       false,
                       [](BackwardCall& c) {
                         // As add(): in place or not, both inputs have the same gradient.
                         if (c.needs(0)) c.results[0] = c.tape.alias(c.grads[0]);
                         if (c.needs(1)) c.results[1] = c.take();
                       }},
                      a, a->shape);
}

Tensor divide(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  // grad / b needs b; a is needed for the gradient of b only, which does not exist.
  return t.apply({"quotient", inputs, one(b), false, elementwise_gradient()}, elementwise(a->shape, b->shape),
                 promoted(a, b));
}

Tensor index_rows(Tape& t, const Tensor& x, const Tensor& at) {
  // index_select_backward: zeros of the size of x, to which the rows of the gradient are added.
  return t.apply({"rows", one(x), one(at), false,
                  [before = x->shape](BackwardCall& c) {
                    c.results[0] =
                        c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient of rows");
                  }},
                 {at->shape[0], x->shape[1]}, x->type);
}

Tensor mul(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  std::array<Tensor, 2> saved;
  std::size_t count = 0;
  // The gradient of a needs b, and that of b needs a: where only one input needs a gradient, only the other
  // is saved. `saved` is [a, b], [a] or [b], so that front() is a and back() is b where they are used.
  const bool a_needs = a->needs_grad(), b_needs = b->needs_grad();
  if (b_needs) saved[count++] = a;
  if (a_needs) saved[count++] = b;
  return t.apply({"product", inputs, std::span(saved.data(), count), false,
                  [](BackwardCall& c) {
                    const Tensor& g = c.grads[0];
                    if (c.needs(0)) c.results[0] = product_gradient(c.tape, g, c.saved.back());
                    if (c.needs(1)) c.results[1] = product_gradient(c.tape, g, c.saved.front());
                  }},
                 elementwise(a->shape, b->shape), promoted(a, b));
}

Tensor mul_number(Tape& t, const Tensor& x) { return unary(t, "scaled", x, false); }
Tensor mul_number_in_place(Tape& t, const Tensor& x) {
  // CopySlices: a copy of the gradient of the base, of which the part that x views is cloned, scaled and
  // copied back.
  return t.apply_view({"scaled",
                       one(x),
                       {},
                       false,
                       [](BackwardCall& c) {
                         c.results[0] = like(c.tape, c.grads[0]);
                         const Tensor part = like(c.tape, c.grads[0]);
                         like(c.tape, part);
                       }},
                      x, x->shape);
}
Tensor div_number(Tape& t, const Tensor& x) { return unary(t, "scaled", x, false); }
Tensor neg(Tape& t, const Tensor& x) { return unary(t, "negated", x, false); }
Tensor silu(Tape& t, const Tensor& x) { return unary(t, "output", x, true); }
Tensor gelu(Tape& t, const Tensor& x) { return unary(t, "output", x, true); }
Tensor tanh(Tape& t, const Tensor& x) { return unary(t, "tanh", x, false, true); }

Tensor add_number(Tape& t, const Tensor& x) {
  const auto unchanged = [](BackwardCall& c) { c.results[0] = c.take(); };
  return t.apply({"shifted", one(x), {}, false, unchanged}, elementwise(x->shape), x->type);
}

Tensor pow(Tape& t, const Tensor& x) {
  // pow_backward(): grad * (exponent * self.pow(exponent - 1)), an expression whose two temporaries exist
  // until its result does.
  return t.apply({"power", one(x), one(x), false,
                  [](BackwardCall& c) {
                    const Tensor power = like(c.tape, c.saved[0]);
                    const Tensor scaled = like(c.tape, power);
                    c.results[0] = product_gradient(c.tape, c.grads[0], scaled);
                  }},
                 elementwise(x->shape), x->type);
}

Tensor rsqrt(Tape& t, const Tensor& x) {
  // -0.5 * grad * result.pow(3): saves the result, not x. Both factors exist when they are multiplied.
  return t.apply({"1/rms",
                  one(x),
                  {},
                  true,
                  [](BackwardCall& c) {
                    const Tensor power = like(c.tape, c.saved[0]);
                    const Tensor scaled = like(c.tape, c.grads[0]);
                    c.results[0] = like(c.tape, power);
                  }},
                 elementwise(x->shape), x->type);
}

Tensor dropout(Tape& t, const Tensor& x, double p) {
  if (p == 0) return x;
  // native_dropout() of CUDA saves a mask of one byte per element and computes the gradient in one kernel.
  // The CPU multiplies with noise of the type of x, which the product then saves.
  if (!t.options.fused_dropout) {
    const Tensor noise = t.make(elementwise(x->shape), x->type, "dropout noise");
    return mul(t, x, noise);
  }
  const Tensor mask = t.make(elementwise(x->shape), Element::kBool, "dropout mask");
  // The mask is a result of the kernel, as the output is: a recomputation that ends with it has both.
  return t.apply({"dropout", one(x), one(mask), false, elementwise_gradient(), false, true},
                 elementwise(x->shape), x->type);
}

Tensor mean(Tape& t, const Tensor& x) {
  Shape shape = x->shape.sliced(-1, 1).made_contiguous();
  return t.apply({"mean",
                  one(x),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    // mean_backward(): the expanded gradient [N, 1] is divided, which allocates [N, H].
                    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                  }},
                 shape, x->type);
}

Tensor sum(Tape& t, const Tensor& x) {
  return t.apply({"sum",
                  one(x),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    // sum_backward(): only a view, expanded with stride 0.
                    const Tensor g = c.take();
                    c.results[0] = c.tape.alias(g, g->shape.expanded(g->shape.dims - 1, before[-1]));
                  }},
                 x->shape.sliced(-1, 1).made_contiguous(), x->type);
}

Tensor sum_of_all(Tape& t, const Tensor& x) {
  return t.apply({"sum",
                  one(x),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    Shape expanded = before;
                    expanded.stride[0] = 0;
                    c.results[0] = c.tape.alias(c.grads[0], expanded);
                  }},
                 {}, x->type);
}

Tensor log_softmax(Tape& t, const Tensor& x, const char* name) {
  // Saves its result. The gradient is one kernel from it.
  return t.apply({name, one(x), {}, true, elementwise_gradient()}, x->shape.made_contiguous(), x->type);
}

Tensor softmax(Tape& t, const Tensor& x, const char* name, std::optional<Element> type) {
  // Saves its result. softmax_backward_cuda_out() multiplies it with the gradient before its kernel runs,
  // into a tensor of their type; the gradient of an f16 input (half_to_float) is in f16.
  return t.apply({name,
                  one(x),
                  {},
                  true,
                  [of = x->type](BackwardCall& c) {
                    const Tensor& grad = c.grads[0];
                    c.results[0] = c.tape.make(elementwise(grad->shape), of, "gradient");
                    c.tape.kernel_temporary(grad->shape.count() * bytes_of(grad->type),
                                            "gradient times probabilities");
                  }},
                 x->shape.made_contiguous(), type.value_or(x->type));
}

Tensor rms_norm(Tape& t, const Tensor& x, const Tensor& weight) {
  const std::array inputs{x, weight};
  // _fused_rms_norm(): two outputs, of which 1/rms [.., 1] is f32 for an x of any type. Its gradient has no
  // temporary tensors of the size of x, other than pow(), mean(), rsqrt() and two products in a row.
  const Tensor scale = t.make(x->shape.sliced(-1, 1).made_contiguous(), Element::kF32, "1/rms");
  const std::array saved{x, weight, scale};
  return t.apply({"output", inputs, saved, false,
                  [](BackwardCall& c) {
                    const Tensor &input = c.saved[0], &w = c.saved[1];
                    c.results[0] = c.tape.make(input->shape.made_contiguous(), input->type, "gradient");
                    c.results[1] = c.tape.make(w->shape, w->type, "gradient of the weight");
                  }},
                 x->shape.made_contiguous(), x->type);
}

Tensor layer_norm(Tape& t, const Tensor& x_, const Tensor& weight_, const Tensor& bias_) {
  // layer_norm() is on the list of functions that autocast runs in f32; weights that FSDP1 gathers in bf16
  // are cast too.
  const auto wide = [&t](const Tensor& a) { return t.autocast_on && a ? to(t, a, Element::kF32) : a; };
  const Tensor x = wide(x_), weight = wide(weight_), bias = wide(bias_);
  Shape rows = x->shape.sliced(-1, 1).made_contiguous();
  const std::array inputs{x, weight, bias};
  const Element statistics = t.options.f32_statistics ? Element::kF32 : x->type;
  // The statistics are outputs of the operator: they are allocated after its result.
  std::array<Tensor, 5> saved{x, weight, {}, {}, bias};
  Tensor out = t.make(x->shape.made_contiguous(), x->type, "output");
  saved[2] = t.make(rows, statistics, "mean");
  saved[3] = t.make(rows, statistics, "1/deviation");
  const Tensor result =
      // Not apply(): the result exists already. The view records the node that keeps x, weights and
      // statistics.
      t.apply_view({"output", inputs, std::span(saved.data(), bias ? 5 : 4), false,
                    [](BackwardCall& c) {
                      // native_layer_norm_backward() has a mask of the gradients that are needed: x, weight,
                      // bias.
                      for (std::size_t i = 0; i < 3; ++i) {
                        const Tensor& of = i ? c.saved[1] : c.saved[0];
                        if (c.needs(i))
                          c.results[i] = c.tape.make(of->shape.made_contiguous(), of->type, "gradient");
                      }
                    }},
                   out, out->shape);
  return result;
}

namespace {

// embedding_dense_backward of CUDA sorts more than 3072 indices: four arrays of 8 bytes per index. Then it
// sums rows of equal indices in f32, in segments of at most 10 indices. Their number is not known before the
// values are, so memory is allocated for the largest one: a segment per different index, plus n / 10.
void embedding_backward_temporaries(Tape& t, const Shape& ids, const Shape& w) {
  const std::uint64_t n = ids.count();
  if (n <= 3072) return;
  const std::uint64_t segments = std::min(n, static_cast<std::uint64_t>(w[0])) + n / 10;
  t.kernel_temporary(4 * 8 * n + segments * static_cast<std::uint64_t>(w[1]) * 4,
                     "sorted indices, sums of rows");
}

}  // namespace

Tensor embedding(Tape& t, const Tensor& ids, const Tensor& w, std::int64_t ranks) {
  return t.apply({"output", one(w), one(ids), false,
                  [shape = w->shape, ranks](BackwardCall& c) {
                    // Dense, [V, H], also if few tokens occur.
                    Shape all = shape;
                    all.size[0] *= ranks;
                    c.results[0] =
                        c.tape.make(all.made_contiguous(), c.grads[0]->type, "gradient of the weight");
                    embedding_backward_temporaries(c.tape, c.saved[0]->shape, all);
                    // DTensor computes it for all words, and then sums the part of each rank.
                    if (ranks > 1)
                      c.results[0] = c.tape.make(shape, c.grads[0]->type, "gradient of the weight");
                  }},
                 {ids->shape[0], ids->shape[1], w->shape[1]}, w->type);
}

Tensor cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets) {
  // cross_entropy() is log_softmax() and nll_loss(). Of the three tensors [N, V] at the peak of many runs one
  // is saved here, and each of the two gradients allocates one: that of the log-probabilities, zeros with one
  // value per row, still exists when that of the logits is computed from it.
  const Tensor probabilities = log_softmax(t, logits, "log-probabilities");
  // total_weight, the second output of nll_loss_forward(): the number of rows that count.
  const Tensor total = t.make({}, Element::kF32, "sum of weights");
  const std::array saved{probabilities, targets, total};
  return t.apply({"loss", one(probabilities), saved, false,
                  [shape = probabilities->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(shape, Element::kF32, "gradient of the log-probabilities");
                  }},
                 {}, Element::kF32);
}

Tensor divide_by_rms(Tape& t, const Tensor& x) {
  const Tensor wide = to(t, x, Element::kF32);
  Tensor scale = pow(t, wide);
  scale = mean(t, scale);
  scale = add_number(t, scale);
  scale = rsqrt(t, scale);
  return mul(t, wide, scale);
}

Tensor gemma_norm(Tape& t, const Tensor& x, const Tensor& weight) {
  Tensor output = divide_by_rms(t, x);
  // output * (1.0 + weight.float()): also in f32, so the product saves the normed x in f32.
  Tensor one_plus = to(t, weight, Element::kF32);
  one_plus = add_number(t, one_plus);
  output = mul(t, output, one_plus);
  one_plus.reset();
  return to(t, output, x->type);
}

}  // namespace trainhost::frameworks
