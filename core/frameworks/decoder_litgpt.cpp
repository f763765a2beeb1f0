#include "core/frameworks/decoder_litgpt.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/frameworks/attention.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kChunk = 128;  // tokens per chunk of the head and of the loss
constexpr std::uint32_t kLoraQkv = kLoraQ | kLoraK | kLoraV, kLoraMlp = kLoraGate | kLoraUp | kLoraDown;

}  // namespace

LitgptDecoder::LitgptDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      batch_(settings.batch),
      sequence_(settings.sequence),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab)) {
  if (s_.fsdp.ranks) fsdp_ = std::make_unique<Fsdp>(tape, s_.fsdp, a.layer_count());
  head_ = linear_weights("lm_head", hidden_, vocab_, a.head_bias, false);
  add_embedding();
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t_.layer = static_cast<std::int32_t>(layers_.size());
      add_layer(run.layer, run.layer.norms == 1 || a.family == "gpt_neox");
    }
  t_.layer = -1;
  final_norm_ = norm_weights("ln_f", a.final_norm, hidden_);
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
  const bool trained = adapter || s_.lora_rank == 0;
  if (fsdp_) {
    const std::int32_t unit = t_.layer < 0 ? Fsdp::kRoot : t_.layer;
    const Fsdp::Weight w = fsdp_->parameter(unit, shape, s_.weights, module, s_.weights, trained);
    if (trained) trained_.push_back(w.shard);
    return w.full;
  }
  Tensor w = t_.parameter(shape, s_.weights, module, trained);
  if (trained) trained_.push_back(w);
  return w;
}

/// With quantized layers a StableEmbedding replaces the embedding, which a variable of the program keeps. The
/// new weights require a gradient, but no optimizer knows them: once allocated, their gradients stay.
void LitgptDecoder::add_embedding() {
  if (!s_.nf4) {
    embedding_ = weight({vocab_, hidden_}, "wte");
    return;
  }
  replaced_ = t_.new_storage({vocab_, hidden_}, s_.weights, Purpose::kWeights, "wte", "replaced weight");
  embedding_ = t_.parameter({vocab_, hidden_}, s_.weights, "wte", true);
  embedding_norm_ = {"wte", t_.parameter({hidden_}, s_.weights, "wte", true),
                     t_.parameter({hidden_}, s_.weights, "wte", true)};
}

LitgptDecoder::Linear LitgptDecoder::linear_weights(const char* module, std::int64_t inputs,
                                                    std::int64_t outputs, bool bias, bool adapted) {
  Linear w;
  w.module = module;
  if (s_.nf4)
    w.nf4 = bitsandbytes_weight(t_, {outputs, inputs}, s_.weights, module, s_.double_quantized);
  else
    w.weight = weight({outputs, inputs}, module);
  if (bias) w.bias = weight({outputs}, module);
  if (s_.lora_rank && adapted) {
    w.lora_a = weight({s_.lora_rank, inputs}, module, true);
    w.lora_b = weight({outputs, s_.lora_rank}, module, true);
  }
  return w;
}

LitgptDecoder::Norm LitgptDecoder::norm_weights(const char* module, model::NormKind kind,
                                                std::int64_t width) {
  Norm w;
  w.module = module;
  if (kind == model::NormKind::kNone) return w;
  w.weight = weight({width}, module);
  if (kind == model::NormKind::kLayer) w.bias = weight({width}, module);
  return w;
}

