// Layers, head and loss of MegatronDecoder. A function of autograd that Transformer Engine writes in Python
// frees what it saved when it returns, and the local variables of its backward pass live as long.
#include <array>
#include <utility>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/kernels/fused.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"

namespace trainhost::frameworks {
namespace {

/// The all-to-all of context parallelism, before and after attention. Its copies are made on a stream of its
/// own; a tensor is sent while the next one is copied. `parts` and the result have equal sizes. What was
/// received exists until the end: the handles of the transfers keep it.
std::vector<Tensor> exchanged(Tape& t, std::vector<Tensor> parts, bool before_attention) {
  const std::size_t n = parts.size();
  std::vector<Tensor> out(n), received;
  const auto like = [&](const Tensor& x, const char* name) {
    return t.make(x->shape.made_contiguous(), x->type, name);
  };
  for (std::size_t i = 0; i < n + 2; ++i) {
    if (i > 0 && i <= n) out[i - 1] = like(parts[i - 1], "received by all-to-all");
    const auto copy_sent = [&] {
      if (i < n) parts[i] = like(parts[i], "copy for all-to-all");
    };
    if (!before_attention) copy_sent();
    if (i > 1) {
      Tensor ordered = like(out[i - 2], "output");
      t.storage(ordered).stream = Stream::kGather;
      received.push_back(std::exchange(out[i - 2], std::move(ordered)));
    }
    if (before_attention) copy_sent();
  }
  return out;
}

}  // namespace

Tensor MegatronDecoder::gathered(const Tensor& x, const char* name) {
  if (!s_.megatron.sequence_parallel) return x;
  return t_.make({tokens_, x->shape[1]}, x->type, name);
}

Tensor MegatronDecoder::scattered(const Tensor& x, const char* name) {
  if (!s_.megatron.sequence_parallel) return x;
  return t_.make({rows_, x->shape[1]}, x->type, name);
}

/// The product adds the gradient of the weight to the buffer; autograd gets a dummy gradient instead
/// (get_dummy_wgrad() of Transformer Engine), one per shape of weights, which is never freed.
Tensor MegatronDecoder::dummy_gradient(const Tensor& weight) {
  Tensor& dummy = dummies_[{weight->shape[0], weight->shape[1]}];
  if (!dummy) {
    const std::int32_t layer = std::exchange(t_.layer, -1);
    dummy = t_.new_storage(weight->shape, s_.weights, Purpose::kKernel, t_.module, "dummy gradient");
    t_.layer = layer;
  }
  return dummy;
}

Tensor MegatronDecoder::embedded(const Tensor& ids) {
  const ModuleScope scope(t_, "embedding");
  Tensor x = embedding(t_, ids, embedding_);
  x = contiguous(t_, transpose(t_, x, 0, 1));  // [S, B, H]
  x = view(t_, x, {tokens_, hidden_});
  if (s_.tensor == 1) return x;
  Tensor out = scattered(x, "output");
  // clone_scatter_output_in_embedding, which is on by default.
  if (s_.megatron.sequence_parallel) out = t_.make(out->shape, out->type, "clone");
  const std::array inputs{x};
  return t_.apply_view({"output",
                        inputs,
                        {},
                        false,
                        [this](BackwardCall& c) {
                          const Tensor full = gathered(c.grads[0], "gradient of all tokens");
                          // Without the tokens of other ranks.
                          c.results[0] = t_.make(full->shape, full->type, "gradient, masked");
                        }},
                       out, out->shape);
}

Tensor MegatronDecoder::layers(Tensor x, const VirtualStage& stage) {
  const std::uint32_t each = s_.checkpoint ? s_.megatron.recompute_every : 1;
  for (std::size_t begin = stage.begin; begin < stage.end; begin += each) {
    const std::size_t end = std::min<std::size_t>(begin + each, stage.end);
    const auto region = [this, begin, end](const std::vector<Tensor>& in) {
      Tensor y = in[0];
      for (std::size_t i = begin; i < end; ++i) {
        t_.layer = static_cast<std::int32_t>(i);
        y = block(y, layers_[i]);
      }
      return y;
    };
    t_.layer = static_cast<std::int32_t>(begin);
    if (s_.checkpoint)
      x = t_.checkpointed_reentrant({std::move(x)}, region);
    else
      x = region({std::move(x)});
  }
  return x;
}

Tensor MegatronDecoder::block(const Tensor& x, const Layer& w) {
  quantizing_ = w.quantized;
  if (quantizing_ || w.kv_up) use_workspace();
  const Tensor h = add(t_, x, w.kv_up ? latent_attention(x, w) : attention(x, w));
  return add(t_, h, w.router ? experts(h, w) : dense_mlp(h, w));
}

Tensor MegatronDecoder::dense_mlp(const Tensor& h, const Layer& w) {
  const auto region = [this, &w](const std::vector<Tensor>& in) {
    quantizing_ = w.quantized;
    const Tensor both = norm_linear(in[0], w.mlp_norm, w.fc1, {}, "mlp.linear_fc1");
    return row_linear(swiglu(both), w.fc2, "mlp.linear_fc2");
  };
  return s_.megatron.recomputed.mlp ? t_.checkpointed_reentrant({h}, region) : region({h});
}

Tensor MegatronDecoder::norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight,
                                    const Tensor& bias, const char* module) {
  if (quantizing_) return quantized_norm_linear(x, norm, weight, bias, module);
  const ModuleScope scope(t_, module);
  const std::int64_t width = x->shape[1];
  const Tensor normed = t_.make({rows_, width}, x->type, "output of the norm");
  const Tensor scale = t_.make({rows_}, Element::kF32, "1/rms");
  Tensor out;
  {
    const Tensor all = gathered(normed, "gathered tokens");
    use_workspace();
    out = t_.make({tokens_, weight->shape[0]}, x->type, "output");
  }
  const std::array inputs{x, norm, bias};
  const std::array saved{x, normed, scale};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, weight, width](BackwardCall& c) {
                          Tensor all;
                          if (s_.megatron.sequence_parallel) all = gathered(c.saved[1], "gathered tokens");
                          const Element type = c.grads[0]->type;
                          const Tensor product = t_.make({tokens_, width}, type, "gradient of the norm");
                          const Tensor own = scattered(product, "gradient of the rank's tokens");
                          c.saved[1].reset();
                          all.reset();
                          c.results[0] = t_.make({rows_, width}, type, "gradient");
                          c.results[1] = t_.make({width}, type, "gradient of the weight");
                          if (c.needs(2))
                            c.results[2] = t_.make({weight->shape[0]}, type, "gradient of the bias");
                          dummy_gradient(weight);
                        }},
                       out, out->shape);
}

