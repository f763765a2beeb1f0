#include "core/frameworks/operators.hpp"

#include <algorithm>
#include <array>

namespace trainhost::frameworks {
namespace {

std::span<const Tensor> one(const Tensor& t) { return std::span(&t, 1); }

/// Gradient with the sizes of g, by an operator that allocates it.
Tensor like(Tape& t, const Tensor& g) { return t.make(elementwise(g->shape), g->type, "gradient"); }

/// g times something of the other's sizes and type.
Tensor product_gradient(Tape& t, const Tensor& g, const Tensor& other) {
  return t.make(elementwise(g->shape, other->shape), promoted(g, other), "gradient");
}

Backward passes_on() {
  return [](BackwardCall& c) { c.results[0] = c.take(); };
}

Backward elementwise_gradient() {
  return [](BackwardCall& c) { c.results[0] = like(c.tape, c.grads[0]); };
}

Tensor view_operator(Tape& t, const char* name, const Tensor& x, const Shape& shape, Backward backward) {
  return t.apply_view({name, one(x), {}, false, std::move(backward)}, x, shape);
}

/// An operator on one tensor whose gradient is one operator.
Tensor unary(Tape& t, const char* name, const Tensor& x, bool saves_input, bool saves_output = false) {
  return t.apply(
      {name, one(x), saves_input ? one(x) : std::span<const Tensor>(), saves_output, elementwise_gradient()},
      elementwise(x->shape), x->type);
}

}  // namespace

Element promoted(const Tensor& a, const Tensor& b) {
  if (a->shape.dims == 0 && is_floating(b->type)) return b->type;
  if (b->shape.dims == 0 && is_floating(a->type)) return a->type;
  if (a->type == b->type) return a->type;
  return a->type == Element::kF32 || b->type == Element::kF32 ? Element::kF32 : a->type;
}

Tensor reshaped_gradient(Tape& t, Tensor g, const Shape& sizes) {
  if (const std::optional<Shape> s = g->shape.viewed(sizes)) {
    g = t.alias(g, *s);
    return g;
  }
  return t.make(sizes.made_contiguous(), g->type, "gradient, copied");
}

Tensor to(Tape& t, const Tensor& x, Element type) {
  if (x->type == type) return x;
  return t.apply({"cast",
                  one(x),
                  {},
                  false,
                  [type = x->type](BackwardCall& c) {
                    c.results[0] = c.tape.make(elementwise(c.grads[0]->shape), type, "gradient, cast");
                  }},
                 elementwise(x->shape), type);
}

Tensor view(Tape& t, const Tensor& x, const Shape& sizes) {
  const std::optional<Shape> shape = x->shape.viewed(sizes);
  return view_operator(t, "view", x, shape.value_or(sizes), [before = x->shape](BackwardCall& c) {
    c.results[0] = reshaped_gradient(c.tape, c.take(), before);
  });
}

Tensor contiguous(Tape& t, const Tensor& x) {
  if (x->shape.contiguous()) return x;
  return t.apply({"copy", one(x), {}, false, passes_on()}, x->shape.made_contiguous(), x->type);
}

Tensor reshape(Tape& t, const Tensor& x, const Shape& sizes) {
  if (x->shape.viewed(sizes)) return view(t, x, sizes);
  const Tensor copy = t.apply({"copy", one(x), {}, false, passes_on()}, x->shape.made_contiguous(), x->type);
  return view(t, copy, sizes);
}

Tensor transpose(Tape& t, const Tensor& x, int a, int b) {
  return view_operator(t, "transpose", x, x->shape.transposed(a, b), [a, b](BackwardCall& c) {
    const Tensor g = c.take();
    c.results[0] = c.tape.alias(g, g->shape.transposed(a, b));
  });
}

Tensor unsqueeze(Tape& t, const Tensor& x, int dim) {
  return view_operator(t, "unsqueeze", x, x->shape.unsqueezed(dim), [before = x->shape](BackwardCall& c) {
    c.results[0] = reshaped_gradient(c.tape, c.take(), before);
  });
}

Tensor expand(Tape& t, const Tensor& x, int dim, std::int64_t n) {
  return view_operator(t, "expand", x, x->shape.expanded(dim, n), passes_on());  // the engine sums
}

Tensor slice(Tape& t, const Tensor& x, int dim, std::int64_t n) {
  return view_operator(t, "slice", x, x->shape.sliced(dim, n), [before = x->shape](BackwardCall& c) {
    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient of a slice");
  });
}

std::vector<Tensor> split(Tape& t, const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  std::vector<Shape> shapes;
  for (const std::int64_t n : sizes) shapes.push_back(x->shape.sliced(-1, n));
  return t.apply_views({"split",
                        one(x),
                        {},
                        false,
                        [before = x->shape](BackwardCall& c) {
                          Element type = Element::kF32;
                          for (const Tensor& g : c.grads)
                            if (g) type = g->type;
                          c.results[0] = c.tape.make(before.made_contiguous(), type, "gradient of the parts");
                        }},
                       x, shapes);
}

Tensor concatenate(Tape& t, std::initializer_list<Tensor> parts) {
  const std::vector<Tensor> inputs(parts);
  Shape shape = inputs[0]->shape;
  std::vector<std::int64_t> widths;
  std::int64_t width = 0;
  for (const Tensor& p : inputs) widths.push_back(p->shape[-1]), width += p->shape[-1];
  shape.size[shape.dims - 1] = width;
  return t.apply({"cat",
                  inputs,
                  {},
                  false,
                  [widths](BackwardCall& c) {
                    const Tensor g = c.take();
                    for (std::size_t i = 0; i < widths.size(); ++i)
                      if (c.needs(i)) c.results[i] = c.tape.alias(g, g->shape.sliced(-1, widths[i]));
                  }},
                 shape.made_contiguous(), inputs[0]->type);
}

namespace {

/// The gradient of a view has the sizes and the type of its input.
Tensor typed_view(Tape& t, const char* name, const Tensor& x, const Shape& shape, Element type) {
  Tensor out = view_operator(t, name, x, shape, [before = x->shape, was = x->type](BackwardCall& c) {
    c.results[0] = c.tape.alias(c.take(), before.made_contiguous());
    c.results[0]->type = was;
  });
  out->type = type;
  return out;
}

}  // namespace

Tensor view_as_complex(Tape& t, const Tensor& x) {
  Shape pairs = x->shape;
  pairs.size[pairs.dims - 1] /= 2;
  return typed_view(t, "view_as_complex", x, pairs.made_contiguous(), Element::kComplex);
}

Tensor view_as_real(Tape& t, const Tensor& x, const Shape& sizes) {
  return typed_view(t, "view_as_real", x, sizes.made_contiguous(), Element::kF32);
}

Tensor pad_last(Tape& t, const Tensor& x, std::int64_t multiple) {
  const std::int64_t width = x->shape[-1];
  if (width % multiple == 0) return x;
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = (width + multiple - 1) / multiple * multiple;
  return t.apply({"pad",
                  one(x),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                  }},
                 shape.made_contiguous(), x->type);
}

