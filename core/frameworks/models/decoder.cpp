// The forward pass of a Decoder up to the final norm: the causal language models of transformers 5.23
// and 5.24 (Llama and what is like it, Gemma 1 to 3, OLMo 2 and 3, Granite, GLM-4, Seed-OSS, Mixtral) and
// the LoRA layers of peft 0.21. C++ variables are those of the Python functions. Attention:
// decoder_attention.cpp; head and loss: decoder_loss.cpp; weights: decoder_weights.cpp; Mixtral's experts:
// decoder_experts.cpp; GPT-2's layer: decoder_gpt2.cpp.
#include "core/frameworks/models/decoder.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/frameworks/kernels/adapter_kernels.hpp"
#include "core/frameworks/kernels/liger.hpp"
#include "core/frameworks/kernels/unsloth.hpp"

namespace trainhost::frameworks {

Tensor Decoder::loss() {
  if (s_.preferences.trainer != PreferenceTrainer::kNone) return preference_loss();
  if (s_.tiled_loss) return tiled_loss();
  return called_model([this] { return loss_of_model(); });
}

Tensor Decoder::called_model(const std::function<Tensor()>& forward) {
  if (!zero3_) return forward();
  // The module without a name is the model itself, which the engine of DeepSpeed calls.
  zero3_->begin_forward();
  const auto model = [&](const Tensor&) {
    return zero3_->call("", {}, [&](const Tensor&) { return forward(); });
  };
  if (!s_.lora_rank) return model({});
  // PeftModel and LoraModel.
  return zero3_->call("peft", {}, [&](const Tensor&) { return zero3_->call("base_model", {}, model); });
}

Tensor Decoder::module(const char* name, const Tensor& x, const std::function<Tensor(const Tensor&)>& body,
                       bool by_position) {
  return zero3_ ? zero3_->call(name, x, body, by_position) : body(x);
}

/// Gemma 3 and OLMo 3 rotate layers with a window by other angles.
bool Decoder::two_rotaries() const {
  bool window = false, full = false;
  for (const LayerWeights& w : layers_) (w.window ? window : full) = true;
  return a_.family != "gemma2" && !gpt_oss_ && mask_per_kind_ && window && full;
}

Element Decoder::rotary_type() const {
  return s_.fsdp.flat && s_.fsdp.is_mixed() ? s_.weights : Element::kF32;
}

Decoder::Rotary Decoder::rotary_tables(std::int64_t head_dim) {
  if (zero3_) zero3_->call("rotary_emb", {}, [](const Tensor&) { return Tensor(); });
  const ModuleScope scope(t_, "rotary_emb");
  // gpt-oss has one angle per pair of elements; others have it twice.
  const Shape shape{1, sequence_, gpt_oss_ ? head_dim / 2 : head_dim};
  // LlamaRotaryEmbedding.forward(), in f32 with autocast off: freqs, emb = cat(freqs, freqs), cos and sin
  // times a scale. It runs once per micro-batch; all layers share the result.
  Tensor wide;  // inv_freq.float()
  if (rotary_type() != Element::kF32) wide = t_.make({head_dim / 2}, Element::kF32, "inverse frequencies");
  const Tensor frequencies = t_.make({1, sequence_, head_dim / 2}, Element::kF32, "angles");
  const Tensor angles = gpt_oss_ ? frequencies : t_.make(shape, Element::kF32, "angles");
  const auto table = [&](const char* name) {
    const Tensor unscaled = t_.make(shape, Element::kF32, name);
    return t_.make(shape, Element::kF32, name);
  };
  const Tensor cos = table("cos"), sin = table("sin");
  const auto cast = [&](const Tensor& x, const char* name) {
    // Those of OLMo stay in f32.
    const Tensor y = s_.weights == Element::kF32 || olmo_ ? x : t_.make(shape, s_.weights, name);
    return t_.alias(y, shape.unsqueezed(1));
  };
  return {cast(cos, "cos"), cast(sin, "sin")};
}

/// None where SDPA needs no mask.
Tensor Decoder::mask(bool window) {
  // xformers and flash-attn have causal masks and windows without memory.
  if (s_.unsloth.on || s_.attention == AttentionKernel::kFlash2) return {};
  // Causal SDPA needs no mask (is_causal). Eager attention adds one of the type of the weights; a window
  // needs a boolean one, which SDPA converts in each layer.
  const bool eager = s_.attention == AttentionKernel::kEager;
  if (!eager && !window) return {};
  const ModuleScope scope(t_, "");
  const Tensor allowed = t_.make({1, 1, sequence_, sequence_}, Element::kBool, "mask");
  const Shape shape = allowed->shape.expanded(0, batch_);
  return eager ? t_.make(elementwise(shape), s_.weights, "mask") : t_.alias(allowed, shape);
}

Tensor Decoder::hidden_states() {
  Tensor x;
  {
    const ModuleScope scope(t_, "embed_tokens");
    if (fsdp_) fsdp_->before_forward(a_.tied ? Fsdp::kLast : Fsdp::kFirst);
    x = module("embed_tokens", ids_, [this](const Tensor& ids) {
      Tensor rows = embedding(t_, ids, embedding_);
      // embed_scale.to(weight.dtype): a copy where FSDP2 gathers weights in another type.
      if (gemma_) rows = mul(t_, rows, fsdp_ ? to(t_, buffers_.back(), rows->type) : buffers_.back());
      // The input of a checkpointed region must need a gradient, or the adapters inside would get none.
      // enable_input_require_grads(), a hook that runs before those of stage 3: a leaf.
      if (s_.lora_rank && s_.checkpoint) rows->requires_grad = rows->input_leaf = true;
      return rows;
    });
    if (fsdp_ && !a_.tied) fsdp_->after_forward(Fsdp::kFirst, x);
  }
  if (granite_) x = mul_number(t_, x);  // embedding_multiplier
  const Tensor tokens = x;              // variables of the Python function: they exist until it returns
  const Tensor position_ids = t_.make({1, sequence_}, Element::kI64, "position ids");
  Tensor places;
  if (gpt2_) {
    const ModuleScope scope(t_, "wpe");
    places = module("wpe", position_ids, [this](const Tensor& in) { return embedding(t_, in, positions_); });
    x = add(t_, tokens, places);
  }
  bool any_full = false, any_window = false;
  // A window longer than the sequence masks nothing more: such layers use the mask of full attention.
  const auto windowed = [&](const LayerWeights& w) { return w.window && sequence_ >= w.window; };
  for (const LayerWeights& w : layers_) (windowed(w) ? any_window : any_full) = true;
  const bool eager = s_.attention == AttentionKernel::kEager;
  // Gemma 2 and 3 and OLMo 3 make both masks, whatever their layers need.
  const Tensor full_mask = any_full || mask_per_kind_ ? mask(false) : Tensor();
  const Tensor window_mask = any_window ? mask(true) : mask_per_kind_ && eager ? mask(false) : Tensor();
  if (gpt2_) x = dropout_module("drop", x);
  Rotary rotary, window_rotary;
  if (!gpt2_ && !s_.unsloth.on) rotary = rotary_tables(rotary_width());
  window_rotary = rotary;
  if (two_rotaries()) window_rotary = rotary_tables(rotary_width());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    t_.layer = static_cast<std::int32_t>(i);
    const LayerWeights& w = layers_[i];
    const bool window = mask_per_kind_ ? w.window : windowed(w);
    // Gemma 2 and 3 and OLMo 3 choose the mask by the kind of the layer, others by whether the window
    // matters.
    const Context context{w.window ? window_rotary : rotary, window ? window_mask : full_mask, position_ids};
    x = module("", x, [&](const Tensor& in) {
      return s_.checkpoint && !is_reference_ ? checkpointed_layer(in, w, context)
                                             : sharded_layer(in, w, context);
    });
  }
  t_.layer = -1;
  if (last_unit_begins_at_norm()) x = enter_last_unit(x);
  if (gpt2_)
    return module("norm", x, [this](const Tensor& in) {
      const ModuleScope scope(t_, "norm");
      return layer_norm(t_, in, final_norm_, final_shift_);
    });
  return norm(x, final_norm_, "norm");
}

