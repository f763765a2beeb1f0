// Views and copies: which operators only give memory another shape, which copy it, and which gradients are
// views again. Autograd saves no tensor for any of them, only sizes. Elementwise operators, reductions and
// losses: operators.cpp; products: operators_products.cpp.
#include <array>
#include <cassert>
#include <span>
#include <utility>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// The gradient of a copy is the gradient itself (CloneBackward0).
Backward passes_on() {
  return [](BackwardCall& c) { c.results[0] = c.take(); };
}

Tensor view_operator(Tape& t, const char* name, const Tensor& x, const Shape& shape, Backward backward) {
  return t.apply_view({name, std::span(&x, 1), {}, false, std::move(backward)}, x, shape);
}

}  // namespace

Tensor reshaped_gradient(Tape& t, Tensor g, const Shape& sizes) {
  // grad.reshape(): a view, unless the strides of the gradient do not allow one.
  if (const std::optional<Shape> s = g->shape.viewed(sizes)) {
    g = t.alias(g, *s);
    return g;
  }
  return t.make(sizes.made_contiguous(), g->type, "gradient, copied");
}

Tensor to(Tape& t, const Tensor& x, Element type) {
  // torch's to() returns the tensor itself, without a node. ToCopyBackward0 saves the type of x, not x: the
  // memory of x is free as soon as nothing else needs it.
  if (x->type == type) return x;
  return t.apply({"cast",
                  std::span(&x, 1),
                  {},
                  false,
                  [type = x->type](BackwardCall& c) {
                    c.results[0] = c.tape.make(elementwise(c.grads[0]->shape), type, "gradient, cast");
                  }},
                 elementwise(x->shape), type);
}

Tensor view(Tape& t, const Tensor& x, const Shape& sizes) {
  const std::optional<Shape> shape = x->shape.viewed(sizes);
  assert(shape && "torch's view() fails where the strides do not allow it; use reshape()");
  return view_operator(t, "view", x, *shape, [before = x->shape](BackwardCall& c) {
    c.results[0] = reshaped_gradient(c.tape, c.take(), before);
  });
}

Tensor contiguous(Tape& t, const Tensor& x) {
  if (x->shape.contiguous()) return x;
  return t.apply({"copy", std::span(&x, 1), {}, false, passes_on()}, x->shape.made_contiguous(), x->type);
}

Tensor clone(Tape& t, const Tensor& x) {
  return t.apply({"copy", std::span(&x, 1), {}, false, passes_on()}, elementwise(x->shape), x->type);
}

Tensor reshape(Tape& t, const Tensor& x, const Shape& sizes) {
  // at::reshape(): view() where it exists, otherwise clone() and _unsafe_view(). The copy belongs to the view
  // alone, x is not kept by it.
  if (x->shape.viewed(sizes)) return view(t, x, sizes);
  const Tensor copy =
      t.apply({"copy", std::span(&x, 1), {}, false, passes_on()}, x->shape.made_contiguous(), x->type);
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
  // The gradient stays as large as the expanded tensor until the engine sums it to the sizes of x.
  return view_operator(t, "expand", x, x->shape.expanded(dim, n), passes_on());
}

Tensor slice(Tape& t, const Tensor& x, int dim, std::int64_t n) {
  // slice_backward(): zeros of the size of x, into which the gradient is copied. Two slices of one tensor
  // thus have two gradients of its full size, which the engine adds.
  return view_operator(t, "slice", x, x->shape.sliced(dim, n), [before = x->shape](BackwardCall& c) {
    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient of a slice");
  });
}

Tensor every_second(Tape& t, const Tensor& x) {
  Shape shape = x->shape.sliced(-1, x->shape[-1] / 2);
  shape.stride[shape.dims - 1] *= 2;
  return view_operator(t, "slice", x, shape, [before = x->shape](BackwardCall& c) {
    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient of a slice");
  });
}

Tensor stack_pairs(Tape& t, const Tensor& a, const Tensor& b) {
  // The gradients are views of that of the result (unbind()).
  const std::array inputs{a, b};
  Shape pairs = a->shape.unsqueezed(a->shape.dims).made_contiguous(), flat = a->shape;
  pairs.size[pairs.dims - 1] = 2;
  flat.size[flat.dims - 1] *= 2;
  const Tensor stacked = t.apply({"stack",
                                  inputs,
                                  {},
                                  false,
                                  [](BackwardCall& c) {
                                    const Tensor g = c.take();
                                    Shape part = g->shape;
                                    --part.dims;
                                    for (std::size_t i = 0; i < 2; ++i)
                                      if (c.needs(i)) c.results[i] = c.tape.alias(g, part);
                                  }},
                                 pairs.made_contiguous(), a->type);
  return view(t, stacked, flat);
}

std::vector<Tensor> split(Tape& t, const Tensor& x, std::initializer_list<std::int64_t> sizes) {
  // split_with_sizes_backward() concatenates the gradients of all parts: one tensor of the size of x, unlike
  // that of as many slices.
  std::vector<Shape> shapes;
  for (const std::int64_t n : sizes) shapes.push_back(x->shape.sliced(-1, n));
  return t.apply_views({"split",
                        std::span(&x, 1),
                        {},
                        false,
                        [before = x->shape](BackwardCall& c) {
                          // The type of any part that has a gradient: all have the same.
                          Element type = Element::kF32;
                          for (const Tensor& g : c.grads)
                            if (g) type = g->type;
                          c.results[0] = c.tape.make(before.made_contiguous(), type, "gradient of the parts");
                        }},
                       x, shapes);
}

Tensor concatenate(Tape& t, std::initializer_list<Tensor> parts) {
  // The result is a copy of all parts; nothing is saved. cat_tensors_backward() narrows the gradient: views,
  // which keep the whole of it until the gradient of each part has been used.
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

/// The same memory with another type of elements. Its gradient is a view too, with the sizes and the type of
/// the input.
Tensor typed_view(Tape& t, const char* name, const Tensor& x, const Shape& shape, Element type) {
  assert(x->shape.contiguous());
  Tensor out = view_operator(t, name, x, shape, [before = x->shape, was = x->type](BackwardCall& c) {
    c.results[0] = c.tape.alias(c.take(), before.made_contiguous());
    c.results[0]->type = was;
  });
  out->type = type;
  return out;
}

}  // namespace

Tensor view_as_complex(Tape& t, const Tensor& x) {
  assert(x->shape[-1] % 2 == 0 && x->type == Element::kF32);
  Shape pairs = x->shape;
  pairs.size[pairs.dims - 1] /= 2;
  return typed_view(t, "view_as_complex", x, pairs.made_contiguous(), Element::kComplex);
}

Tensor view_as_real(Tape& t, const Tensor& x, const Shape& sizes) {
  return typed_view(t, "view_as_real", x, sizes.made_contiguous(), Element::kF32);
}

Tensor pad_last(Tape& t, const Tensor& x, std::int64_t multiple) {
  // pad(): a copy where the width is no multiple, else x itself. The gradient is narrowed and cloned.
  const std::int64_t width = x->shape[-1];
  if (width % multiple == 0) return x;
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = (width + multiple - 1) / multiple * multiple;
  return t.apply({"pad",
                  std::span(&x, 1),
                  {},
                  false,
                  [before = x->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                  }},
                 shape.made_contiguous(), x->type);
}

}  // namespace trainhost::frameworks
