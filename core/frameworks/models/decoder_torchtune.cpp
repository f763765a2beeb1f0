// The Llama of torchtune, which is its Mistral too, and its Qwen 2 and 3 (main branch, commit bd2a0fc); what
// Gemma and Phi-3 have of their own: decoder_torchtune_gemma.cpp. This file:
// weights and forward pass of TransformerDecoder. Eager layers follow the Python code operator by operator;
// compiled ones have a kernel between two products (fused.hpp), because torchtune compiles each layer alone.
// The losses: torchtune_loss.cpp.
#include "core/frameworks/models/decoder_torchtune.hpp"

#include <utility>

#include "core/frameworks/autograd/attention.hpp"
#include "core/frameworks/kernels/fused.hpp"
#include "core/frameworks/sharding/flat_fsdp.hpp"

namespace trainhost::frameworks {

/// Tensors whose copy to host memory may be incomplete: max_fwd_stash_size of OffloadActivations.
constexpr std::size_t kInFlight = 5;

TorchtuneDecoder::TorchtuneDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      batch_(settings.batch),
      sequence_(settings.sequence),
      hidden_(a.hidden),
      vocab_(a.vocab),
      tied_(a.tied),
      qwen_(a.family.starts_with("qwen")),
      gemma_(a.family.starts_with("gemma")),
      gemma2_(a.family == "gemma2"),
      phi3_(a.family == "phi3"),
      layer_count_(static_cast<std::int32_t>(a.layer_count())) {
  if (s_.fsdp.ranks && s_.fsdp.flat)
    fsdp_ = std::make_unique<FlatFsdp>(tape, s_.fsdp, a.layer_count());
  else if (s_.fsdp.ranks)
    fsdp_ = std::make_unique<Fsdp>(tape, s_.fsdp, a.layer_count());
  embedding_ = weight(Fsdp::kFirst, {vocab_, hidden_}, "tok_embeddings");
  // RotaryPositionalEmbeddings: one table for all layers, with a row for each position up to max_seq_len,
  // which may be many times the length of the sequences. The builders of Qwen with adapters make one per
  // layer, and so do those of Gemma and Phi-3. Qwen's table has each angle twice, and so has that of Phi-3.
  const std::int64_t half = a.layers.front().layer.attention.head_dim / 2;
  const std::int64_t positions = s_.positions ? s_.positions : sequence_;
  const auto buffer = [&](const Shape& shape, Element type, const char* module, const char* name) {
    return t_.new_storage(shape, type, Purpose::kBuffers, module, name);
  };
  const auto add_angles = [&] {
    buffers_.push_back(buffer({half}, Element::kF32, "pos_embeddings", "inverse frequencies"));
    angles_ = buffer(qwen_ || phi3_ ? Shape{positions, 4 * half} : Shape{positions, half, 2}, Element::kF32,
                     "pos_embeddings", "cos and sin of every position");
    buffers_.push_back(angles_);
  };
  const bool own_angles = (qwen_ || gemma_ || phi3_) && s_.lora_rank;
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t_.layer = static_cast<std::int32_t>(layers_.size());
      add_layer(run.layer);
      if (own_angles) add_angles(), layers_.back().angles = angles_;
    }
  t_.layer = -1;
  final_norm_ = weight(Fsdp::kRoot, {hidden_}, "norm");
  head_ = tied_ ? embedding_ : weight(Fsdp::kLast, {vocab_, hidden_}, "output");
  if (s_.fsdp.flat) trained_ = fsdp_->start();
  if (!own_angles) add_angles();
  ids_ = buffer({batch_, sequence_}, Element::kI64, "", "token ids");
  labels_ = buffer({batch_, sequence_}, Element::kI64, "", "labels");
  positions_ = buffer({batch_, sequence_}, Element::kI64, "", "positions");
}

Tensor TorchtuneDecoder::weight(std::int32_t unit, const Shape& shape, const char* module, bool adapter) {
  const bool trained = adapter || s_.lora_rank == 0;
  if (fsdp_) {
    // Frozen weights are sharded and gathered like trained ones; only these have a gradient to reduce.
    const Fsdp::Weight w = fsdp_->parameter(unit, shape, s_.weights, module, s_.weights, trained);
    if (trained && w.shard) trained_.push_back(w.shard);
    return w.full;
  }
  Tensor w = t_.parameter(shape, s_.weights, module, trained);
  if (trained) trained_.push_back(w);
  return w;
}

