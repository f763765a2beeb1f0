// Products of matrices. The result is one tensor; autograd saves the input for the gradient of the weight,
// and the weight for the gradient of the input, each only where that gradient is needed: LoRA's frozen
// weights keep no input. Products with NF4 weights: nf4.cpp; with experts: decoder_experts.cpp.
#include <array>
#include <cassert>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

Tensor linear(Tape& t, const Tensor& x_, const Tensor& w_, const Tensor& bias_) {
  // Under autocast each product casts its own inputs. The copy of an activation is saved, not the activation
  // itself, so q, k and v keep three copies of their input; that of a weight is cached for the region.
  Tensor bias = bias_ ? t.lowered(bias_) : Tensor();
  const Tensor w = t.lowered(w_);
  const Tensor x = t.lowered(x_);
  assert(x->shape[-1] == w->shape[1]);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = w->shape[0];
  const std::array inputs{x, w, bias};
  if (t.linear_is_function) {
    // LinearFunctionForZeroStage3 of DeepSpeed, with which stage 3 replaces torch's linear(). It saves its
    // inputs whatever they need. The weight is saved as the parameter, whose memory the module gathers again
    // before the backward pass, so that no gathered copy is kept.
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
  // The node of addmm(), or of mm() without a bias, on x as [rows, inputs].
  if (w->needs_grad()) saved[count++] = x;
  if (x->needs_grad()) saved[count++] = w;
  const auto rows = static_cast<std::int64_t>(x->shape.count()) / x->shape[-1];
  return t.apply({"output", inputs, std::span(saved.data(), count), false,
                  [x_shape = x->shape, w_shape = w->shape, rows](BackwardCall& c) {
                    // The gradient of the bias is that of the result; the engine sums its rows.
                    const Tensor g = reshaped_gradient(c.tape, c.take(), {rows, w_shape[0]});
                    if (c.needs(1)) c.results[1] = c.tape.make(w_shape, g->type, "gradient of the weight");
                    if (c.needs(0))
                      c.results[0] = c.tape.make(x_shape.made_contiguous(), g->type, "gradient of the input");
                    if (c.needs(2)) c.results[2] = g;
                  },
                  // Selective recomputation keeps the result of every second product.
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

Tensor selected_rows(Tape& t, const Tensor& x, const Tensor& indices) {
  // x[indices]. IndexBackward0 saves the indices and adds the gradient to zeros of the size of x.
  Shape shape = x->shape;
  shape.size[0] = indices->shape[0];
  return t.apply({"rows", std::span(&x, 1), std::span(&indices, 1), false,
                  [before = x->shape](BackwardCall& c) {
                    Tensor zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    if (c.tape.options.subclass_gradients)  // index_put() instead of index_put_()
                      zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    c.results[0] = std::move(zeros);
                  }},
                 shape.made_contiguous(), x->type);
}

Tensor grouped_product(Tape& t, const Tensor& x, const Tensor& w, const Tensor& offsets) {
  // torch._grouped_mm(): the weights of all experts are one tensor, and so is its gradient. Otherwise as
  // linear().
  const std::array inputs{x, w};
  std::array<Tensor, 3> saved;
  std::size_t count = 0;
  if (w->needs_grad()) saved[count++] = x;
  if (x->needs_grad()) saved[count++] = w;
  if (count) saved[count++] = offsets;
  return t.apply({"output", inputs, std::span(saved.data(), count), false,
                  [x_shape = x->shape, w_shape = w->shape](BackwardCall& c) {
                    const Tensor g = c.take();
                    if (c.needs(1)) c.results[1] = c.tape.make(w_shape, g->type, "gradient of the weight");
                    if (c.needs(0)) c.results[0] = c.tape.make(x_shape, g->type, "gradient of the input");
                  }},
                 {x->shape[0], w->shape[1]}, x->type);
}

}  // namespace trainhost::frameworks