Tensor MegatronDecoder::row_linear(const Tensor& x, const Tensor& weight, const char* module,
                                   bool output_of_attention) {
  if (quantizing_)
    return quantized_linear(x, {&weight, 1}, module, {output_of_attention && keeps_inputs_in_bf16(), true});
  const ModuleScope scope(t_, module);
  Tensor out = t_.make({tokens_, hidden_}, x->type, "output");
  out = scattered(out, "output of the rank's tokens");
  const std::array inputs{x};
  return t_.apply_view({"output", inputs, inputs, false,
                        [this, weight](BackwardCall& c) {
                          Tensor all = gathered(c.grads[0], "gradient of all tokens");
                          c.results[0] = t_.make(c.saved[0]->shape.made_contiguous(), all->type,
                                                 "gradient of the input");
                          all.reset();
                          dummy_gradient(weight);
                        }},
                       out, out->shape);
}

/// One kernel for both halves of `x`. Keeps its input and, for experts, the probabilities that scale the
/// rows. The input may be kept in 8 bits (--activation-func-fp8-input-store).
Tensor MegatronDecoder::swiglu(const Tensor& x, const Tensor& scale) {
  const ModuleScope scope(t_, scale ? "mlp.experts" : "mlp");
  const std::array inputs{x};
  const Tensor kept = s_.megatron.products.swiglu_input && t_.grad_enabled
                          ? t_.make(x->shape.made_contiguous(), Element::kByte, "input in 8 bits")
                          : x;
  const std::array saved{kept, scale};
  return t_.apply({"output of SwiGLU", inputs, std::span(saved.data(), scale ? 2 : 1), false,
                   [type = x->type](BackwardCall& c) {
                     Tensor input = c.saved[0];
                     if (input->type != type) input = c.tape.make(input->shape, type, "input of SwiGLU");
                     c.results[0] = c.tape.make(input->shape, type, "gradient of SwiGLU");
                   }},
                  {x->shape[0], x->shape[1] / 2}, x->type);
}

