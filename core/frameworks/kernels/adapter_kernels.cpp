// See adapter_kernels.hpp. Each function is one node: its products exist in memory only where the Python code
// has a variable for them. Scalings, and sums into given tensors (addmm_), allocate nothing.
#include "core/frameworks/kernels/adapter_kernels.hpp"

#include <vector>

namespace trainhost::frameworks {
namespace {

/// Of a linear layer, for the backward pass.
struct Sizes {
  Shape shape;  // [outputs, inputs]
  std::int64_t rank = 0;
  bool quantized = false;
  Element type = Element::kBF16;        // of the dequantized weight
  std::optional<Shape> doubled_scales;  // where the scales have 8 bits

  std::int64_t outputs() const { return shape[0]; }
  std::int64_t inputs() const { return shape[1]; }
};

Sizes sizes_of(const AdaptedWeights& w) {
  Sizes s;
  s.rank = w.a->shape[0];
  s.quantized = w.quantized.has_value();
  s.shape = s.quantized ? w.quantized->shape : w.weight->shape;
  if (!s.quantized) return s;
  s.type = w.quantized->type;
  if (w.quantized->parts.size() > 3) s.doubled_scales = w.quantized->parts[1]->shape;
  return s;
}

std::int64_t rows_of(const Tensor& x) { return static_cast<std::int64_t>(x->shape.count()) / x->shape[-1]; }

/// dequantize(): none where the weight has 16 bits.
Tensor dequantized(Tape& t, const Sizes& s) {
  if (!s.quantized) return {};
  Tensor out = t.make(s.shape, s.type, "dequantized weight");
  if (s.doubled_scales) t.make(*s.doubled_scales, Element::kF32, "scales");
  return out;
}

/// A matrix of the adapter in the type of the products: itself, or a copy.
Tensor narrowed(Tape& t, const Tensor& matrix, Element type) {
  return matrix->type == type ? matrix : t.make(matrix->shape, type, "adapter, cast");
}

/// matmul_lora() of the forward pass.
Tensor product(Tape& t, const Tensor& x, const AdaptedWeights& w) {
  const Sizes s = sizes_of(w);
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = s.outputs();
  Tensor out;
  {
    const Tensor weight = dequantized(t, s);
    out = t.make(shape.made_contiguous(), x->type, "output");
  }
  const Tensor a = narrowed(t, w.a, x->type), b = narrowed(t, w.b, x->type);
  t.make({rows_of(x), s.rank}, x->type, "product with A");
  return out;
}

/// Gradients of A and B. Returns the gradient of the product with A, [rows, r], which the caller's variable
/// keeps for the gradient of the input. of_a, of_b: [r, inputs], [outputs, r].
Tensor adapter_gradients(Tape& t, const Sizes& s, std::int64_t rows, Element type, Tensor& of_a,
                         Tensor& of_b) {
  Tensor small = t.make({rows, s.rank}, type, "gradient of the product with A");
  of_a = t.make({s.rank, s.inputs()}, type, "gradient of A");
  of_b = t.make({s.outputs(), s.rank}, type, "gradient of B");
  t.make({s.rank, rows}, type, "product with A");
  return small;
}

/// A gradient as rows, a copy where the strides do not allow a view.
Tensor as_rows(Tape& t, const Tensor& g) { return reshaped_gradient(t, g, {rows_of(g), g->shape[-1]}); }

/// Appends the adapters in the type of the products, which is when save_for_backward() is called.
void save_adapters(Tape& t, const AdaptedWeights& w, Element type, std::vector<Tensor>& saved) {
  saved.push_back(narrowed(t, w.a, type));
  saved.push_back(narrowed(t, w.b, type));
}

}  // namespace

std::array<Tensor, 3> axolotl_qkv(Tape& t, const Tensor& x, const Tensor& dropped,
                                  const std::array<AdaptedWeights, 3>& w) {
  const Tensor& adapted = dropped ? dropped : x;
  std::vector<Tensor> inputs{x, dropped}, saved{x, adapted}, made;
  for (const AdaptedWeights& each : w) {
    made.push_back(product(t, x, each));
    inputs.push_back(each.a), inputs.push_back(each.b);
  }
  for (const AdaptedWeights& each : w) save_adapters(t, each, x->type, saved);
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  const bool drops = static_cast<bool>(dropped);
  const std::vector<Tensor> out = t.apply_many(
      {"output", inputs, saved, false,
       [sizes, drops, shape = x->shape, type = x->type](BackwardCall& c) {
         std::array<Tensor, 3> gradients, small;
         // k_grad is a variable of reshape(), which may copy; the others are views.
         for (std::size_t i = 0; i < 3; ++i) gradients[i] = as_rows(c.tape, c.grads[i]);
         const std::int64_t rows = gradients[0]->shape[0];
         for (std::size_t i = 0; i < 3; ++i)
           small[i] =
               adapter_gradients(c.tape, sizes[i], rows, type, c.results[2 + 2 * i], c.results[3 + 2 * i]);
         Tensor of_input;
         for (std::size_t i = 0; i < 3; ++i) {
           const Tensor weight = dequantized(c.tape, sizes[i]);
           if (i == 0) of_input = c.tape.make(shape.made_contiguous(), type, "gradient of the input");
         }
         if (drops)
           c.results[1] = c.tape.make(shape.made_contiguous(), type, "gradient of the dropped input");
         if (c.needs(0)) c.results[0] = of_input;
       }},
      [&] {
        return std::vector<Tensor>{t.alias(made[0]), t.alias(made[1]), t.alias(made[2])};
      });
  return {out[0], out[1], out[2]};
}

Tensor axolotl_mlp(Tape& t, const Tensor& x, const Tensor& dropped, const std::array<AdaptedWeights, 3>& w) {
  const Tensor gate = product(t, x, w[0]), up = product(t, x, w[1]);
  Tensor hidden = t.make(gate->shape, gate->type, "product of gate and up");
  const Tensor out = product(t, hidden, w[2]);
  std::vector<Tensor> inputs{x, dropped}, saved{x, dropped ? dropped : x, gate, up};
  for (const AdaptedWeights& each : w) {
    inputs.push_back(each.a), inputs.push_back(each.b);
    save_adapters(t, each, x->type, saved);
  }
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  const bool drops = static_cast<bool>(dropped);
  return t.apply_view(
      {"output", inputs, saved, false,
       [sizes, drops, shape = x->shape, type = x->type, wide = gate->shape](BackwardCall& c) {
         Tape& tape = c.tape;
         const std::int64_t rows = static_cast<std::int64_t>(shape.count()) / shape[-1];
         const auto& [gate_size, up_size, down_size] = sizes;
         // matmul_lora() with the transposed adapter. The activation writes over this gradient, gate and up.
         Tensor of_hidden;
         {
           const Tensor weight = dequantized(tape, down_size);
           of_hidden = tape.make(wide, type, "gradient of the product of gate and up");
         }
         tape.make({rows, down_size.rank}, type, "gradient of the product with A");
         const Tensor small_down = adapter_gradients(tape, down_size, rows, type, c.results[6], c.results[7]);
         const Tensor small_up = adapter_gradients(tape, up_size, rows, type, c.results[4], c.results[5]);
         const Tensor small_gate = adapter_gradients(tape, gate_size, rows, type, c.results[2], c.results[3]);
         if (!c.needs(0)) return;
         {
           const Tensor weight = dequantized(tape, up_size);
           c.results[0] = tape.make(shape.made_contiguous(), type, "gradient of the input");
         }
         dequantized(tape, gate_size);
         if (drops) c.results[1] = tape.make(shape.made_contiguous(), type, "gradient of the dropped input");
       }},
      out, out->shape);
}

Tensor axolotl_output(Tape& t, const Tensor& x, const Tensor& dropped, const AdaptedWeights& w) {
  const Tensor out = product(t, x, w);
  const std::array inputs{x, dropped, w.a, w.b};
  std::vector<Tensor> saved;
  save_adapters(t, w, x->type, saved);
  saved.push_back(x), saved.push_back(dropped ? dropped : x);
  const bool drops = static_cast<bool>(dropped);
  return t.apply_view(
      {"output", inputs, saved, false,
       [s = sizes_of(w), drops, shape = x->shape, type = x->type](BackwardCall& c) {
         const Tensor g = as_rows(c.tape, c.grads[0]);
         const Tensor small = adapter_gradients(c.tape, s, g->shape[0], type, c.results[2], c.results[3]);
         {
           const Tensor weight = dequantized(c.tape, s);
           c.results[0] = c.tape.make(shape.made_contiguous(), type, "gradient of the input");
         }
         if (!drops) return;
         const Tensor unscaled = c.tape.make(shape.made_contiguous(), type, "gradient of the dropped input");
         c.results[1] = c.tape.make(shape.made_contiguous(), type, "gradient of the dropped input");
       }},
      out, out->shape);
}

}  // namespace trainhost::frameworks