void LitgptDecoder::add_layer(const model::Layer& l, bool parallel) {
  const model::Attention& a = l.attention;
  const auto q = static_cast<std::int64_t>(a.q_width()), kv = static_cast<std::int64_t>(a.k_width());
  const std::int64_t width = l.mlp.width;
  Layer w;
  w.heads = a.heads;
  w.kv_heads = a.kv_heads;
  w.head_dim = a.head_dim;
  w.parallel = parallel;
  w.norm_1 = norm_weights("norm_1", l.norm, hidden_);
  w.qkv = linear_weights("attn.qkv", hidden_, q + 2 * kv, a.q_bias, false);
  const std::uint32_t adapted = s_.lora_rank ? s_.lora_targets & kLoraQkv : 0;
  if (adapted & kLoraQ) w.adapted.push_back(q);
  if (adapted & kLoraK) w.adapted.push_back(kv);
  if (adapted & kLoraV) w.adapted.push_back(kv);
  if (adapted) {
    const std::int64_t outputs = std::accumulate(w.adapted.begin(), w.adapted.end(), std::int64_t{0});
    const auto count = static_cast<std::int64_t>(w.adapted.size());
    w.qkv.lora_a = weight({count * s_.lora_rank, hidden_}, "attn.qkv", true);
    w.qkv.lora_b = weight({outputs, s_.lora_rank}, "attn.qkv", true);
    if (adapted != kLoraQkv)
      w.columns = t_.new_storage({outputs}, Element::kI64, Purpose::kBuffers, "attn.qkv",
                                 "columns of the adapted outputs");
  }
  w.proj = linear_weights("attn.proj", q, hidden_, a.o_bias, (s_.lora_targets & kLoraO) != 0);
  if (a.qk_norm != model::NormKind::kNone) {
    w.norm_q = norm_weights("attn.norm_q", l.norm, a.head_dim);
    w.norm_k = norm_weights("attn.norm_k", l.norm, a.head_dim);
  }
  if (l.norms > 1) w.norm_2 = norm_weights("norm_2", l.norm, hidden_);
  const bool mlp = (s_.lora_targets & kLoraMlp) == kLoraMlp;
  w.fc_1 = linear_weights(l.mlp.gated ? "mlp.fc_1" : "mlp.fc", hidden_, width, l.mlp.up_bias, mlp);
  if (l.mlp.gated) w.fc_2 = linear_weights("mlp.fc_2", hidden_, width, l.mlp.up_bias, mlp);
  w.down = linear_weights("mlp.proj", width, hidden_, l.mlp.down_bias, mlp);
  layers_.push_back(std::move(w));
}

/// In f32, and so are the weights that are multiplied with the result.
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
  t_.module = "";
  std::vector<Tensor> narrow;
  const Purpose before = t_.purpose;
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  {
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
    std::vector<std::int64_t> lengths;
    for (std::int64_t at = 0; at < sequence_; at += kChunk)
      lengths.push_back(std::min(kChunk, sequence_ - at));
    t_.purpose = Purpose::kLogits;
    for (const Tensor& part : split_at(t_, x, 1, lengths)) narrow.push_back(run(head_, part));
  }
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, narrow.back());  // whose gradient is the first
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
    for (const Tensor& argument : {input, cos_, sin_}) t_.note_saved(argument);
    y = t_.checkpointed([&] { return block(input, w); },
                        [this, input, &w, index] {
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
  Tensor normed = norm(w.norm_1, input);
  const Tensor attended = attention(normed, w);
  Tensor x;
  const auto add_attended = [&] {
    const ModuleScope scope(t_, "attn");
    x = add(t_, attended, input);
  };
  if (w.parallel) {
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
Tensor LitgptDecoder::convolution(const Tensor& x, const Tensor& filter) {
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
  const ModuleScope scope(t_, w.qkv.module);
  const Tensor pretrained = product(w.qkv, x);
  if (w.adapted.empty()) return pretrained;
  const Tensor after_a = linear(t_, dropout(t_, x, s_.lora_dropout), w.qkv.lora_a);
  const auto convolved = [&] {
    const Tensor channels = transpose(t_, after_a, 1, 2), filter = unsqueeze(t_, w.qkv.lora_b, 2);
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
    const Tensor zeros = t_.make({batch_, sequence_, pretrained->shape[2]}, s_.weights, "zeros");
    const Tensor columns = t_.make(w.columns->shape, Element::kI64, "columns of the adapted outputs");
    return copy_columns(t_, zeros, columns, after_b);
  };
  const Tensor change = mul_number(t_, padded());
  return add(t_, pretrained, change);
}

/// In f32, because cos and sin are.
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
  const Tensor q_roped = rotated(slice(t_, q, -1, w.head_dim));
  const Tensor k_roped = rotated(slice(t_, k, -1, w.head_dim));
  q = concatenate(t_, {q_roped, slice(t_, q, -1, 0)});
  k = concatenate(t_, {k_roped, slice(t_, k, -1, 0)});
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

/// Without an adapter.
Tensor LitgptDecoder::product(const Linear& w, const Tensor& x) {
  return s_.nf4 ? bitsandbytes_linear(t_, x, w.nf4) : linear(t_, x, w.weight, w.bias);
}

Tensor LitgptDecoder::run(const Linear& w, const Tensor& x) {
  const ModuleScope scope(t_, w.module);
  const Tensor pretrained = product(w, x);
  if (!w.lora_a) return pretrained;
  Tensor change;
  {
    Tensor inner;
    {
      const Tensor dropped = dropout(t_, x, s_.lora_dropout);
      inner = linear(t_, dropped, w.lora_a);
    }
    const Tensor outputs = linear(t_, inner, w.lora_b);
    inner.reset();
    change = mul_number(t_, outputs);
  }
  return add(t_, pretrained, change);
}

}  // namespace trainhost::frameworks