Tensor MegatronDecoder::attention(const Tensor& x, const Layer& w) {
  const std::int64_t q_width = w.heads * w.head_dim, kv_width = w.kv_heads * w.head_dim;
  const Tensor mixed = norm_linear(x, w.qkv_norm, w.qkv, w.qkv_bias, "self_attention.linear_qkv");
  Tensor out, q, k;  // local variables of forward(), also while the output is projected
  {
    const ModuleScope scope(t_, "self_attention");
    const std::vector<Tensor> parts = split(t_, mixed, {q_width, kv_width, kv_width});
    // With one key and value head the queries are a view of the product; with several, Megatron Core copies
    // them into one tensor.
    q = w.kv_heads > 1 || w.q_norm ? contiguous(t_, parts[0]) : parts[0];
    k = parts[1];
    if (w.q_norm) {
      k = contiguous(t_, k);
      const auto normed = [&](const Tensor& heads, std::int64_t count, const Tensor& weight) {
        const Tensor rows = view(t_, heads, {tokens_ * count, w.head_dim});
        return view(t_, rms_norm(t_, rows, weight), {tokens_, count * w.head_dim});
      };
      q = normed(q, w.heads, w.q_norm);
      k = normed(k, w.kv_heads, w.k_norm);
    }
    q = rotated(q, w.head_dim);
    k = rotated(k, w.head_dim);
    if (s_.selective)
      out = t_.checkpointed_reentrant({q, k, parts[2]}, [this, &w](const std::vector<Tensor>& in) {
        return core_attention(in[0], in[1], in[2], w);
      });
    else
      out = core_attention(q, k, parts[2], w);
  }
  return row_linear(out, w.o, "self_attention.linear_proj", true);
}

/// The rotary embedding of queries or keys: one kernel, or the operators of _apply_rotary_pos_emb_bshd(),
/// which keep cosine and sine in 16 bits.
Tensor MegatronDecoder::rotated(const Tensor& x, std::int64_t head_dim) {
  const Shape shape{tokens_, x->shape[1]}, half{tokens_, x->shape[1] / 2};
  if (s_.megatron.fused_rotation) return fused_map(t_, x, shape);
  const Shape angles{tokens_ / batch_, head_dim};
  const std::array saved{t_.make(angles, x->type, "cosine"), t_.make(angles, x->type, "sine")};
  Tensor sum;
  {
    const Tensor by_cosine = t_.make(shape, x->type, "product with the cosine");
    Tensor by_sine;
    {
      const Tensor negated = t_.make(half, x->type, "negated half");
      const Tensor halves = t_.make(shape, x->type, "exchanged halves");
      by_sine = t_.make(shape, x->type, "product with the sine");
    }
    sum = t_.make(shape, x->type, "sum");
  }
  const Tensor out = t_.make(shape, x->type, "output");
  const std::array inputs{x};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, shape, half, type = x->type](BackwardCall& c) {
                          Tensor sum_of_both;
                          {
                            const Tensor by_sine = t_.make(shape, type, "gradient by the sine");
                            const Tensor negated = t_.make(half, type, "negated half");
                            sum_of_both = t_.make(shape, type, "gradient of the halves");
                          }
                          { const Tensor by_cosine = t_.make(shape, type, "gradient by the cosine"); }
                          // Backward of two slices, of all elements and of none.
                          c.results[0] = t_.make(shape, type, "gradient");
                          sum_of_both.reset();
                          const Tensor of_none = t_.make(shape, type, "gradient of no element");
                        }},
                       out, out->shape);
}

