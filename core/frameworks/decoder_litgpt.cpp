#include "core/frameworks/decoder_litgpt.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/frameworks/attention.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kChunk = 128;  // tokens per chunk of the head and of the loss

}  // namespace

LitgptDecoder::LitgptDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      batch_(settings.batch),
      sequence_(settings.sequence),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab)) {
  head_ = frozen_weight({vocab_, hidden_}, "lm_head");
  embedding_ = weight({vocab_, hidden_}, "wte");
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t_.layer = static_cast<std::int32_t>(layers_.size());
      add_layer(run.layer);
    }
  t_.layer = -1;
  final_norm_ = weight({hidden_}, "ln_f");
  const auto buffer = [&](const Shape& shape, Element type, const char* name) {
    return t_.new_storage(shape, type, Purpose::kBuffers, "", name);
  };
  const std::int64_t head_dim = layers_.front().head_dim;
  cos_ = buffer({sequence_, head_dim}, Element::kF32, "cos");
  sin_ = buffer({sequence_, head_dim}, Element::kF32, "sin");
  ids_ = buffer({batch_, sequence_}, Element::kI64, "token ids");
  labels_ = buffer({batch_, sequence_}, Element::kI64, "labels");
}

Tensor LitgptDecoder::weight(const Shape& shape, const char* module, bool adapter) {
  Tensor w = t_.parameter(shape, s_.weights, module, adapter);
  if (adapter) trained_.push_back(w);
  return w;
}

void LitgptDecoder::add_layer(const model::Layer& l) {
  const model::Attention& a = l.attention;
  const std::int64_t width = l.mlp.width, rank = s_.lora_rank;
  Layer w;
  w.heads = a.heads;
  w.head_dim = a.head_dim;
  w.qkv = frozen_weight({3 * hidden_, hidden_}, "attn.attn");
  w.lora_a = weight({2 * rank, hidden_}, "attn.attn", true);
  w.lora_b = weight({2 * hidden_, rank}, "attn.attn", true);
  w.proj = frozen_weight({hidden_, hidden_}, "attn.proj");
  w.fc_1 = frozen_weight({width, hidden_}, "mlp.fc_1");
  w.fc_2 = frozen_weight({width, hidden_}, "mlp.fc_2");
  w.mlp_proj = frozen_weight({hidden_, width}, "mlp.proj");
  w.norm_1 = weight({hidden_}, "norm_1");
  w.norm_2 = weight({hidden_}, "norm_2");
  layers_.push_back(std::move(w));
}

LitgptDecoder::Frozen LitgptDecoder::frozen_weight(const Shape& shape, const char* module) {
  if (s_.nf4) return {{}, bitsandbytes_weight(t_, shape, s_.weights, module, s_.double_quantized)};
  return {weight(shape, module), {}};
}

Tensor LitgptDecoder::frozen(const Tensor& x, const Frozen& w, const char* module) {
  const ModuleScope scope(t_, module);
  return s_.nf4 ? bitsandbytes_linear(t_, x, w.nf4) : linear(t_, x, w.weight);
}

Tensor LitgptDecoder::norm(const Tensor& x, const Tensor& weight, const char* module) {
  const ModuleScope scope(t_, module);
  Tensor variance;
  {
    const Tensor squares = mul(t_, x, x);
    variance = mean(t_, squares);
  }
  Tensor shifted = add_number(t_, variance);
  Tensor scale = rsqrt(t_, shifted);
  shifted.reset();
  const Tensor normed = mul(t_, x, scale);
  scale.reset();
  return mul(t_, weight, normed);
}