TorchtuneDecoder::Linear TorchtuneDecoder::linear_weights(const char* module, std::int64_t inputs,
                                                          std::int64_t outputs, bool bias,
                                                          std::uint32_t target) {
  Linear w;
  w.module = module;
  const Shape shape{outputs, inputs};
  if (s_.nf4 && fsdp_)
    w.nf4 = {shape, s_.weights, {weight(t_.layer, {elements_of_nf4(shape, s_.weights)}, module)}};
  else if (s_.nf4)
    w.nf4 = nf4_weight(t_, shape, s_.weights, module);
  else
    w.weight = weight(t_.layer, shape, module);
  if (bias) w.bias = weight(t_.layer, {outputs}, module);
  if (s_.lora_rank && (s_.lora_targets & target)) {
    // lora_fsdp_wrap_policy(): each matrix is a unit of FSDP1, numbered behind the layers.
    const auto unit = [&](std::int32_t& number) {
      return number = s_.fsdp.flat ? layer_count_ + adapter_units_++ : t_.layer;
    };
    w.lora_a = weight(unit(w.unit_a), {s_.lora_rank, inputs}, module, true);
    w.lora_b = weight(unit(w.unit_b), {outputs, s_.lora_rank}, module, true);
  }
  return w;
}

void TorchtuneDecoder::add_layer(const model::Layer& l) {
  const model::Attention& a = l.attention;
  const auto q = static_cast<std::int64_t>(a.q_width()), kv = static_cast<std::int64_t>(a.k_width());
  const std::int64_t width = l.mlp.width;
  Layer w;
  w.heads = a.heads;
  w.kv_heads = a.kv_heads;
  w.head_dim = a.head_dim;
  w.q = linear_weights("attn.q_proj", hidden_, q, a.q_bias, kLoraQ);
  w.k = linear_weights("attn.k_proj", hidden_, kv, a.k_bias, kLoraK);
  w.v = linear_weights("attn.v_proj", hidden_, kv, a.v_bias, kLoraV);
  w.output = linear_weights("attn.output_proj", q, hidden_, false, kLoraO);
  w.gate = linear_weights("mlp.w1", hidden_, width, false, kLoraGate);
  w.down = linear_weights("mlp.w2", width, hidden_, false, kLoraDown);
  w.up = linear_weights("mlp.w3", hidden_, width, false, kLoraUp);
  if (a.qk_norm != model::NormKind::kNone) {
    w.q_norm = weight(t_.layer, {w.head_dim}, "attn.q_norm");
    w.k_norm = weight(t_.layer, {w.head_dim}, "attn.k_norm");
  }
  w.attention_norm = weight(t_.layer, {hidden_}, "sa_norm");
  w.mlp_norm = weight(t_.layer, {hidden_}, "mlp_norm");
  w.window = a.window > 0;
  if (gemma2_) {
    w.attention_scale = weight(t_.layer, {hidden_}, "sa_scale");
    w.mlp_scale = weight(t_.layer, {hidden_}, "mlp_scale");
  }
  layers_.push_back(std::move(w));
}

Tensor TorchtuneDecoder::loss() {
  t_.module = "";
  Tensor tokens;
  {
    // The recipe counts the labels that are not ignored before it calls the model.
    const Tensor counted = t_.make({batch_, sequence_}, Element::kBool, "labels that count");
    tokens = t_.make({}, Element::kI64, "tokens of the micro-batch");
  }
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  const Purpose before = t_.purpose;
  Tensor result;
  {
    // The model's function keeps the output of the last layer until it returns.
    Tensor last = last_layer();
    Tensor hidden = gemma_ ? last_norm(last) : norm(last, final_norm_, "norm");
    offload({}, 0);  // what the last norm saves takes their place
    // The model returns hidden states (skip_output_layer): the loss calls the head after its forward pass has
    // ended.
    if (s_.loss == LossKind::kChunkedHead) {
      last.reset();
      after_forward(hidden);
    }
    switch (s_.loss) {
      case LossKind::kPlain:
      case LossKind::kMovedLogits: {
        result = plain_loss(std::move(hidden), std::move(last));
        break;
      }
      case LossKind::kChunkedLogits:
        result = chunked_loss(std::move(hidden), std::move(last));
        break;
      case LossKind::kChunkedHead:
        result = linear_loss(hidden);
        break;
    }
  }
  t_.in_loss = true;
  t_.module = "loss";
  // Losses of micro-batches are weighted by their labels, and gradients divided by the sum of these before
  // the optimizer's step; an optimizer inside the backward pass allows no such scaling.
  if (!s_.update_in_backward) result = mul(t_, result, tokens);
  t_.in_loss = false;
  t_.purpose = before;
  t_.module = "";
  return result;
}