/// The fused attention of cuDNN keeps q, k, v, its output and an f32 number per row and head; its backward
/// pass sums the gradient of q in f32. Context parallelism by all-to-all gives each rank all tokens of a part
/// of the heads, and keeps the output before and after it is exchanged.
Tensor MegatronDecoder::core_attention(const Tensor& q, const Tensor& k, const Tensor& v_, const Layer& w) {
  const Tensor v = contiguous(t_, v_);
  if (s_.context > 1 && s_.megatron.context_ring) return ring_attention(q, k, v, w);
  const bool exchanges = s_.context > 1;
  std::vector<Tensor> saved{q, k, v};
  if (exchanges) saved = exchanged(t_, {q, k, v}, true);
  const std::int64_t width = w.heads * (w.v_head_dim ? w.v_head_dim : w.head_dim);
  Tensor out = t_.make({tokens_, width}, q->type, "output");
  saved.push_back(out);
  saved.push_back(t_.make({tokens_ * w.heads}, Element::kF32, "log-sum-exp"));
  if (exchanges) out = exchanged(t_, {out}, false)[0];
  const std::array inputs{q, k, v};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, exchanges, rows = tokens_ * w.heads](BackwardCall& c) {
                          Tensor g = c.grads[0];
                          if (exchanges) g = exchanged(t_, {g}, true)[0];
                          std::vector<Tensor> d = attention_gradients(c.saved, rows);
                          if (exchanges) d = exchanged(t_, d, false);
                          for (std::size_t i = 0; i < 3; ++i) c.results[i] = std::move(d[i]);
                        }},
                       out, out->shape);
}

/// The backward kernel of cuDNN: gradients of the first three of `like`, and its f32 sums while it runs.
/// rows: tokens times heads of q.
std::vector<Tensor> MegatronDecoder::attention_gradients(std::span<const Tensor> like, std::int64_t rows) {
  std::vector<Tensor> d;
  for (std::size_t i = 0; i < 3; ++i)
    d.push_back(t_.make(like[i]->shape.made_contiguous(), like[i]->type, "gradient"));
  t_.kernel_temporary(4 * (like[0]->shape.count() + static_cast<std::uint64_t>(rows)),
                      "f32 gradient of q, row sums");
  return d;
}

/// Context parallelism that sends keys and values around a ring (p2p): in each of `context` steps the rank
/// attends to the keys and values that it received before. Keys and values of a rank are one buffer. The
/// forward pass has the buffers and the outputs of all steps at its end; it keeps q, the last buffer, the
/// output and its log-sum-exp. The last rank is replayed: its outputs are of all tokens in every step, those
/// of other ranks of half of them in some. Steps alternate between two streams.
Tensor MegatronDecoder::ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layer& w) {
  const std::int64_t rows = tokens_ * w.heads;
  const Shape pair{2, tokens_, w.kv_heads * w.head_dim};
  const auto on_stream = [&](Tensor x, std::uint32_t step) {
    if (step % 2) t_.storage(x).stream = Stream::kGather;
    return x;
  };
  Tensor out, log_sums;
  std::vector<Tensor> buffers{t_.make(pair, k->type, "keys and values")};
  {
    std::vector<Tensor> outputs, sums;
    for (std::uint32_t i = 0; i < s_.context; ++i) {
      if (i + 1 < s_.context)
        buffers.push_back(on_stream(t_.make(pair, k->type, "received keys and values"), i));
      outputs.push_back(on_stream(t_.make(q->shape.made_contiguous(), q->type, "output of a step"), i));
      sums.push_back(on_stream(t_.make({rows}, Element::kF32, "log-sum-exp of a step"), i));
      if (i == 1) log_sums = t_.make({rows}, Element::kF32, "log-sum-exp");
    }
    out = t_.make(q->shape.made_contiguous(), q->type, "output");
  }
  const std::array inputs{q, k, v};
  const std::array saved{q, std::exchange(buffers.back(), {}), out, log_sums};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, rows, pair](BackwardCall& c) {
                          const Tensor dq =
                              t_.make(c.saved[0]->shape.made_contiguous(), c.saved[0]->type, "gradient of q");
                          // Each holds keys and values, and the sum of their gradients so far: one is sent,
                          // one received.
                          const Shape both{2, pair[0], pair[1], pair[2]};
                          std::array<Tensor, 2> exchange;
                          for (Tensor& x : exchange)
                            x = t_.make(both, c.saved[1]->type, "keys, values and gradients");
                          const Tensor one = t_.alias(c.saved[1], {pair[1], pair[2]});
                          for (std::uint32_t i = 0; i + 1 < s_.context; ++i) {
                            // Below the diagonal only the first half of the received tokens counts.
                            const Tensor half = t_.alias(c.saved[1], {pair[1] / 2, pair[2]});
                            attention_gradients(std::array{c.saved[0], half, half}, rows);
                          }
                          attention_gradients(std::array{c.saved[0], one, one}, rows);
                          const Tensor& received = exchange[s_.context % 2];
                          c.results[0] = dq;
                          c.results[1] = t_.alias(received, {pair[1], pair[2]});
                          c.results[2] = t_.alias(received, {pair[1], pair[2]});
                        }},
                       out, out->shape);
}