bool Decoder::finds_final_norm() const { return s_.lora_rank == 0 || gpt2_; }

bool Decoder::last_unit_begins_at_norm() const { return fsdp_ && !a_.tied && finds_final_norm(); }

Tensor Decoder::enter_last_unit(const Tensor& x) {
  fsdp_->before_forward(Fsdp::kLast);
  return fsdp_->input(Fsdp::kLast, x);
}

Tensor Decoder::checkpointed_layer(const Tensor& x, const LayerWeights& w, const Context& context) {
  const std::int32_t index = t_.layer;
  // GradientCheckpointingLayer: arguments by position are saved; keyword arguments (cos, sin, the mask) are
  // kept by the function that is called again, without counting as saved.
  // Unsloth keeps the input of the last layer on the device; in the first step it moves that one too, which
  // is not the peak.
  const bool last = static_cast<std::size_t>(index) + 1 == layers_.size();
  const bool staged = staged_input_ && !last;
  if (!staged) t_.note_saved(x);
  const bool masked = gpt2_ && context.mask;  // an argument by position
  if (masked) t_.note_saved(context.mask);
  if (s_.reentrant) {
    // The module that FSDP1 makes of the layer is in the checkpoint, or the checkpoint is in that module.
    const bool holds_unit = s_.release >= TransformersRelease::k449;
    if (fsdp_ && !holds_unit) fsdp_->before_forward(index);
    std::vector<Tensor> inputs{fsdp_ && !holds_unit ? fsdp_->input(index, x) : x};
    if (masked) inputs.push_back(context.mask);
    Tensor y = t_.checkpointed_reentrant(
        inputs,
        [this, &w, context, index, holds_unit](const std::vector<Tensor>& in) {
          // Its first run is part of the autocast region of the model.
          std::optional<AutocastScope> autocast;
          if (t_.grad_enabled) autocast.emplace(t_, under_autocast_);
          t_.layer = index;
          t_.module = "";
          return holds_unit ? sharded_layer(in[0], w, context) : layer(in[0], w, context);
        },
        staged ? staged_input_ : Tensor());
    if (fsdp_ && !holds_unit) fsdp_->after_forward(index, y);
    return y;
  }
  // The module of FSDP2 casts its arguments once, and the checkpoint in it keeps them.
  const auto kept = std::make_shared<Context>(context);
  return t_.checkpointed([&] { return sharded_layer(x, w, context, kept.get()); },
                         [this, x, &w, kept, index] {
                           const AutocastScope autocast(t_, under_autocast_);
                           t_.layer = index;
                           t_.module = "";
                           // Not sharded_layer(): the hook of the layer's output has gathered its weights
                           // before.
                           layer(x, w, *kept);
                         });
}

