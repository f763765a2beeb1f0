// See unsloth.hpp. Sources: the modules kernels.fast_lora and kernels.rope_embedding of unsloth, fused_losses
// and gradient_checkpointing of unsloth_zoo, 2026.10.9. Sums into given tensors (addmm_) allocate nothing.
#include "core/frameworks/kernels/unsloth.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/frameworks/kernels/unsloth_adapters.hpp"

namespace trainhost::frameworks {
namespace {

using namespace unsloth_adapters;

/// matmul_lora() of the forward pass. Packed weights are dequantized into the buffer that is kept.
Tensor product(Tape& t, const Tensor& x, const AdaptedWeights& w) {
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = sizes_of(w).shape[0];
  Tensor out = t.make(shape.made_contiguous(), x->type, "output");
  Tensor a = cast_adapter(t, w.a, x->type);
  const Tensor small = t.make({rows_of(x), w.a->shape[0]}, x->type, "product with A");
  a.reset();
  cast_adapter(t, w.b, x->type);
  return out;
}

/// Gradients of A and B. Returns the gradient of the product with A, which a variable keeps.
Tensor adapter_gradients(Tape& t, const Sizes& s, std::int64_t rows, Element type, Tensor& of_a,
                         Tensor& of_b) {
  of_a = t.make({s.rank, s.shape[1]}, type, "gradient of A");
  of_b = t.make({s.shape[0], s.rank}, type, "gradient of B");
  Tensor small = t.make({rows, s.rank}, type, "gradient of the product with A");
  t.make({s.rank, rows}, type, "product with A");
  return small;
}

/// [B, heads, S, D] in memory of the order [B, S, heads, D] (_bshd_buffer()).
Tensor by_tokens(Tape& t, const Tensor& like) {
  const Shape tokens = like->shape.transposed(1, 2);
  const Tensor out = t.make(tokens.made_contiguous(), like->type, "gradient");
  return t.alias(out, out->shape.transposed(1, 2));
}

/// Rows of a chunk of logits (fused_linear_rows()).
std::int64_t rows_of_chunk(std::int64_t rows, std::int64_t width, std::int64_t vocabulary) {
  constexpr std::int64_t kLeast = 512, kMost = 4096, kLeastLogits = 512 * 151936,
                         kBytes = std::int64_t{2} << 30;
  const auto power_below = [](std::int64_t n) {
    return static_cast<std::int64_t>(
        std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  };
  const std::int64_t least = std::clamp(power_below(kLeastLogits / vocabulary), kLeast, kMost);
  std::int64_t n = std::clamp(power_below(rows * width / vocabulary), least, kMost);
  n = std::min(n, std::max<std::int64_t>(kBytes / (4 * vocabulary), 2));
  return std::min(n, rows);
}

constexpr std::int64_t kTileColumns = 16384, kTileRows = 4096;

}  // namespace

std::array<Tensor, 3> unsloth_qkv(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w) {
  std::vector<Tensor> inputs{x}, saved{x}, made;
  for (const AdaptedWeights& each : w) {
    made.push_back(product(t, x, each));
    inputs.insert(inputs.end(), {each.a, each.b});
    saved.insert(saved.end(), {each.a, each.b});
  }
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  const std::vector<Tensor> out =
      t.apply_many({"output", inputs, saved, false,
                    [sizes, type = x->type, own = w[0].a->type](BackwardCall& c) {
                      std::array<Tensor, 3> gradients, small;
                      for (std::size_t i = 0; i < 3; ++i) gradients[i] = as_rows(c.tape, c.grads[i]);
                      const std::vector<Tensor> adapters = cast_adapters(c.tape, sizes, type, own);
                      for (std::size_t i = 0; i < 3; ++i)
                        small[i] = adapter_gradients(c.tape, sizes[i], gradients[i]->shape[0], type,
                                                     c.results[1 + 2 * i], c.results[2 + 2 * i]);
                      for (const Sizes& s : sizes) dequantized(c.tape, s);
                      if (c.needs(0)) c.results[0] = c.tape.alias(c.saved[0]);
                    }},
                   [&] {
                     return std::vector<Tensor>{t.alias(made[0]), t.alias(made[1]), t.alias(made[2])};
                   });
  return {out[0], out[1], out[2]};
}

Tensor unsloth_mlp(Tape& t, const Tensor& x, const std::array<AdaptedWeights, 3>& w) {
  const Tensor gate = product(t, x, w[0]), up = product(t, x, w[1]);
  const Tensor hidden = t.make(gate->shape, gate->type, "product of gate and up");
  const Tensor out = product(t, hidden, w[2]);
  std::vector<Tensor> inputs{x}, saved{x, gate, up};
  for (const AdaptedWeights& each : w) {
    inputs.insert(inputs.end(), {each.a, each.b});
    saved.insert(saved.end(), {each.a, each.b});
  }
  const std::array<Sizes, 3> sizes{sizes_of(w[0]), sizes_of(w[1]), sizes_of(w[2])};
  return t.apply_view({"output", inputs, saved, false,
                       [sizes, type = x->type, own = w[0].a->type, wide = gate->shape](BackwardCall& c) {
                         Tape& tape = c.tape;
                         const std::int64_t rows = rows_of(c.saved[0]);
                         const std::vector<Tensor> adapters = cast_adapters(tape, sizes, type, own);
                         // The activation writes over this gradient, gate and up.
                         const Tensor of_hidden =
                             tape.make(wide, type, "gradient of the product of gate and up");
                         tape.make({rows, sizes[2].rank}, type, "gradient of the product with A");
                         // Variables keep those of up and gate for the gradient of x.
                         std::array<Tensor, 2> small;
                         adapter_gradients(tape, sizes[2], rows, type, c.results[5], c.results[6]);
                         for (const std::size_t i : {1u, 0u})
                           small[i] = adapter_gradients(tape, sizes[i], rows, type, c.results[1 + 2 * i],
                                                        c.results[2 + 2 * i]);
                         for (const std::size_t i : {1u, 0u}) dequantized(tape, sizes[i]);
                         if (c.needs(0)) c.results[0] = tape.alias(c.saved[0]);
                       }},
                      out, out->shape);
}

Tensor unsloth_output(Tape& t, const Tensor& x, const AdaptedWeights& w) {
  const Tensor out = product(t, x, w);
  const std::array inputs{x, w.a, w.b};
  const std::array saved{w.a, w.b, x};
  return t.apply_view(
      {"output", inputs, saved, false,
       [s = sizes_of(w), type = x->type, own = w.a->type](BackwardCall& c) {
         const Tensor g = as_rows(c.tape, c.grads[0]);
         const std::vector<Tensor> adapters = cast_adapters(c.tape, std::span(&s, 1), type, own);
         const Tensor small = adapter_gradients(c.tape, s, g->shape[0], type, c.results[1], c.results[2]);
         const Tensor weight = dequantized(c.tape, s);
         c.results[0] = c.tape.make(c.saved[2]->shape.made_contiguous(), type, "gradient of the input");
       }},
      out, out->shape);
}

std::pair<Tensor, Tensor> unsloth_rope(Tape& t, const Tensor& q, const Tensor& k) {
  const std::array inputs{q, k};
  const std::vector<Tensor> out = t.apply_many({"rotated",
                                                inputs,
                                                {},
                                                false,
                                                [](BackwardCall& c) {
                                                  for (std::size_t i = 0; i < 2; ++i)
                                                    c.results[i] = by_tokens(c.tape, c.grads[i]);
                                                }},
                                               [&] {
                                                 return std::vector<Tensor>{t.alias(q), t.alias(k)};
                                               });
  return {out[0], out[1]};
}

Tensor unsloth_loss(Tape& t, const Tensor& hidden, const Tensor& head, std::int64_t targets,
                    bool tiles_always) {
  const std::int64_t rows = hidden->shape[0], width = hidden->shape[1], vocabulary = head->shape[0];
  const auto f32 = [&](const Shape& shape, const char* name) { return t.make(shape, Element::kF32, name); };
  const Tensor labels = t.make({rows}, Element::kI64, "labels, moved by one token");
  const Tensor places = t.make({targets}, Element::kI64, "rows that count");
  const Tensor gradient =
      t.make(hidden->shape.made_contiguous(), hidden->type, "gradient of the hidden states");
  Tensor loss;
  {
    const Tensor log_probabilities = f32({targets}, "log-probabilities");
    // _tiled_vocab(), _flash_min_rows().
    const std::int64_t splits = (vocabulary + kTileColumns - 1) / kTileColumns;
    const bool tiled = splits > 2 && (tiles_always || targets >= kTileRows);
    const std::int64_t chunk =
        tiled ? std::min(kTileRows, targets) : rows_of_chunk(targets, width, vocabulary);
    const Tensor logits = f32({chunk, tiled ? kTileColumns : (vocabulary + 7) / 8 * 8}, "logits of a chunk");
    Tensor sums, maxima, of_chunk;
    if (tiled) {
      sums = f32({targets}, "log-sum-exp");
      of_chunk = f32({chunk, width}, "gradient of a chunk");
      maxima = f32({chunk}, "maxima");
    }
    // Rows are copied where some do not count: the last token of each sequence has no label.
    const Tensor part =
        targets < rows ? t.make({chunk, width}, hidden->type, "hidden states of a chunk") : Tensor();
    const Tensor labels_of_chunk = t.make({chunk}, Element::kI64, "labels of a chunk");
    if (tiled)
      f32({8, splits, chunk}, "sums of each tile");
    else
      f32({chunk, width}, "gradient of a chunk");
    loss = f32({}, "loss");
  }
  const std::array inputs{hidden};
  const std::array saved{gradient};
  return t.apply_view({"loss", inputs, saved, false,
                       [](BackwardCall& c) {
                         c.results[0] = c.tape.make(c.saved[0]->shape, c.saved[0]->type, "gradient, scaled");
                       }},
                      loss, loss->shape);
}

HostMemory host_memory_of_unsloth(std::uint64_t layers, std::uint64_t bytes) {
  // initialize_unsloth_gradient_checkpointing(): buffers that grow when they are first used. The first step
  // moves the input of the last layer too.
  constexpr std::uint64_t kBuffers = 200, kInitialBytes = 256 << 10;
  HostMemory host;
  if (bytes <= kLeastOffloadedByUnsloth) return host;
  for (std::uint64_t i = 0; i < layers; ++i) host.add(bytes, Purpose::kActivations, "inputs of layers", true);
  // A block stays when its buffer gets a larger one.
  for (std::uint64_t i = 0; i < kBuffers; ++i)
    host.add(kInitialBytes, Purpose::kActivations, "first blocks of the buffers", true);
  return host;
}

}  // namespace trainhost::frameworks