Tensor MegatronDecoder::head(const Tensor& x) {
  const ModuleScope scope(t_, "output_layer");
  const Tensor weight = head_ ? head_ : embedding_;
  const bool shared = !head_;
  if (s_.megatron.sequence_parallel && !gathered_head_input_)
    gathered_head_input_ = t_.new_storage({tokens_, hidden_}, Element::kBF16, Purpose::kCommunication,
                                          "output_layer", "buffer of gathered tokens");
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  const Tensor logits = t_.make({tokens_, vocab_}, x->type, "logits");
  t_.purpose = before;
  use_cublas_workspace(forward_workspace_);
  const std::array inputs{x, shared ? embedding_ : Tensor()};
  const std::array saved{x};
  return t_.apply_view(
      {"output", inputs, saved, false,
       [this, weight, shared](BackwardCall& c) {
         const Tensor all = t_.make({tokens_, hidden_}, c.grads[0]->type, "gradient of all tokens");
         use_cublas_workspace(backward_workspace_);
         c.results[0] = scattered(all, "gradient of the rank's tokens");
         const Tensor dummy = dummy_gradient(weight);
         if (shared) c.results[1] = t_.alias(dummy);
       }},
      logits, logits->shape);
}

/// in place: the kernel of Transformer Engine writes the gradient over the logits. Otherwise the logits are
/// copied to f32 and the gradient is written over the copy, which autograd converts. Compiled, the backward
/// pass copies the softmax before it subtracts the targets, and converts it in the same kernel.
Tensor MegatronDecoder::loss_of(const Tensor& logits) {
  const ModuleScope scope(t_, "loss");
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  t_.in_loss = true;
  const Tensor kept =
      s_.megatron.loss_in_place ? t_.alias(logits) : t_.make(logits->shape, Element::kF32, "logits in f32");
  Tensor out = t_.make({tokens_}, Element::kF32, "loss of each token");
  const Tensor statistics = t_.make({3 * tokens_ * (s_.tensor + 1)}, Element::kF32, "statistics of the rows");
  const std::array inputs{logits};
  const std::array saved{kept};
  Tensor loss = t_.apply_view(
      {"loss", inputs, saved, false,
       [compiled = !s_.megatron.loss_in_place && s_.megatron.loss_compiled,
        type = logits->type](BackwardCall& c) {
         if (!compiled) {
           c.results[0] = c.tape.alias(c.saved[0]);
           return;
         }
         const Tensor copy = c.tape.make(c.saved[0]->shape, Element::kF32, "copy of the softmax");
         c.results[0] = c.tape.make(c.saved[0]->shape, type, "gradient of the logits");
       }},
      out, out->shape);
  t_.in_loss = false;
  t_.purpose = before;
  return loss;
}

}  // namespace trainhost::frameworks