Tensor add(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply({"sum",
                  inputs,
                  {},
                  false,
                  [](BackwardCall& c) {
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
                         if (c.needs(0)) c.results[0] = c.tape.alias(c.grads[0]);
                         if (c.needs(1)) c.results[1] = c.take();
                       }},
                      a, a->shape);
}

Tensor divide(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply({"quotient", inputs, one(b), false, elementwise_gradient()}, elementwise(a->shape, b->shape),
                 promoted(a, b));
}

Tensor index_rows(Tape& t, const Tensor& x, const Tensor& at) {
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
Tensor div_number(Tape& t, const Tensor& x) { return unary(t, "scaled", x, false); }
Tensor neg(Tape& t, const Tensor& x) { return unary(t, "negated", x, false); }
Tensor silu(Tape& t, const Tensor& x) { return unary(t, "output", x, true); }
Tensor gelu(Tape& t, const Tensor& x) { return unary(t, "output", x, true); }
Tensor tanh(Tape& t, const Tensor& x) { return unary(t, "tanh", x, false, true); }

Tensor add_number(Tape& t, const Tensor& x) {
  return t.apply({"shifted", one(x), {}, false, passes_on()}, elementwise(x->shape), x->type);
}

Tensor pow(Tape& t, const Tensor& x) {
  return t.apply({"power", one(x), one(x), false,
                  [](BackwardCall& c) {
                    const Tensor power = like(c.tape, c.saved[0]);
                    const Tensor scaled = like(c.tape, power);
                    c.results[0] = product_gradient(c.tape, c.grads[0], scaled);
                  }},
                 elementwise(x->shape), x->type);
}

Tensor rsqrt(Tape& t, const Tensor& x) {
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
  if (!t.options.fused_dropout) {
    const Tensor noise = t.make(elementwise(x->shape), x->type, "dropout noise");
    return mul(t, x, noise);
  }
  const Tensor mask = t.make(elementwise(x->shape), Element::kBool, "dropout mask");
  return t.apply({"dropout", one(x), one(mask), false, elementwise_gradient()}, elementwise(x->shape),
                 x->type);
}

Tensor mean(Tape& t, const Tensor& x) {
  Shape shape = x->shape.sliced(-1, 1).made_contiguous();
  return t.apply({"mean",
                  one(x),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
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
                    const Tensor g = c.take();
                    c.results[0] = c.tape.alias(g, g->shape.expanded(g->shape.dims - 1, before[-1]));
                  }},
                 x->shape.sliced(-1, 1).made_contiguous(), x->type);
}

