// The forward pass of litgpt's GPT, with the loss of finetune_lora, which divides the head into chunks, and
// of finetune_full, which divides the finished logits (commit 26857050). The C++ variables are those of the
// Python functions, because they keep tensors until the function returns. The weights:
// decoder_litgpt_weights.cpp.
#include "core/frameworks/models/decoder_litgpt.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/frameworks/autograd/attention.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kChunk = 128;  // tokens per chunk of the loss, with adapters of the head too

/// Lengths of the chunks that n rows are divided into.
std::vector<std::int64_t> chunks_of(std::int64_t n) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t at = 0; at < n; at += kChunk) lengths.push_back(std::min(kChunk, n - at));
  return lengths;
}

}  // namespace

/// LayerNorm of torch, or litgpt's RMSNorm: in f32, and so are the weights that are multiplied with the
/// result. Saved are x in f32 and, where the weight is trained, the normed x in f32, [B, S, H] each.
Tensor LitgptDecoder::norm(const Norm& w, const Tensor& x) {
  const ModuleScope scope(t_, w.module);
  if (w.bias) return layer_norm(t_, x, w.weight, w.bias);
  const Tensor wide = to(t_, x, Element::kF32);
  Tensor variance;
  {
    const Tensor squares = mul(t_, wide, wide);
    variance = mean(t_, squares);
  }
  Tensor shifted = add_number(t_, variance);
  Tensor scale = rsqrt(t_, shifted);
  shifted.reset();
  const Tensor normed = mul(t_, wide, scale);
  scale.reset();
  Tensor result;
  {
    const Tensor factor = to(t_, w.weight, Element::kF32);
    result = mul(t_, normed, factor);
  }
  return to(t_, result, x->type);
}

Tensor LitgptDecoder::loss() {
  // GPT.forward(), in finetune_lora with lm_head_chunk_size=128, then chunked_cross_entropy(), as fit() calls
  // them.
  t_.module = "";
  std::vector<Tensor> narrow;
  const Purpose before = t_.purpose;
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  {
    const AutocastScope autocast(t_, s_.autocast);
    Tensor x;
    {
      const ModuleScope scope(t_, "wte");
      x = embedding(t_, ids_, embedding_);
    }
    if (embedding_norm_.weight) x = norm(embedding_norm_, x);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      t_.layer = static_cast<std::int32_t>(i);
      t_.module = "";
      x = unit_of_layer(x, layers_[i]);
    }
    t_.layer = -1;
    x = norm(final_norm_, x);
    // A product per chunk of tokens. The log-probabilities of all chunks are saved, but in the backward pass
    // only one chunk of logits has gradients at a time.
    t_.purpose = Purpose::kLogits;
    if (s_.lora_rank)
      for (const Tensor& part : split_at(t_, x, 1, chunks_of(sequence_))) narrow.push_back(run(head_, part));
    else
      narrow.push_back(run(head_, x));
  }
  // The chunk that was computed last has its gradient first: that is where the root unit is gathered.
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, narrow.back());
  t_.module = "lm_head";
  // Fabric converts the outputs of a "bf16-true" model to f32.
  std::vector<Tensor> logits;
  for (const Tensor& part : narrow) logits.push_back(to(t_, part, Element::kF32));
  narrow.clear();
  // A variable of fit(): the logits of the micro-batch before, [B, S, V] in f32, exist until here.
  logits_ = std::move(logits);
  drop_graph_of_logits();
  t_.in_loss = true;
  t_.module = "loss";
  // The last token has no target. The slice is a view, which keeps the whole chunk.
  const std::int64_t last = logits_.back()->shape[1] - 1;
  logits_.back() = slice(t_, logits_.back(), 1, last);
  std::vector<Tensor> rows, targets, losses;
  for (const Tensor& part : logits_) rows.push_back(reshape(t_, part, {batch_ * part->shape[1], vocab_}));
  // finetune_full divides the finished rows; a single row of targets is a view.
  const Tensor whole = s_.lora_rank ? Tensor() : rows.front();
  const Tensor all_targets =
      s_.lora_rank || batch_ == 1 ? Tensor() : t_.make({whole->shape[0]}, Element::kI64, "labels");
  if (whole) rows = split_at(t_, whole, 0, chunks_of(whole->shape[0]));
  // targets[..., 1:] is a view of the labels; reshape(-1) copies it unless it is a single row.
  for (const Tensor& part : rows) {
    const Shape n{part->shape[0]};
    targets.push_back(batch_ == 1   ? t_.alias(labels_, n)
                      : all_targets ? t_.alias(all_targets, n)
                                    : t_.make(n, Element::kI64, "labels"));
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    losses.push_back(cross_entropy_of_rows(t_, rows[i], targets[i]));
  Tensor result;
  {
    // torch.cat(loss_chunks).sum() / non_masked_elems.maximum(torch.ones_like(non_masked_elems)): scalars,
    // and an f32 value per token.
    Tensor count;
    {
      const Tensor counted = t_.make({batch_, sequence_ - 1}, Element::kBool, "labels that count");
      count = t_.make({}, Element::kI64, "number of labels");
    }
    Tensor total;
    {
      const Tensor all = concatenate_at(t_, losses, 0);
      total = sum(t_, all);
    }
    const Tensor one = t_.make({}, Element::kI64, "one");
    const Tensor divisor = t_.make({}, Element::kI64, "number of labels, at least one");
    result = divide(t_, total, divisor);
  }
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return result;
}