Tensor TorchtuneDecoder::last_layer() {
  Tensor x;
  {
    const ModuleScope scope(t_, "tok_embeddings");
    if (s_.fsdp.separate_ends) fsdp_->before_forward(Fsdp::kFirst);
    x = gemma_ ? embedded() : embedding(t_, ids_, embedding_);
    if (s_.fsdp.separate_ends) fsdp_->after_forward(Fsdp::kFirst, x);
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    t_.layer = static_cast<std::int32_t>(i);
    x = unit_of_layer(x, layers_[i]);
  }
  t_.layer = -1;
  return x;
}

Tensor TorchtuneDecoder::unit_of_layer(const Tensor& x, const Layer& w) {
  const std::int32_t index = t_.layer;
  if (fsdp_) fsdp_->before_forward(index);
  const Tensor input = fsdp_ ? fsdp_->input(index, x) : x;
  Tensor y;
  // The input of the layer is all that is saved; the table of angles is no argument of the layer.
  if (s_.checkpoint) {
    t_.note_saved(input);
    y = t_.checkpointed([&] { return block(input, w); },
                        [this, input, &w, index] {
                          // In the backward pass: the copy in host memory comes back when its layer is
                          // recomputed.
                          if (s_.offload_inputs) bring_back(input, index);
                          t_.layer = index;
                          t_.module = "";
                          block(input, w);
                        });
  } else {
    y = block(input, w);
  }
  if (fsdp_) fsdp_->after_forward(index, y);
  if (s_.checkpoint && s_.offload_inputs) offload(input, kInFlight);
  return y;
}

/// `output`: of the model; of several chunks the last one, whose gradient is the first.
void TorchtuneDecoder::after_forward(const Tensor& output) {
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, output);
}

/// Copies an input to host memory; at most `kept` inputs are on the device until their copy is complete.
void TorchtuneDecoder::offload(const Tensor& input, std::size_t kept) {
  // The copy runs on a stream of its own. OffloadActivations waits for the oldest one when max_fwd_stash_size
  // tensors are in flight, so that many are on the device at a time.
  if (input) offloading_.push_back(input);
  while (offloading_.size() > kept) {
    t_.make_absent(offloading_.front());
    offloading_.erase(offloading_.begin());
  }
}

void TorchtuneDecoder::bring_back(const Tensor& input, std::int32_t layer) {
  if (!input->storage->present)
    t_.make_present(input, input->bytes(), layer, "", "layer input, copied from host memory",
                    Purpose::kActivations);
}

Tensor TorchtuneDecoder::block(const Tensor& x, const Layer& w) {
  // TransformerSelfAttentionLayer.forward(): `h` is assigned again, `attended` and `out` exist until it
  // returns.
  Tensor h = norm(x, w.attention_norm, "sa_norm");
  const Tensor attended = gemma2_ ? capped_attention(h, w) : attention(h, w);
  {
    const ModuleScope scope(t_, "attn");
    h = add(t_, w.attention_scale ? norm(attended, w.attention_scale, "sa_scale") : attended, x);
  }
  // self.mlp(self.mlp_norm(h)): the argument has no name and is freed when the MLP returns.
  const auto fed = [&] {
    const Tensor input = norm(h, w.mlp_norm, "mlp_norm");
    return feed_forward(input, w);
  };
  const Tensor out = fed();
  const ModuleScope scope(t_, "mlp");
  return add(t_, h, w.mlp_scale ? norm(out, w.mlp_scale, "mlp_scale") : out);
}