Tensor softmax(Tape& t, const Tensor& x, const char* name) {
  return t.apply({name, one(x), {}, true, elementwise_gradient()}, x->shape.made_contiguous(), x->type);
}

Tensor rms_norm(Tape& t, const Tensor& x, const Tensor& weight) {
  const std::array inputs{x, weight};
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

Tensor layer_norm(Tape& t, const Tensor& x_, const Tensor& weight, const Tensor& bias) {
  const Tensor x = t.autocast_on ? to(t, x_, Element::kF32) : x_;
  Shape rows = x->shape.sliced(-1, 1).made_contiguous();
  const std::array inputs{x, weight, bias};
  const Element statistics = t.options.f32_statistics ? Element::kF32 : x->type;
  // The statistics are outputs of the operator: they are allocated after its result.
  std::array<Tensor, 4> saved{x, weight, {}, {}};
  Tensor out = t.make(x->shape.made_contiguous(), x->type, "output");
  saved[2] = t.make(rows, statistics, "mean");
  saved[3] = t.make(rows, statistics, "1/deviation");
  const Tensor result =
      t.apply_view({"output", inputs, saved, false,
                    [](BackwardCall& c) {
                      for (std::size_t i = 0; i < 3; ++i) {
                        const Tensor& of = i ? c.saved[1] : c.saved[0];
                        if (c.needs(i))
                          c.results[i] = c.tape.make(of->shape.made_contiguous(), of->type, "gradient");
                      }
                    }},
                   out, out->shape);
  return result;
}

Tensor linear(Tape& t, const Tensor& x_, const Tensor& w_, const Tensor& bias_) {
  Tensor bias = bias_ ? t.lowered(bias_) : Tensor();
  const Tensor w = t.lowered(w_);
  const Tensor x = t.lowered(x_);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w->shape[0];
  const std::array inputs{x, w, bias};
  if (t.linear_is_function) {
    const std::array kept{x, w, bias};
    return t.apply({"output", inputs, std::span(kept.data(), bias ? 3 : 2), false,
                    [x_shape = x->shape, w_shape = w->shape](BackwardCall& c) {
                      const Tensor g = c.take();
                      if (c.needs(0))
                        c.results[0] =
                            c.tape.make(x_shape.made_contiguous(), g->type, "gradient of the input");
                      if (c.needs(1)) c.results[1] = c.tape.make(w_shape, g->type, "gradient of the weight");
                      if (c.needs(2))
                        c.results[2] = c.tape.make({w_shape[0]}, g->type, "gradient of the bias");
                    },
                    false, true},
                   shape.made_contiguous(), x->type);
  }
  std::array<Tensor, 2> saved;
  std::size_t count = 0;
  if (w->needs_grad()) saved[count++] = x;
  if (x->needs_grad()) saved[count++] = w;
  const auto rows = static_cast<std::int64_t>(x->shape.count()) / x->shape[-1];
  return t.apply({"output", inputs, std::span(saved.data(), count), false,
                  [x_shape = x->shape, w_shape = w->shape, rows](BackwardCall& c) {
                    const Tensor g = reshaped_gradient(c.tape, c.take(), {rows, w_shape[0]});
                    if (c.needs(1)) c.results[1] = c.tape.make(w_shape, g->type, "gradient of the weight");
                    if (c.needs(0))
                      c.results[0] = c.tape.make(x_shape.made_contiguous(), g->type, "gradient of the input");
                    if (c.needs(2)) c.results[2] = g;
                  },
                  t.keeps_product()},
                 shape.made_contiguous(), x->type);
}

Tensor conv1d(Tape& t, const Tensor& x, const Tensor& w, const Tensor& bias) {
  // The same memory as a linear layer whose weight is stored transposed.
  if (w->shape[1] == 0) return x;
  Tensor b = t.lowered(bias), lowered_w = t.lowered(w), lowered_x = t.lowered(x);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w->shape[1];
  const std::array inputs{lowered_x, lowered_w, b};
  std::array<Tensor, 2> saved;
  std::size_t count = 0;
  if (w->needs_grad()) saved[count++] = lowered_x;
  if (x->needs_grad()) saved[count++] = lowered_w;
  const auto rows = static_cast<std::int64_t>(x->shape.count()) / x->shape[-1];
  return t.apply({"output", inputs, std::span(saved.data(), count), false,
                  [x_shape = x->shape, w_shape = w->shape, rows](BackwardCall& c) {
                    const Tensor g = reshaped_gradient(c.tape, c.take(), {rows, w_shape[1]});
                    if (c.needs(1)) c.results[1] = c.tape.make(w_shape, g->type, "gradient of the weight");
                    if (c.needs(0))
                      c.results[0] = c.tape.make(x_shape.made_contiguous(), g->type, "gradient of the input");
                    if (c.needs(2)) c.results[2] = g;
                  }},
                 shape.made_contiguous(), lowered_x->type);
}

namespace {

/// Three dimensions, as at::bmm() needs them.
Tensor batches(Tape& t, const Tensor& x) {
  return reshape(t, x, {x->shape[0] * x->shape[1], x->shape[2], x->shape[3]});
}

}  // namespace

Tensor matmul(Tape& t, const Tensor& a_, const Tensor& b_) {
  const Tensor lowered_b = t.lowered(b_);
  const Tensor lowered_a = t.lowered(a_);
  const Tensor a = batches(t, lowered_a);
  const Tensor b = batches(t, lowered_b);
  const std::array inputs{a, b};
  std::array<Tensor, 2> saved;
  std::size_t count = 0;
  if (b->needs_grad()) saved[count++] = a;
  if (a->needs_grad()) saved[count++] = b;
  const Tensor out =
      t.apply({"product", inputs, std::span(saved.data(), count), false,
               [a_shape = a->shape, b_shape = b->shape](BackwardCall& c) {
                 if (c.needs(1))
                   c.results[1] = c.tape.make(b_shape.made_contiguous(), c.grads[0]->type, "gradient");
                 if (c.needs(0))
                   c.results[0] = c.tape.make(a_shape.made_contiguous(), c.grads[0]->type, "gradient");
               }},
              {a->shape[0], a->shape[1], b->shape[2]}, a->type);
  return view(t, out, {a_->shape[0], a_->shape[1], a_->shape[2], b_->shape[3]});
}

namespace {

// embedding_dense_backward of CUDA sorts more than 3072 indices, and sums rows of equal indices in f32.
void embedding_backward_temporaries(Tape& t, const Shape& ids, const Shape& w) {
  const std::uint64_t n = ids.count();
  if (n <= 3072) return;
  const std::uint64_t segments = std::min(n, static_cast<std::uint64_t>(w[0])) + n / 10;
  t.kernel_temporary(4 * 8 * n + segments * static_cast<std::uint64_t>(w[1]) * 4,
                     "sorted indices, sums of rows");
}

}  // namespace

Tensor embedding(Tape& t, const Tensor& ids, const Tensor& w) {
  return t.apply({"output", one(w), one(ids), false,
                  [shape = w->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(shape, c.grads[0]->type, "gradient of the weight");
                    embedding_backward_temporaries(c.tape, c.saved[0]->shape, shape);
                  }},
                 {ids->shape[0], ids->shape[1], w->shape[1]}, w->type);
}

Tensor cross_entropy(Tape& t, const Tensor& logits, const Tensor& targets) {
  const Tensor probabilities = softmax(t, logits, "log-probabilities");
  const Tensor total = t.make({}, Element::kF32, "sum of weights");
  const std::array saved{probabilities, targets, total};
  return t.apply({"loss", one(probabilities), saved, false,
                  [shape = probabilities->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(shape, Element::kF32, "gradient of the log-probabilities");
                  }},
                 {}, Element::kF32);
}

}  // namespace trainhost::frameworks