Tensor LitgptDecoder::unit_of_layer(const Tensor& x, const Layer& w) {
  const std::int32_t index = t_.layer;
  if (fsdp_) fsdp_->before_forward(index);
  const Tensor input = fsdp_ ? fsdp_->input(index, x) : x;
  Tensor y;
  if (s_.checkpoint) {
    // Arguments of Block by position, which the checkpoint keeps. All else that the block saves is
    // recomputed.
    for (const Tensor& argument : {input, cos_, sin_}) t_.note_saved(argument);
    y = t_.checkpointed([&] { return block(input, w); },
                        [this, input, &w, index] {
                          const AutocastScope autocast(t_, s_.autocast);
                          t_.layer = index;
                          t_.module = "";
                          block(input, w);
                        });
  } else {
    y = block(input, w);
  }
  if (fsdp_) fsdp_->after_forward(index, y);
  return y;
}

Tensor LitgptDecoder::block(const Tensor& input, const Layer& w) {
  // Block.forward(): `attended` is kept until the MLP has run.
  Tensor normed = norm(w.norm_1, input);
  const Tensor attended = attention(normed, w);
  Tensor x;
  const auto add_attended = [&] {
    const ModuleScope scope(t_, "attn");
    x = add(t_, attended, input);
  };
  if (w.parallel) {
    // Phi has one norm for both (shared_attention_norm), gpt_neox two.
    if (w.norm_2.weight) normed = norm(w.norm_2, input);
    add_attended();
  } else {
    add_attended();
    normed = norm(w.norm_2, x);
  }
  const Tensor fed = feed_forward(normed, w);
  const ModuleScope scope(t_, "mlp");
  return add(t_, fed, x);
}

/// conv1d(), with one group for each row of `filter`'s parts that the input has channels for.
Tensor LitgptDecoder::convolution(const Tensor& x_, const Tensor& filter_) {
  const Tensor filter = t_.lowered(filter_), x = t_.lowered(x_);
  const std::array inputs{x, filter};
  // A convolution of width 1 is a product of matrices. convolution_backward() names both operands, so both
  // are saved, needed or not.
  return t_.apply({"output", inputs, inputs, false,
                   [](BackwardCall& c) {
                     for (std::size_t i = 0; i < 2; ++i)
                       if (c.needs(i))
                         c.results[i] =
                             c.tape.make(c.saved[i]->shape.made_contiguous(), c.saved[i]->type, "gradient");
                   }},
                  {batch_, filter->shape[0], sequence_}, x->type);
}