Tensor TorchtuneDecoder::norm(const Tensor& x, const Tensor& weight, const char* module) {
  const ModuleScope scope(t_, module);
  if (gemma_) return gemma_norm(t_, x, weight);
  // A compiled layer has one kernel that keeps x and 1/rms. The last norm is outside of the layers, so it is
  // eager: f32, with a sum of separate operators.
  if (s_.compiles_layers && t_.layer >= 0) return rms_norm(t_, x, weight);
  // x_fp32 is a variable of the function; everything else is part of one expression.
  const Tensor wide = to(t_, x, Element::kF32);
  Tensor scale;
  {
    Tensor squares = pow(t_, wide);
    const Tensor variance = mean(t_, squares);
    squares.reset();
    scale = add_number(t_, variance);
  }
  scale = rsqrt(t_, scale);
  Tensor scaled = mul(t_, wide, scale);
  scale.reset();
  const Tensor narrow = to(t_, scaled, x->type);
  scaled.reset();
  return mul(t_, narrow, weight);
}

Tensor TorchtuneDecoder::run(const Linear& w, const Tensor& x) {
  const ModuleScope scope(t_, w.module);
  // LoRALinear.forward(): out + (alpha / rank) * lora_b(lora_a(dropout(x))).
  Tensor out = s_.nf4 ? nf4_linear(t_, x, w.nf4, s_.compiles_layers) : linear(t_, x, w.weight, w.bias);
  if (!w.lora_a) return out;
  Tensor change = product_of_adapter(dropout(t_, x, s_.lora_dropout), w.lora_a, w.unit_a);
  // Compiled: the scale is part of another kernel, and the sum is written to the first product.
  if (s_.compiles_layers) return add_in_place(t_, out, product_of_adapter(change, w.lora_b, w.unit_b));
  {
    const Tensor wide = product_of_adapter(change, w.lora_b, w.unit_b);
    change = mul_number(t_, wide);
  }
  return add(t_, out, change);
}

Tensor TorchtuneDecoder::product_of_adapter(const Tensor& x, const Tensor& weight, std::int32_t unit) {
  if (!s_.fsdp.flat) return linear(t_, x, weight);
  fsdp_->before_forward(unit);
  Tensor out = linear(t_, x, weight);
  fsdp_->after_forward(unit, out);
  return out;
}

/// RotaryPositionalEmbeddings.forward(): pairs of elements are rotated in f32, [B, S, heads, D/2, 2]. The
/// products save only the angles, which need no gradient; x in f32 and the four products are freed when it
/// returns.
Tensor TorchtuneDecoder::rotated(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, "attn.pos_embeddings");
  const std::int64_t half = w.head_dim / 2;
  // cache[input_pos] copies a row for each token of packed rows; without positions it is a view of the table.
  Tensor table = angles_of(w);
  if (s_.packed) table = t_.make({batch_, sequence_, half, 2}, Element::kF32, "cos and sin of the tokens");
  const Shape& s = x->shape;
  const Tensor wide = to(t_, x, Element::kF32);
  const Tensor pairs = view(t_, wide, {s[0], s[1], s[2], half, 2});
  const Tensor angles = t_.alias(table, {s_.packed ? batch_ : 1, sequence_, 1, half, 2});
  const auto one = [&](const Tensor& of) { return slice(t_, of, -1, 1); };
  const auto combined = [&](bool difference) {
    const Tensor left = mul(t_, one(pairs), one(angles));
    const Tensor right = mul(t_, one(pairs), one(angles));
    return difference ? subtract(t_, left, right) : add(t_, left, right);
  };
  Tensor out;
  {
    const Tensor first = combined(true), second = combined(false);
    out = concatenate(t_, {first, second});
  }
  out = view(t_, out, s);
  return to(t_, out, x->type);
}

Tensor TorchtuneDecoder::rotated_halves(const Tensor& x, const Layer& w) {
  // Qwen2RotaryPositionalEmbeddings.forward(): in the type of x, with a copy of cos and of sin in that type.
  // Its variables exist until it returns.
  const ModuleScope scope(t_, "attn.pos_embeddings");
  const std::int64_t rows = s_.packed ? batch_ : 1, half = w.head_dim / 2;
  Tensor table = angles_of(w);
  if (s_.packed) table = t_.make({batch_, sequence_, 4 * half}, Element::kF32, "cos and sin of the tokens");
  const Shape angles{rows, sequence_, 1, w.head_dim};
  const Tensor cos = t_.make(angles, x->type, "cos"), sin = t_.make(angles, x->type, "sin");
  const Tensor first = slice(t_, x, -1, half), second = slice(t_, x, -1, half);
  const Tensor turned = concatenate(t_, {neg(t_, second), first});
  Tensor left = mul(t_, x, cos);
  const Tensor right = mul(t_, turned, sin);
  return add(t_, left, right);
}