Tensor Decoder::sharded_layer(const Tensor& x, const LayerWeights& w, const Context& context, Context* kept) {
  if (!fsdp_) return layer(x, w, context);
  const std::int32_t unit = t_.layer;
  Tensor y;
  {
    const Context arguments = arguments_in_unit(context);
    if (kept) *kept = arguments;
    fsdp_->before_forward(unit);
    y = layer(fsdp_->input(unit, x), w, arguments);
  }
  fsdp_->after_forward(unit, y);
  return y;
}

Decoder::Context Decoder::arguments_in_unit(const Context& context) {
  // cast_forward_inputs of MixedPrecisionPolicy. Only OLMo's cos and sin have another type than the weights.
  const FsdpPolicy& f = s_.fsdp;
  const bool casts = f.casts_output || (!f.frozen && s_.weights != f.shards);
  if (!fsdp_ || f.flat || !olmo_ || !casts) return context;
  Context cast = context;
  cast.rotary = {to(t_, context.rotary.cos, s_.weights), to(t_, context.rotary.sin, s_.weights)};
  return cast;
}

Tensor Decoder::dropout_module(const char* name, const Tensor& x) {
  return module(name, x, [&](const Tensor& in) {
    const ModuleScope scope(t_, name);
    return dropout(t_, in, s_.dropout);
  });
}

Tensor Decoder::norm(const Tensor& x, const Tensor& weight, const char* name) {
  return module(name, x, [&](const Tensor& in) { return norm_of(in, weight, name); });
}

Tensor Decoder::norm_of(const Tensor& x, const Tensor& weight, const char* name) {
  const ModuleScope scope(t_, name);
  // LlamaRMSNorm.forward(): saved are the f32 copy of x, 1/rms, and where the weight is trained the normed x.
  // The variables `variance` and the f32 result exist until it returns.
  if (s_.liger.norms) return liger_rms_norm(t_, x, weight, !gemma_);
  // Fast_RMS_Layernorm(reuse_grad = True) with a frozen weight.
  if (s_.unsloth.on) return liger_rms_norm(t_, x, weight, true);
  if (gemma_) return gemma_norm(t_, x, weight);
  Tensor h = to(t_, x, Element::kF32);
  Tensor squares = pow(t_, h);
  const Tensor variance = mean(t_, squares);
  squares.reset();
  Tensor shifted = add_number(t_, variance);
  Tensor scale = rsqrt(t_, shifted);
  shifted.reset();
  h = mul(t_, h, scale);
  scale.reset();
  // Olmo2RMSNorm and GptOssRMSNorm: the product is in f32.
  if (olmo_ || gpt_oss_) return to(t_, mul(t_, weight, h), x->type);
  const Tensor narrow = to(t_, h, x->type);
  return mul(t_, weight, narrow);
}

