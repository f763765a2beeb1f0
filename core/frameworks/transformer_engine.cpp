#include "core/frameworks/transformer_engine.hpp"

#include <algorithm>
#include <utility>

namespace trainhost::frameworks {
namespace {

std::span<const Tensor> only(const Tensor& t) { return std::span(&t, 1); }

/// Sizes with another last dimension.
Shape with_features(const Shape& s, std::int64_t features) {
  Shape out = s;
  out.size[out.dims - 1] = features;
  return out.made_contiguous();
}

Shape with_tokens(const Shape& s, std::int64_t tokens) {
  Shape out = s;
  out.size[0] = tokens;
  return out.made_contiguous();
}

Shape tokens_of(const Shape& s) { return {s[0], s[1]}; }

}  // namespace

Tensor TransformerEngine::all_tokens(const Tensor& own, const char* name) {
  return t_.make(with_tokens(own->shape, own->shape[0] * ranks_), own->type, name);
}

Tensor TransformerEngine::part_of_tokens(const Tensor& all, const char* name) {
  return t_.make(with_tokens(all->shape, all->shape[0] / ranks_), all->type, name);
}

Tensor TransformerEngine::new_workspace() {
  constexpr std::int64_t kBytes = (32 << 20) + 1024;  // compute capability 9.0 or higher
  const std::int32_t layer = std::exchange(t_.layer, -1);
  Tensor out = t_.new_storage({kBytes}, Element::kByte, Purpose::kKernel, "",
                              "workspace of products in Transformer Engine");
  t_.layer = layer;
  return out;
}

/// One for all products; the first one allocates it.
void TransformerEngine::use_workspace() {
  if (!workspace_) workspace_ = new_workspace();
}

/// Those of experts run on several streams.
void TransformerEngine::use_grouped_workspaces() {
  constexpr std::size_t kProductStreams = 4;
  while (grouped_workspaces_.size() < kProductStreams) grouped_workspaces_.push_back(new_workspace());
}

void TransformerEngine::add_dummy(const Tensor& weight) {
  const std::array<std::int64_t, 2> sizes{weight->shape[0], weight->shape[1]};
  if (std::ranges::find(dummies_, sizes, [](const auto& d) { return d.first; }) != dummies_.end()) return;
  dummies_.emplace_back(
      sizes, t_.new_storage(weight->shape, weight->type, Purpose::kKernel, t_.module, "dummy gradient"));
}

Tensor TransformerEngine::norm(const Tensor& x, const Tensor& weight) {
  const std::array inputs{x, weight};
  const Tensor scale = t_.make(tokens_of(x->shape), Element::kF32, "1/rms");
  const std::array saved{x, scale};
  return t_.apply({"output of the norm", inputs, saved, false,
                   [weight_shape = weight->shape](BackwardCall& c) {
                     const Tensor& input = c.saved[0];
                     c.results[0] = c.tape.make(input->shape, input->type, "gradient");
                     c.results[1] = c.tape.make(weight_shape, input->type, "gradient of the weight");
                   }},
                  x->shape.made_contiguous(), x->type);
}

Tensor TransformerEngine::norm_linear(const Tensor& x, const Tensor& norm_weight, const Tensor& weight) {
  use_workspace();
  const std::array inputs{x, norm_weight};
  const Tensor scale = t_.make(tokens_of(x->shape), Element::kF32, "1/rms");
  const Tensor normed = t_.make(x->shape, x->type, "output of the norm");
  const Tensor all = gathers_ ? all_tokens(normed, "gathered tokens") : normed;
  const std::array saved{x, normed, scale};
  return t_.apply({"output", inputs, saved, false,
                   [this, weight, features = norm_weight->shape](BackwardCall& c) {
                     Tape& t = c.tape;
                     Tensor& input = c.saved[1];
                     Tensor gathered = gathers_ ? all_tokens(input, "gathered tokens") : Tensor();
                     const Tensor& g = c.grads[0];
                     const Tensor product =
                         t.make(with_features(g->shape, weight->shape[1]), g->type,
                                gathers_ ? "gradient of all tokens" : "gradient of the norm");
                     const Tensor own = gathers_ ? part_of_tokens(product, "gradient of the norm") : product;
                     gathered.reset();
                     input.reset();
                     c.results[0] = t.make(c.saved[0]->shape, g->type, "gradient");
                     c.results[1] = t.make(features, g->type, "gradient of the weight");
                     add_dummy(weight);
                   }},
                  with_features(all->shape, weight->shape[0]), x->type);
}

Tensor TransformerEngine::row_linear(const Tensor& x, const Tensor& weight) {
  use_workspace();
  const Tensor product = t_.make(with_features(x->shape, weight->shape[0]), x->type,
                                 gathers_ ? "output, before it is reduced" : "output");
  const Tensor out = gathers_ ? part_of_tokens(product, "output") : product;
  return t_.apply_view({"output", only(x), only(x), false,
                        [this, weight](BackwardCall& c) {
                          const Tensor g = c.take();
                          const Tensor all = gathers_ ? all_tokens(g, "gradient of all tokens") : g;
                          const Shape& shape = c.saved[0]->shape;
                          c.results[0] = c.tape.make(shape, g->type, "gradient");
                          add_dummy(weight);
                        }},
                       out, out->shape);
}

Tensor TransformerEngine::head(const Tensor& x, const Tensor& weight) {
  if (gathers_ && !gathered_)
    gathered_ = t_.new_storage(with_tokens(x->shape, x->shape[0] * ranks_), x->type, Purpose::kKernel,
                               t_.module, "buffer of gathered tokens");
  Shape shape = with_features(x->shape, weight->shape[0]);
  if (gathers_) shape = with_tokens(shape, x->shape[0] * ranks_);
  return t_.apply(
      {"logits", only(x), only(x), false,
       [this, weight](BackwardCall& c) {
         const Tensor& g = c.grads[0];
         const Tensor product = c.tape.make(with_features(g->shape, weight->shape[1]), g->type, "gradient");
         c.results[0] = gathers_ ? part_of_tokens(product, "gradient of the rank's tokens") : product;
         add_dummy(weight);
       }},
      shape, x->type);
}

Tensor TransformerEngine::swiglu(const Tensor& x) {
  return t_.apply({"output", only(x), only(x), false,
                   [](BackwardCall& c) {
                     const Tensor& input = c.saved[0];
                     c.results[0] = c.tape.make(input->shape, input->type, "gradient");
                   }},
                  with_features(x->shape, x->shape[-1] / 2), x->type);
}

/// All-to-all between parts of the tokens and parts of the heads. What is sent and received is reordered; the
/// results are allocated on a stream of their own.
std::vector<Tensor> TransformerEngine::exchanged(std::vector<Tensor> inputs, const char* name) {
  const std::size_t count = inputs.size();
  std::vector<Tensor> sent(count), received(count);
  const auto make = [&](const Tensor& of, const char* tensor) {
    return t_.make(of->shape.made_contiguous(), of->type, tensor);
  };
  for (std::size_t i = 0; i < count + 2; ++i) {
    if (i > 0 && i <= count) received[i - 1] = make(inputs[i - 1], "received heads");
    if (i > 1) {
      Tensor result = make(inputs[i - 2], name);
      t_.storage(result).stream = Stream::kGather;
      received[i - 2] = std::move(result);
    }
    if (i < count) sent[i] = make(inputs[i], "heads to send");
  }
  return received;
}

Tensor TransformerEngine::attention(const Tensor& q, const Tensor& k, const Tensor& v, bool exchange_heads) {
  const std::array inputs{q, k, v};
  const Shape rows = {q->shape[0], q->shape[1], q->shape[2]};
  std::array<Tensor, 5> saved{q, k, v, {}, {}};
  if (exchange_heads) {
    std::vector<Tensor> heads = exchanged({q, k, v}, "heads of this rank");
    std::ranges::move(heads, saved.begin());
  }
  saved[3] = t_.make(with_features(q->shape, v->shape[-1]), q->type, "output");
  saved[4] = t_.make(rows, Element::kF32, "log-sum-exp");
  const Tensor out = exchange_heads ? exchanged({saved[3]}, "output, exchanged").front() : saved[3];
  return t_.apply_view(
      {"output", inputs, saved, false,
       [this, exchange_heads](BackwardCall& c) {
         std::vector<Tensor> received;
         if (exchange_heads) received = exchanged({c.grads[0]}, "gradient of this rank's heads");
         std::vector<Tensor> gradients;
         for (std::size_t i = 0; i < 3; ++i)
           gradients.push_back(t_.make(c.saved[i]->shape.made_contiguous(), c.saved[i]->type, "gradient"));
         // The sums of dq are f32.
         t_.kernel_temporary(c.saved[0]->shape.count() * 4, "sums of the gradient of q");
         if (exchange_heads) gradients = exchanged(std::move(gradients), "gradient, exchanged");
         for (std::size_t i = 0; i < 3; ++i) c.results[i] = std::move(gradients[i]);
       }},
      out, out->shape);
}

Tensor TransformerEngine::grouped_linear(const Tensor& x, const Tensor& weight) {
  use_grouped_workspaces();
  return t_.apply({"output", only(x), only(x), false,
                   [this, weight](BackwardCall& c) {
                     const Shape& shape = c.saved[0]->shape;
                     c.results[0] = c.tape.make(shape, c.grads[0]->type, "gradient");
                     add_dummy(weight);
                   }},
                  with_features(x->shape, weight->shape[0]), x->type);
}

Tensor TransformerEngine::permute(const Tensor& x, const Tensor& probabilities, std::int64_t rows) {
  const std::array inputs{x, probabilities};
  const std::int64_t tokens = x->shape[0] * x->shape[1], experts = probabilities->shape[-1];
  const Tensor map = t_.make({tokens, 2 * experts + 1}, Element::kI32, "map of rows");
  return t_.apply({"rows of experts", inputs, only(map), false,
                   [shape = x->shape, of = probabilities->shape](BackwardCall& c) {
                     const Element type = c.grads[0]->type;
                     c.results[0] = c.tape.make(shape, type, "gradient");
                     c.results[1] = c.tape.make(of, type, "gradient of the probabilities");
                   }},
                  {rows, 1, x->shape[-1]}, x->type);
}

Tensor TransformerEngine::unpermute(const Tensor& rows, const Shape& tokens) {
  return t_.apply({"output",
                   only(rows),
                   {},
                   false,
                   [shape = rows->shape](BackwardCall& c) {
                     c.results[0] = c.tape.make(shape, c.grads[0]->type, "gradient of the rows");
                   }},
                  tokens, rows->type);
}

Tensor TransformerEngine::reordered(const Tensor& x, const char* name) {
  return t_.apply({name,
                   only(x),
                   {},
                   false,
                   [](BackwardCall& c) {
                     c.results[0] = c.tape.make(c.grads[0]->shape, c.grads[0]->type, "gradient of the rows");
                   }},
                  x->shape.made_contiguous(), x->type);
}

/// Softmax in f32, for the routing and for the auxiliary loss; masks of the groups and of the routing.
Tensor TransformerEngine::route(const Tensor& x, const Tensor& weight) {
  use_workspace();
  const std::array inputs{x, weight};
  const Shape shape{x->shape[0] * x->shape[1], weight->shape[0]};
  std::array<Tensor, 5> saved{x};
  for (std::size_t i = 1; i < 3; ++i) saved[i] = t_.make(shape, Element::kF32, "scores");
  for (std::size_t i = 3; i < 5; ++i) saved[i] = t_.make(shape, Element::kBool, "mask of the routing");
  return t_.apply({"probabilities", inputs, saved, false,
                   [of = weight->shape](BackwardCall& c) {
                     const Tensor& input = c.saved[0];
                     const Tensor scores =
                         c.tape.make(c.saved[1]->shape, Element::kF32, "gradient of the scores");
                     c.results[0] = c.tape.make(input->shape, input->type, "gradient");
                     c.results[1] = c.tape.make(of, input->type, "gradient of the weight");
                   }},
                  shape, x->type);
}

std::array<Tensor, 2> TransformerEngine::keys_and_values(const Tensor& up, const Tensor& rotated,
                                                         const Shape& keys, const Shape& values) {
  const std::array inputs{up, rotated};
  const std::vector<Tensor> out = t_.apply_many(
      {"keys and values",
       inputs,
       {},
       false,
       [first = up->shape, second = rotated->shape, type = up->type](BackwardCall& c) {
         c.results[0] = c.tape.make(first.made_contiguous(), type, "gradient of keys and values");
         c.results[1] = c.tape.make(second.made_contiguous(), type, "gradient of the rotated features");
       }},
      [&] {
        return std::vector{t_.make(keys, up->type, "keys"), t_.make(values, up->type, "values")};
      });
  return {out[0], out[1]};
}

Tensor TransformerEngine::scatter_tokens(const Tensor& x) {
  if (!gathers_) return x;
  const Tensor own = part_of_tokens(x, "tokens of the rank");
  return t_.apply_view(
      {"tokens of the rank",
       only(x),
       {},
       false,
       [this](BackwardCall& c) { c.results[0] = all_tokens(c.take(), "gradient of all tokens"); }},
      own, own->shape);
}

Tensor TransformerEngine::cross_entropy(const Tensor& logits, const Tensor& labels, bool in_place) {
  const Shape rows = tokens_of(logits->shape);
  const Tensor probabilities =
      in_place ? t_.alias(logits) : t_.make(logits->shape, Element::kF32, "probabilities");
  {
    // Maximum, sum and predicted logit of each row, here and of all ranks.
    const Tensor statistics = t_.make({3 * rows[0], rows[1]}, Element::kF32, "statistics of the rows");
    if (ranks_ > 1) t_.make({3 * rows[0] * ranks_, rows[1]}, Element::kF32, "statistics of all ranks");
  }
  const std::array saved{probabilities, labels};
  return t_.apply(
      {"loss", only(logits), saved, false, [](BackwardCall& c) { c.results[0] = std::move(c.saved[0]); }},
      rows, Element::kF32);
}

}  // namespace trainhost::frameworks