/// Queries or keys, [B, S, heads, D], with their norm and positions. Qwen 3 transposes them for the norm, and
/// assigns the result to the variable that had x.
Tensor TorchtuneDecoder::positioned(Tensor x, const Layer& w, const Tensor& norm_weight, const char* name) {
  if (phi3_) return rotated_halves_in_f32(x, w);
  if (!qwen_) return rotated(x, w);
  if (norm_weight) {
    x = transpose(t_, x, 1, 2);
    x = norm(x, norm_weight, name);
    x = transpose(t_, x, 1, 2);
  }
  return rotated_halves(x, w);
}

Tensor TorchtuneDecoder::repeated(const Tensor& x, std::int64_t times) {
  // expand().flatten(1, 2): a copy, because no strides describe repeated heads as one dimension.
  if (times == 1) return x;
  const Tensor wide = expand(t_, unsqueeze(t_, x, 2), 2, times);
  return reshape(t_, wide, {x->shape[0], x->shape[1] * times, x->shape[2], x->shape[3]});
}

Tensor TorchtuneDecoder::attention(const Tensor& x, const Layer& w) {
  const auto heads = [&](const Tensor& flat, std::int64_t count) {
    return view(t_, flat, {batch_, sequence_, count, w.head_dim});
  };
  Tensor q = run(w.q, x);
  // One kernel rotates and transposes: its result is what attention saves, and nothing in f32 is.
  if (s_.compiles_layers) {
    q = fused_map(t_, q, Shape{batch_, sequence_, w.heads, w.head_dim}.transposed(1, 2));
  } else {
    q = heads(q, w.heads);
    q = transpose(t_, positioned(std::exchange(q, {}), w, w.q_norm, "attn.q_norm"), 1, 2);
  }
  Tensor k = run(w.k, x), v = run(w.v, x);
  const ModuleScope scope(t_, "attn");
  if (s_.compiles_layers) {
    // The same kernel repeats keys and values for each query head.
    const Shape all = Shape{batch_, sequence_, w.heads, w.head_dim}.transposed(1, 2);
    k = fused_map(t_, k, all);
    if (w.heads != w.kv_heads)
      v = fused_map(t_, v, all);
    else
      v = transpose(t_, heads(v, w.heads), 1, 2);
    AttentionInputs in;
    in.q = std::exchange(q, {});
    in.k = std::exchange(k, {});
    in.v = std::exchange(v, {});
    const Tensor attended = sdpa_attention(t_, in).output;
    in = {};
    return run(w.output, view(t_, attended, {batch_, sequence_, w.heads * w.head_dim}));
  }
  // MultiHeadAttention.forward(): the variables q, k and v exist until it returns.
  k = heads(k, w.kv_heads);
  v = heads(v, w.kv_heads);
  k = transpose(t_, positioned(std::exchange(k, {}), w, w.k_norm, "attn.k_norm"), 1, 2);
  v = transpose(t_, v, 1, 2);
  const std::int64_t times = w.heads / w.kv_heads;
  k = repeated(k, times);
  v = repeated(v, times);
  AttentionInputs in;
  in.q = q;
  in.k = k;
  in.v = v;
  Tensor output = sdpa_attention(t_, in).output;
  output = view(t_, output, {batch_, sequence_, w.heads * w.head_dim});
  return run(w.output, output);
}

Tensor TorchtuneDecoder::feed_forward(const Tensor& x, const Layer& w) {
  // w2(silu(w1(x)) * w3(x)). Compiled: one kernel computes the product, and the results of w1, w3 and the
  // product are saved. Eager: also silu(), so four tensors [N, I]; `h` is assigned again.
  if (s_.compiles_layers) {
    Tensor gate = run(w.gate, x), up = run(w.up, x);
    const ModuleScope scope(t_, "mlp");
    const Tensor product = fused_swiglu(t_, gate, up);
    gate.reset();
    up.reset();
    return run(w.down, product);
  }
  Tensor h;
  {
    const Tensor gate = run(w.gate, x);
    const ModuleScope scope(t_, "mlp");
    h = gemma_ ? gelu(t_, gate) : silu(t_, gate);
  }
  {
    const Tensor up = run(w.up, x);
    const ModuleScope scope(t_, "mlp");
    h = mul(t_, h, up);
  }
  return run(w.down, h);
}

}  // namespace trainhost::frameworks