Tensor Decoder::run(const LinearWeights& w, const Tensor& x) {
  const ModuleScope scope(t_, w.module);
  if (!w.lora_a) return base_product(w, x);
  if (is_reference_) return module(w.adapter.layer, x, [&](const Tensor& in) { return base_product(w, in); });
  return module(w.adapter.layer, x, [&](const Tensor& in) { return adapted(w, in); });
}

Tensor Decoder::base_product(const LinearWeights& w, const Tensor& x) {
  return module(w.module, x, [&](const Tensor& in) {
    if (w.quantized) return linear_4bit(t_, in, *w.quantized);
    if (w.int8) return linear_8bit(t_, in, *w.int8);
    return gpt2_ ? conv1d(t_, in, w.weight, w.bias) : linear(t_, in, w.weight, w.bias);
  });
}

Tensor Decoder::product_of_adapter(const Tensor& x, const Tensor& weight, std::int32_t unit) {
  if (!s_.fsdp.flat) return linear(t_, x, weight);
  fsdp_->before_forward(unit);
  const Tensor cast = to(t_, x, weight->type);  // MixedPrecision.cast_forward_inputs
  Tensor out = linear(t_, cast, weight);
  fsdp_->after_forward(unit, out);
  return out;
}

Tensor Decoder::adapted(const LinearWeights& w, const Tensor& x) {
  if (w.quantized || w.int8) return adapted_quantized(w, x);
  // lora.Linear.forward() of peft: result + lora_B(lora_A(dropout(x))) * scaling, with x in the type of the
  // adapter.
  Tensor result = base_product(w, x);
  const Element type = result->type;
  if (zero3_) zero3_->read(w.lora_a, w.adapter.layer);  // for its type
  const Tensor wide = to(t_, x, s_.fsdp.flat ? fsdp_->visible_type(w.unit_a) : w.lora_a->type);
  Tensor small =
      module(w.adapter.dropout, wide, [&](const Tensor& in) { return dropout(t_, in, s_.lora_dropout); });
  small = module(w.adapter.a, small,
                 [&](const Tensor& in) { return product_of_adapter(in, w.lora_a, w.unit_a); });
  Tensor change = module(w.adapter.b, small,
                         [&](const Tensor& in) { return product_of_adapter(in, w.lora_b, w.unit_b); });
  small.reset();
  change = mul_number(t_, change);
  result = add(t_, result, change);
  change.reset();
  return to(t_, result, type);
}

Tensor Decoder::adapted_quantized(const LinearWeights& w, const Tensor& x) {
  // lora.Linear4bit.forward() of peft: x is cast to the type of the adapter and the change to that of the
  // result, unless autocast does so for each product. lora.Linear8bitLt makes no copy of the result.
  Tensor result = base_product(w, x);
  if (!w.int8) result = clone(t_, result);
  // FSDP of accelerate in mixed precision runs under autocast too, where every product has one type already.
  const bool autocast = t_.autocast_on || (fsdp_ && s_.fsdp.is_mixed());
  const auto adapter_type = [&] { return s_.fsdp.flat ? fsdp_->visible_type(w.unit_a) : w.lora_a->type; };
  const Tensor wide = autocast ? x : to(t_, x, adapter_type());
  Tensor small = dropout(t_, wide, s_.lora_dropout);
  small = product_of_adapter(small, w.lora_a, w.unit_a);
  Tensor change = product_of_adapter(small, w.lora_b, w.unit_b);
  small.reset();
  change = mul_number(t_, change);
  if (!autocast) change = to(t_, change, result->type);
  return add(t_, result, change);
}

Tensor Decoder::activated(const Tensor& x) {
  return module("mlp.act_fn", x, [this](const Tensor& in) { return gemma_ ? gelu(t_, in) : silu(t_, in); });
}

