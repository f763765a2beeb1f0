// See liger.hpp. Sources: liger_kernel/ops of Liger 0.8.5. What a kernel writes in place has no memory of its
// own; the rest is allocated in Python, and is here in the same order.
#include "core/frameworks/kernels/liger.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace trainhost::frameworks {
namespace {

/// ensure_contiguous: arguments of a function of Liger are copied where they are strided.
Tensor contiguous_argument(Tape& t, const Tensor& x) {
  return x->shape.contiguous() ? x : t.make(x->shape.made_contiguous(), x->type, "copy");
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t next_power_of_2(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

/// [B, heads, S, D] of memory in which the heads of a token are contiguous: the tensor itself, or a copy.
Tensor by_tokens(Tape& t, const Tensor& x) {
  const Shape tokens = x->shape.transposed(1, 2);
  if (tokens.contiguous()) return x;
  const Tensor copy = t.make(tokens.made_contiguous(), x->type, "copy");
  return t.alias(copy, copy->shape.transposed(1, 2));
}

}  // namespace

Tensor liger_rms_norm(Tape& t, const Tensor& x_, const Tensor& weight, bool in_place) {
  const Tensor x = contiguous_argument(t, x_);
  const std::int64_t width = x->shape[-1];
  const Tensor out = t.make(x->shape.made_contiguous(), x->type, "output");
  const Tensor scale = t.make({static_cast<std::int64_t>(x->shape.count()) / width}, Element::kF32, "1/rms");
  const std::array inputs{x_, weight};
  const std::array saved{x, weight, scale};
  return t.apply_view(
      {"output", inputs, saved, false,
       [width, in_place](BackwardCall& c) {
         Tape& tape = c.tape;
         const Tensor& w = c.saved[1];
         const Tensor gradient = contiguous_argument(tape, c.grads[0]);
         Tensor parts;  // sums of each multiprocessor
         if (c.needs(1))
           parts = tape.make({tape.options.multiprocessors, width}, Element::kF32, "sums of the gradient");
         const Shape shape = c.saved[0]->shape.made_contiguous();
         c.results[0] = in_place ? tape.alias(gradient, shape) : tape.make(shape, gradient->type, "gradient");
         if (!c.needs(1)) return;
         Tensor sum = tape.make({width}, Element::kF32, "gradient of the weight");
         if (w->type != Element::kF32) sum = tape.make({width}, w->type, "gradient of the weight");
         c.results[1] = std::move(sum);
       }},
      out, out->shape);
}

std::pair<Tensor, Tensor> liger_rope(Tape& t, const Tensor& q, const Tensor& k, const Tensor& cos,
                                     const Tensor& sin) {
  const std::array inputs{q, k};
  const std::array saved{cos, sin};
  const std::vector<Tensor> out =
      t.apply_many({"rotated", inputs, saved, false,
                    [](BackwardCall& c) {
                      for (std::size_t i = 0; i < 2; ++i) {
                        const Tensor rotated = by_tokens(c.tape, c.grads[i]);
                        if (c.needs(i)) c.results[i] = c.tape.alias(rotated);
                      }
                    }},
                   [&] {
                     return std::vector<Tensor>{t.alias(by_tokens(t, q)), t.alias(by_tokens(t, k))};
                   });
  return {out[0], out[1]};
}

Tensor liger_swiglu(Tape& t, const Tensor& gate, const Tensor& up) {
  const std::array inputs{gate, up};
  const std::array saved{contiguous_argument(t, gate), contiguous_argument(t, up)};
  return t.apply({"output", inputs, saved, false,
                  [](BackwardCall& c) {
                    const Tensor gradient = contiguous_argument(c.tape, c.grads[0]);
                    for (std::size_t i = 0; i < 2; ++i)
                      if (c.needs(i)) c.results[i] = c.tape.alias(c.saved[i]);
                  },
                  false, true},
                 gate->shape.made_contiguous(), gate->type);
}

Tensor liger_experts(Tape& t, const Tensor& x, const Tensor& up, const Tensor& down, const Tensor& experts,
                     const Tensor& weights) {
  const std::int64_t tokens = x->shape[0], each = experts->shape[1], rows = tokens * each;
  const std::int64_t count = up->shape[0], width = down->shape[2], hidden = x->shape[1];
  const auto integers = [&](const Shape& shape, const char* name) {
    return t.make(shape, Element::kI32, name);
  };
  const Tensor indices = integers(experts->shape, "experts");
  // compute_routing_metadata(). Tiles of 64 rows of one expert, whose number depends on the data; without
  // kernels nothing knows it.
  constexpr std::int64_t kTile = 64, kTokensPerBlock = 1024;
  const std::int64_t tiles = t.options.kernel_temporaries ? divided_up(rows, kTile) + count : 1;
  Tensor of_expert, starts, gather, scatter, reverse, tile_rows, tile_experts;
  {
    const std::int64_t block = std::max<std::int64_t>(1, kTokensPerBlock / next_power_of_2(each));
    const Tensor counts = integers({count, divided_up(tokens, block)}, "tokens per expert");
    of_expert = integers({count}, "tokens per expert");
    starts = integers({count + 1}, "first row of each expert");
    const Tensor tile_offsets = integers({count + 1}, "first tile of each expert");
    tile_rows = integers({tiles}, "first row of each tile");
    tile_experts = integers({tiles}, "expert of each tile");
    scatter = integers({rows}, "order of the rows");
    reverse = integers({rows}, "original order");
    gather = integers({rows}, "token of each row");
  }
  const Tensor gate_up = t.make({rows, 2 * width}, x->type, "gate and up");
  const Tensor product = t.make({rows, width}, x->type, "product of gate and up");
  const Tensor expanded = t.make({rows, hidden}, x->type, "output of the experts");
  const Tensor out = t.make({tokens, hidden}, x->type, "output");
  const std::array inputs{x, up, down, weights};
  const std::array saved{x,      up,      down,    gate_up,   weights,     starts,
                         gather, scatter, reverse, tile_rows, tile_experts};
  return t.apply_view(
      {"output", inputs, saved, false,
       [rows, width, hidden, weights_shape = weights->shape](BackwardCall& c) {
         Tape& tape = c.tape;
         const Tensor g = contiguous_argument(tape, c.grads[0]);
         const Shape x_shape = c.saved[0]->shape;
         const auto make = [&](const Shape& shape, const char* name) {
           return tape.make(shape, g->type, name);
         };
         const Tensor of_gate_up = make({rows, 2 * width}, "gradient of gate and up");
         const Tensor weighted = make({rows, width}, "weighted product of gate and up");
         const Tensor of_weights = make({rows}, "gradient of the weights of the experts");
         Tensor of_down = tape.make(c.saved[2]->shape, c.saved[2]->type, "gradient of the weight");
         const Tensor of_rows = make({rows, hidden}, "gradient of the rows");
         Tensor of_x = make(x_shape.made_contiguous(), "gradient of the input");
         Tensor of_up = tape.make(c.saved[1]->shape, c.saved[1]->type, "gradient of the weight");
         c.results[0] = std::move(of_x);
         if (c.needs(1)) c.results[1] = std::move(of_up);
         if (c.needs(2)) c.results[2] = std::move(of_down);
         if (c.needs(3)) c.results[3] = tape.alias(of_weights, weights_shape.made_contiguous());
       }},
      out, out->shape);
}

Tensor liger_loss(Tape& t, const Tensor& hidden, const Tensor& head) {
  const std::int64_t rows = hidden->shape[0], width = hidden->shape[1], vocabulary = head->shape[0];
  const bool trained = t.grad_enabled && head->needs_grad();
  const Element product = t.autocast_on ? t.autocast_type : hidden->type;
  // Chunks have as many rows as make their logits about as large as all hidden states.
  const std::int64_t chunk = std::min(rows, next_power_of_2(divided_up(rows, divided_up(vocabulary, width))));
  const Tensor gradient =
      t.make(hidden->shape.made_contiguous(), hidden->type, "gradient of the hidden states");
  Tensor of_head;
  if (trained) of_head = t.make(head->shape, head->type, "gradient of the weight");
  Tensor loss;
  {
    // _can_use_mm_out(): products write into given tensors, unless autocast has to cast their inputs.
    const bool into_given = hidden->type == head->type && product == hidden->type;
    const Tensor losses = t.make({rows}, Element::kF32, "losses");
    const Tensor counted = t.make({rows}, Element::kBool, "labels that count");
    t.make({}, Element::kI64, "number of labels");
    Tensor storage;
    if (into_given) storage = t.make({chunk, vocabulary}, hidden->type, "logits of a chunk");
    const auto cast = [&](const Tensor& x, const Shape& shape) {
      return x->type == product ? x : t.make(shape, product, "cast");
    };
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t n = std::min(chunk, rows - begin);
      Tensor logits = storage;
      if (!into_given) {
        // A transposed weight is no leaf: autocast does not keep its copy.
        const Tensor weight = cast(head, head->shape), part = cast(hidden, {n, width});
        logits = t.make({n, vocabulary}, product, "logits of a chunk");
      }
      if (!into_given || product != hidden->type) {
        const Tensor weight =
            head->parameter && head->requires_grad ? t.lowered(head) : cast(head, head->shape);
        t.make({n, width}, product, "gradient of a chunk");
      }
      if (!trained) continue;
      const Tensor part = cast(hidden, {n, width});
      // addmm() adds to the gradient; only f32 logits have no such path.
      if (product == Element::kF32) t.make(head->shape, product, "gradient of a chunk");
    }
    storage.reset();
    loss = t.make({}, Element::kF32, "loss");
  }
  const std::array inputs{hidden, head};
  const std::array saved{gradient, of_head};
  return t.apply_view({"loss", inputs, std::span(saved.data(), trained ? 2 : 1), false,
                       [trained](BackwardCall& c) {
                         // Compared with the gradient of the loss, for a multiplication in place.
                         c.tape.make({}, Element::kF32, "one");
                         c.results[0] = c.tape.alias(c.saved[0]);
                         if (trained && c.needs(1)) c.results[1] = c.tape.alias(c.saved[1]);
                       }},
                      loss, loss->shape);
}

}  // namespace trainhost::frameworks
