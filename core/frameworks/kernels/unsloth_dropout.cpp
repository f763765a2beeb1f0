// The functions of Unsloth with dropout before the adapters (lora_dropout): the branch of dropout_p in the
// module kernels.fast_lora of unsloth 2026.10.9. See unsloth.hpp. The products of the base have the input
// itself, those of the adapters the dropped one, which the backward pass makes again from the mask. Packed
// weights are dequantized into tensors of their own in both passes.
#include <vector>

#include "core/frameworks/kernels/unsloth.hpp"
#include "core/frameworks/kernels/unsloth_adapters.hpp"

namespace trainhost::frameworks {
namespace {

using namespace unsloth_adapters;

struct DroppedInput {
  Tensor values, mask;
};

/// native_dropout(): one byte of the mask per element.
DroppedInput drop_input(Tape& t, const Tensor& x) {
  DroppedInput d;
  d.values = t.make(elementwise(x->shape), x->type, "dropped input");
  d.mask = t.make(elementwise(x->shape), Element::kBool, "dropout mask");
  return d;
}

/// _matmul_lora_ext() of x, whose dropped values exist.
Tensor product_of_dropped(Tape& t, const Tensor& x, const AdaptedWeights& w) {
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = sizes_of(w).shape[0];
  Tensor weight = dequantized(t, sizes_of(w));
  Tensor out = t.make(shape.made_contiguous(), x->type, "output");
  weight.reset();
  Tensor a = cast_adapter(t, w.a, x->type);
  const Tensor small = t.make({rows_of(x), w.a->shape[0]}, x->type, "product with A");
  a.reset();
  cast_adapter(t, w.b, x->type);
  return out;
}

/// Adds the gradient of the adapter to that of the input [rows, columns], through the mask (_add_lora_dX()):
/// their product and, while it exists, its masked copy.
void add_through_mask(Tape& t, std::int64_t rows, std::int64_t columns, Element type) {
  Tensor product = t.make({rows, columns}, type, "gradient of the dropped input");
  const Tensor masked = t.make({rows, columns}, type, "gradient of the adapter's input");
  product.reset();
}

void empty_gradients(Tape& t, const Sizes& s, Element type, Tensor& of_a, Tensor& of_b) {
  of_a = t.make({s.rank, s.shape[1]}, type, "gradient of A");
  of_b = t.make({s.shape[0], s.rank}, type, "gradient of B");
}

}  // namespace

std::array<Tensor, 3> unsloth_qkv_dropped(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w) {
  std::vector<Tensor> inputs{x}, saved{x}, made;
  DroppedInput dropped;
  for (const AdaptedWeights& each : w) {
    dropped = drop_input(t, x);  // the one before exists until then
    made.push_back(product_of_dropped(t, x, each));
    saved.push_back(dropped.mask);
    inputs.insert(inputs.end(), {each.a, each.b});
  }
  dropped = {};
  for (const AdaptedWeights& each : w) saved.insert(saved.end(), {each.a, each.b});
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  const std::vector<Tensor> out =
      t.apply_many({"output", inputs, saved, false,
                    [sizes, type = x->type, own = w[0].a->type](BackwardCall& c) {
                      Tape& tape = c.tape;
                      std::array<Tensor, 3> gradients, small;
                      for (std::size_t i = 0; i < 3; ++i) gradients[i] = as_rows(tape, c.grads[i]);
                      const std::vector<Tensor> adapters = cast_adapters(tape, sizes, type, own);
                      for (std::size_t i = 0; i < 3; ++i)
                        empty_gradients(tape, sizes[i], type, c.results[1 + 2 * i], c.results[2 + 2 * i]);
                      const std::int64_t rows = rows_of(c.saved[0]), width = c.saved[0]->shape[-1];
                      for (std::size_t i = 0; i < 3; ++i)
                        small[i] = tape.make({rows, sizes[i].rank}, type, "gradient of the product with A");
                      Tensor again;
                      for (const Sizes& s : sizes) {
                        again = tape.make({rows, width}, type, "dropped input, again");
                        tape.make({s.rank, rows}, type, "product with A");
                      }
                      again.reset();
                      for (const Sizes& s : sizes) {
                        dequantized(tape, s);
                        add_through_mask(tape, rows, width, type);
                      }
                      if (c.needs(0)) c.results[0] = tape.alias(c.saved[0]);
                    }},
                   [&] {
                     return std::vector<Tensor>{t.alias(made[0]), t.alias(made[1]), t.alias(made[2])};
                   });
  return {out[0], out[1], out[2]};
}

Tensor unsloth_mlp_dropped(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w) {
  std::array<Tensor, 3> masks;
  DroppedInput dropped = drop_input(t, x);
  const Tensor gate = product_of_dropped(t, x, w[0]);
  masks[0] = dropped.mask;
  dropped = drop_input(t, x);
  const Tensor up = product_of_dropped(t, x, w[1]);
  masks[1] = dropped.mask;
  dropped = {};
  const Tensor hidden = t.make(gate->shape, gate->type, "product of gate and up");
  dropped = drop_input(t, hidden);
  const Tensor out = product_of_dropped(t, hidden, w[2]);
  masks[2] = dropped.mask;
  dropped = {};
  std::vector<Tensor> inputs{x}, saved{x, gate, up, masks[0], masks[1], masks[2]};
  for (const AdaptedWeights& each : w) {
    inputs.insert(inputs.end(), {each.a, each.b});
    saved.insert(saved.end(), {each.a, each.b});
  }
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  return t.apply_view(
      {"output", inputs, saved, false,
       [sizes, type = x->type, own = w[0].a->type, inner = gate->shape](BackwardCall& c) {
         Tape& tape = c.tape;
         const std::int64_t rows = rows_of(c.saved[0]), width = c.saved[0]->shape[-1];
         const std::vector<Tensor> adapters = cast_adapters(tape, sizes, type, own);
         Tensor weight = dequantized(tape, sizes[2]);
         const Tensor of_hidden = tape.make(inner, type, "gradient of the product of gate and up");
         weight.reset();
         {
           Tensor small = tape.make({rows, sizes[2].rank}, type, "gradient of the product with A");
           Tensor product = tape.make(inner, type, "gradient of the dropped product");
           small.reset();
           const Tensor masked = tape.make(inner, type, "gradient of the adapter's input");
           product.reset();
         }
         // The activation writes over of_hidden, gate and up; a variable keeps the dropped product.
         const Tensor again = tape.make(inner, type, "dropped product of gate and up, again");
         for (const std::size_t i : {2u, 0u, 1u})
           empty_gradients(tape, sizes[i], type, c.results[1 + 2 * i], c.results[2 + 2 * i]);
         tape.make({rows, sizes[2].rank}, type, "gradient of the product with A");
         tape.make({sizes[2].rank, rows}, type, "product with A");
         std::array<Tensor, 2> small;
         for (const std::size_t i : {1u, 0u})
           small[i] = tape.make({rows, sizes[i].rank}, type, "gradient of the product with A");
         Tensor input;
         for (const std::size_t i : {1u, 0u}) {
           input = tape.make({rows, width}, type, "dropped input, again");
           tape.make({sizes[i].rank, rows}, type, "product with A");
         }
         input.reset();
         for (const std::size_t i : {1u, 0u}) {
           dequantized(tape, sizes[i]);
           add_through_mask(tape, rows, width, type);
         }
         if (c.needs(0)) c.results[0] = tape.alias(c.saved[0]);
       }},
      out, out->shape);
}

Tensor unsloth_output_dropped(Tape& t, const Tensor& x, const AdaptedWeights& w) {
  DroppedInput dropped = drop_input(t, x);
  const Tensor out = product_of_dropped(t, x, w);
  dropped.values.reset();
  const std::array inputs{x, w.a, w.b};
  const std::array saved{w.a, w.b, x, dropped.mask};
  return t.apply_view(
      {"output", inputs, saved, false,
       [s = sizes_of(w), type = x->type, own = w.a->type](BackwardCall& c) {
         Tape& tape = c.tape;
         const Tensor g = as_rows(tape, c.grads[0]);
         const std::int64_t rows = g->shape[0], width = s.shape[1];
         const std::vector<Tensor> adapters = cast_adapters(tape, std::span(&s, 1), type, own);
         empty_gradients(tape, s, type, c.results[1], c.results[2]);
         const Tensor small = tape.make({rows, s.rank}, type, "gradient of the product with A");
         {
           const Tensor again = tape.make({rows, width}, type, "dropped input, again");
           tape.make({s.rank, rows}, type, "product with A");
         }
         Tensor weight = dequantized(tape, s);
         c.results[0] = tape.make(c.saved[2]->shape.made_contiguous(), type, "gradient of the input");
         weight.reset();
         add_through_mask(tape, rows, width, type);
       }},
      out, out->shape);
}

}  // namespace trainhost::frameworks