Tensor LitgptDecoder::fused_qkv(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, w.qkv.module);
  // LoRAQKVLinear.forward(): one adapter of rank r * (number of adapted ones of q, k and v). [B, S, H] to
  // [B, S, n * r] to the adapted columns, which zero_pad() puts into zeros of the width of qkv.
  const Tensor pretrained = product(w.qkv, x);
  if (w.adapted.empty()) return pretrained;
  const Tensor after_a = linear(t_, dropout(t_, x, s_.lora_dropout), w.qkv.lora_a);
  const auto convolved = [&] {
    const Tensor channels = transpose(t_, after_a, 1, 2), filter = unsqueeze(t_, w.qkv.lora_b, 2);
    // Equal widths: one grouped convolution. Otherwise one per part, and a copy of all of them.
    if (w.heads == w.kv_heads) return convolution(channels, filter);
    const std::vector<Tensor> inputs =
        split_at(t_, channels, 1, std::vector<std::int64_t>(w.adapted.size(), s_.lora_rank));
    const std::vector<Tensor> filters = split_at(t_, filter, 0, w.adapted);
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < inputs.size(); ++i) outputs.push_back(convolution(inputs[i], filters[i]));
    return concatenate_at(t_, outputs, 1);
  };
  const Tensor after_b = transpose(t_, convolved(), 1, 2);
  const auto padded = [&] {
    if (!w.columns) return after_b;
    // lora_ind is cloned in each call; index_copy_() saves the clone, and the source for its sizes.
    const Tensor zeros = t_.make({batch_, sequence_, pretrained->shape[2]}, after_b->type, "zeros");
    const Tensor columns = t_.make(w.columns->shape, Element::kI64, "columns of the adapted outputs");
    return copy_columns(t_, zeros, columns, after_b);
  };
  const Tensor change = mul_number(t_, padded());
  return add(t_, pretrained, change);
}

/// apply_rope(): in f32, because cos and sin are. The product with cos saves cos only, since cos needs no
/// gradient: the f32 temporaries are freed when the function returns.
Tensor LitgptDecoder::rotated(const Tensor& x) {
  const std::int64_t half = x->shape[-1] / 2;
  const Tensor first = slice(t_, x, -1, half), second = slice(t_, x, -1, half);
  const Tensor turned = concatenate(t_, {neg(t_, second), first});
  Tensor roped;
  {
    const Tensor left = mul(t_, x, cos_), right = mul(t_, turned, sin_);
    roped = add(t_, left, right);
  }
  return to(t_, roped, x->type);
}

/// repeat_interleave(), which copies also where a view would do.
Tensor LitgptDecoder::repeated(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Tensor copy = contiguous(t_, expand(t_, unsqueeze(t_, x, 2), 2, times));
  return view(t_, copy, {x->shape[0], x->shape[1] * times, x->shape[2], x->shape[3]});
}

Tensor LitgptDecoder::attention(const Tensor& x, const Layer& w) {
  const Tensor qkv = fused_qkv(x, w);
  const std::int64_t q_width = w.heads * w.head_dim, kv_width = w.kv_heads * w.head_dim;
  const ModuleScope scope(t_, "attn");
  // Views [B, heads, S, D] of qkv, a variable that keeps it until the function returns. q and k are replaced
  // by rotated copies; the backward pass needs qkv only where v is not repeated.
  std::vector<Tensor> parts = split_at(t_, qkv, 2, {q_width, kv_width, kv_width});
  const auto heads = [&](std::size_t part, std::int64_t count) {
    const Tensor flat = std::exchange(parts[part], {});
    return transpose(t_, view(t_, flat, {batch_, sequence_, count, w.head_dim}), 1, 2);
  };
  Tensor q = heads(0, w.heads), k = heads(1, w.kv_heads), v = heads(2, w.kv_heads);
  if (w.norm_q.weight) {
    q = norm(w.norm_q, q);
    k = norm(w.norm_k, k);
  }
  // rope_n_elem is taken as the whole head: the other part is empty, but torch.cat() copies nevertheless.
  const Tensor q_roped = rotated(slice(t_, q, -1, w.head_dim));
  const Tensor k_roped = rotated(slice(t_, k, -1, w.head_dim));
  q = concatenate(t_, {q_roped, slice(t_, q, -1, 0)});
  k = concatenate(t_, {k_roped, slice(t_, k, -1, 0)});
  // litgpt repeats grouped keys and values itself, [B, heads, S, D].
  k = repeated(k, w.heads / w.kv_heads);
  v = repeated(v, w.heads / w.kv_heads);
  AttentionInputs in;
  in.q = q;
  in.k = k;
  in.v = v;
  Tensor y = sdpa_attention(t_, in).output;
  y = reshape(t_, y, {batch_, sequence_, q_width});
  return run(w.proj, y);
}