Tensor LitgptDecoder::loss() {
  t_.module = "";
  std::vector<Tensor> narrow;
  const Purpose before = t_.purpose;
  {
    Tensor x;
    {
      const ModuleScope scope(t_, "wte");
      x = embedding(t_, ids_, embedding_);
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      t_.layer = static_cast<std::int32_t>(i);
      t_.module = "";
      x = block(x, layers_[i]);
    }
    t_.layer = -1;
    x = norm(x, final_norm_, "ln_f");
    std::vector<Tensor> parts;
    for (std::int64_t at = 0; at < sequence_; at += kChunk)
      parts.push_back(slice(t_, x, 1, std::min(kChunk, sequence_ - at)));
    t_.purpose = Purpose::kLogits;
    for (const Tensor& part : parts) {
      const std::int64_t n = part->shape[1];
      const Tensor rows = frozen(reshape(t_, part, {batch_ * n, hidden_}), head_, "lm_head");
      narrow.push_back(view(t_, rows, {batch_, n, vocab_}));
    }
  }
  t_.module = "lm_head";
  std::vector<Tensor> logits;
  for (const Tensor& part : narrow) logits.push_back(to(t_, part, Element::kF32));
  narrow.clear();
  logits_ = std::move(logits);
  t_.in_loss = true;
  t_.module = "loss";
  // The last token has no target.
  const std::int64_t last = logits_.back()->shape[1] - 1;
  logits_.back() = slice(t_, logits_.back(), 1, last);
  std::vector<Tensor> rows, targets, losses;
  for (const Tensor& part : logits_) rows.push_back(reshape(t_, part, {batch_ * part->shape[1], vocab_}));
  for (const Tensor& part : rows) {
    const Shape n{part->shape[0]};
    targets.push_back(batch_ == 1 ? t_.alias(labels_, n) : t_.make(n, Element::kI64, "labels"));
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    losses.push_back(cross_entropy_of_rows(t_, rows[i], targets[i]));
  Tensor result;
  {
    const Tensor all = concatenate_rows(t_, losses);
    result = mean_of_all(t_, all);
  }
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return result;
}

Tensor LitgptDecoder::block(const Tensor& input, const Layer& w) {
  const Tensor n_1 = norm(input, w.norm_1, "norm_1");
  const Tensor h = attention(n_1, w);
  Tensor x;
  {
    const ModuleScope scope(t_, "attn");
    x = add(t_, input, h);
  }
  const auto fed = [&] {
    const Tensor n_2 = norm(x, w.norm_2, "norm_2");
    return feed_forward(n_2, w);
  };
  const Tensor out = fed();
  const ModuleScope scope(t_, "mlp");
  return add(t_, x, out);
}

/// conv1d() of the output of lora_A with lora_B, with one group for q and one for v.
Tensor LitgptDecoder::convolution(const Tensor& x, const Layer& w) {
  const Tensor filter = unsqueeze(t_, w.lora_b, 2);
  const std::array inputs{x, filter};
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
  const ModuleScope scope(t_, "attn.attn");
  const std::int64_t width = 3 * hidden_, both = 2 * hidden_;
  const Tensor pretrained = frozen(x, w.qkv, "attn.attn");
  const Tensor after_a = linear(t_, dropout(t_, x, s_.lora_dropout), w.lora_a);
  const Tensor after_b = transpose(t_, convolution(transpose(t_, after_a, 1, 2), w), 1, 2);
  const auto zero_padded = [&] {
    const Tensor turned = transpose(t_, after_b, 0, 1);  // [T, B, q and v]
    const Tensor zeros = t_.make({sequence_ * batch_, width}, s_.weights, "zeros");
    Tensor index = t_.make({both}, Element::kI64, "columns of q and v");
    const Tensor rows = reshape(t_, turned, {sequence_ * batch_, both});
    const Tensor copied = copy_columns(t_, zeros, index, rows);
    return transpose(t_, view(t_, copied, {sequence_, batch_, width}), 0, 1);
  };
  Tensor change;
  {
    const Tensor padded = zero_padded();
    change = mul_number(t_, padded);
  }
  return add(t_, pretrained, change);
}

/// In f32, because cos and sin are: the type of the program when the longest sequence is set.
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

Tensor LitgptDecoder::attention(const Tensor& x, const Layer& w) {
  Tensor qkv = fused_qkv(x, w);
  const ModuleScope scope(t_, "attn");
  qkv = view(t_, qkv, {batch_, sequence_, w.heads, 3, w.head_dim});
  // permute(0, 2, 3, 1, 4)
  const Tensor grouped = transpose(t_, transpose(t_, qkv, 1, 2), 2, 3);
  qkv = grouped;
  const std::vector<Tensor> parts = split_at(t_, grouped, 2, {1, 1, 1});
  const auto heads = [&](const Tensor& part) {
    return reshape(t_, part, {batch_, w.heads, sequence_, w.head_dim});
  };
  Tensor q = heads(parts[0]), k = heads(parts[1]), v = heads(parts[2]);
  const Tensor q_roped = rotated(slice(t_, q, -1, w.head_dim));
  const Tensor k_roped = rotated(slice(t_, k, -1, w.head_dim));
  q = concatenate(t_, {q_roped, slice(t_, q, -1, 0)});
  k = concatenate(t_, {k_roped, slice(t_, k, -1, 0)});
  AttentionInputs in;
  in.q = q;
  in.k = k;
  in.v = v;
  Tensor y = sdpa_attention(t_, in).output;
  y = reshape(t_, y, {batch_, sequence_, hidden_});
  return frozen(y, w.proj, "attn.proj");
}

Tensor LitgptDecoder::feed_forward(const Tensor& x, const Layer& w) {
  const Tensor fc_1 = frozen(x, w.fc_1, "mlp.fc_1"), fc_2 = frozen(x, w.fc_2, "mlp.fc_2");
  Tensor product;
  {
    const ModuleScope scope(t_, "mlp");
    const Tensor active = silu(t_, fc_1);
    product = mul(t_, active, fc_2);
  }
  return frozen(product, w.mlp_proj, "mlp.proj");
}

}  // namespace trainhost::frameworks