Tensor Decoder::mlp(const Tensor& x, const LayerWeights& w) {
  // down_proj(act_fn(gate_proj(x)) * up_proj(x)): saved are gate, act_fn(gate), up and their product, [N, I]
  // each.
  if (s_.adapter_kernels.mlp && all_adapted({&w.gate, &w.up, &w.down})) {
    const Tensor after_dropout = dropped(w.gate, x);
    const ModuleScope scope(t_, "mlp");
    return axolotl_mlp(t_, x, after_dropout, {for_kernel(w.gate), for_kernel(w.up), for_kernel(w.down)});
  }
  if (s_.unsloth.on && all_adapted({&w.gate, &w.up, &w.down})) {
    const ModuleScope scope(t_, "mlp");
    const std::array weights{for_kernel(w.gate), for_kernel(w.up), for_kernel(w.down)};
    return s_.lora_dropout > 0 ? unsloth_mlp_dropped(t_, x, weights) : unsloth_mlp(t_, x, weights);
  }
  Tensor product;
  Tensor half;  // Phi-3's variable `gate`, a view that keeps the fused output until the function returns
  if (w.gate_up.weight) {
    const Tensor fused = run(w.gate_up, x);
    const ModuleScope scope(t_, "mlp");
    const std::vector<Tensor> parts = split(t_, fused, {fused->shape[-1] / 2, fused->shape[-1] / 2});
    half = parts[0];
    product = s_.liger.swiglu ? liger_swiglu(t_, half, parts[1]) : mul(t_, parts[1], activated(half));
  } else if (s_.liger.swiglu) {
    const Tensor gate = run(w.gate, x), up = run(w.up, x);
    const ModuleScope scope(t_, "mlp");
    product = liger_swiglu(t_, gate, up);
  } else {
    Tensor gate = run(w.gate, x);
    {
      const ModuleScope scope(t_, "mlp.act_fn");
      gate = activated(gate);
    }
    const Tensor up = run(w.up, x);
    const ModuleScope scope(t_, "mlp");
    product = mul(t_, gate, up);
  }
  Tensor down = run(w.down, product);
  if (!seed_oss_) return down;
  product.reset();
  const ModuleScope scope(t_, "mlp");
  return dropout(t_, down, s_.dropout);
}

Tensor Decoder::scaled_output(const Tensor& x) { return granite_ ? mul_number(t_, x) : x; }

Tensor Decoder::olmo_layer(const Tensor& input, const LayerWeights& w, const Context& context) {
  // Olmo2DecoderLayer.forward(): norms of the outputs of attention and MLP, none of their inputs.
  Tensor residual = input;
  AttentionOutputs attention_outputs = attended(input, w, context);
  Tensor x = std::move(attention_outputs.output);
  x = norm(x, w.norms[0], kOlmoNormModules[0]);
  {
    const ModuleScope scope(t_, "self_attn");
    x = add(t_, residual, x);
  }
  residual = x;
  x = module("mlp", x, [&](const Tensor& in) { return mlp(in, w); });
  x = norm(x, w.norms[1], kOlmoNormModules[1]);
  const ModuleScope scope(t_, "mlp");
  return add(t_, residual, x);
}

Tensor Decoder::layer(const Tensor& input, const LayerWeights& w, const Context& context) {
  if (gpt2_) return gpt2_layer(input, w, context);
  if (olmo_) return olmo_layer(input, w, context);
  // LlamaDecoderLayer.forward(). Gemma 2 and 3 and GLM-4 have norms after attention and MLP too. `residual`
  // keeps the input of each half until its sum exists; the sum saves nothing.
  const bool four = w.norms.size() == 4;
  Tensor residual = input;
  const char* const* names = glm4_ ? kGlmNormModules : kNormModules;
  Tensor x = norm(input, w.norms[0], names[0]);
  AttentionOutputs attention_outputs = attended(x, w, context);
  x = std::move(attention_outputs.output);
  // Phi-3 has dropout modules, which are off: hooks of stage 3 without memory.
  const auto unchanged = [](const Tensor& in) { return in; };
  if (phi3_) x = module("resid_attn_dropout", x, unchanged);
  if (four) x = norm(x, w.norms[1], names[1]);
  {
    const ModuleScope scope(t_, "self_attn");
    x = add(t_, residual, scaled_output(x));
  }
  residual = x;
  x = norm(x, w.norms[four ? 2 : 1], names[four ? 2 : 1]);
  x = module("mlp", x, [&](const Tensor& in) {
    return w.router ? experts(in, w) : w.expert_layers.empty() ? mlp(in, w) : expert_modules(in, w);
  });
  if (gpt_oss_) attention_outputs.weights.reset();  // `_` is assigned again
  if (phi3_) x = module("resid_mlp_dropout", x, unchanged);
  if (four) x = norm(x, w.norms[3], names[3]);
  const ModuleScope scope(t_, "mlp");
  return add(t_, residual, scaled_output(x));
}

}  // namespace trainhost::frameworks