Tensor LitgptDecoder::feed_forward(const Tensor& x, const Layer& w) {
  // LLaMAMLP with fc_2, GptNeoxMLP without. GptNeoxMLP assigns x again, LLaMAMLP keeps all of its variables.
  Tensor fc_1 = run(w.fc_1, x), inner;
  if (w.fc_2.module[0]) {
    const Tensor fc_2 = run(w.fc_2, x);
    {
      const ModuleScope scope(t_, "mlp");
      const Tensor active = silu(t_, fc_1);
      inner = mul(t_, active, fc_2);
    }
    return run(w.down, inner);
  }
  {
    const ModuleScope scope(t_, "mlp");
    inner = gelu(t_, fc_1);
    fc_1.reset();
  }
  return run(w.down, inner);
}

/// x @ w.transpose(0, 1), as LoRALinear multiplies with its adapters. The transposed weight is no leaf, so
/// autocast casts it for each product instead of once.
Tensor LitgptDecoder::adapter_product(const Tensor& x, const Tensor& w) {
  if (!t_.autocast_on) return linear(t_, x, w);
  const Tensor cast = t_.lowered(transpose(t_, w, 0, 1));
  return linear(t_, x, transpose(t_, cast, 0, 1));
}

/// Without an adapter.
Tensor LitgptDecoder::product(const Linear& w, const Tensor& x) {
  if (!s_.nf4) return linear(t_, x, w.weight, w.bias);
  // MatMul4Bit keeps its input as an attribute of the node, which the backward pass does not free as it frees
  // saved tensors: it exists as long as the graph, which the logits refer to.
  if (x->needs_grad()) {
    new_inputs_.resize(layers_.size() + 1);
    new_inputs_[static_cast<std::size_t>(t_.layer + 1)].push_back(t_.alias(x));
  }
  return bitsandbytes_linear(t_, x, w.nf4);
}

/// Layer by layer, for repeat_layers().
void LitgptDecoder::drop_graph_of_logits() {
  const std::int32_t running = t_.layer;
  for (std::size_t i = 0; i < kept_inputs_.size(); ++i) {
    t_.layer = static_cast<std::int32_t>(i) - 1;
    kept_inputs_[i].clear();
  }
  t_.layer = running;
  kept_inputs_ = std::exchange(new_inputs_, {});
}

Tensor LitgptDecoder::run(const Linear& w, const Tensor& x) {
  const ModuleScope scope(t_, w.module);
  // LoRALinear.forward(): pretrained + (lora_dropout(x) @ A^T @ B^T) * scaling.
  const Tensor pretrained = product(w, x);
  if (!w.lora_a) return pretrained;
  Tensor change;
  {
    Tensor inner;
    {
      const Tensor dropped = dropout(t_, x, s_.lora_dropout);
      inner = adapter_product(dropped, w.lora_a);
    }
    const Tensor outputs = adapter_product(inner, w.lora_b);
    inner.reset();
    change = mul_number(t_, outputs);
  }
  return add(t_, pretrained, change);
}

}  // namespace trainhost::frameworks
