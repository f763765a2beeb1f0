// The weights of a Decoder, in the order of model.parameters(), which decides DDP's buckets and ZeRO's
// partitions: whole on each rank, as shards of FSDP2, or as parts of ZeRO 3. Loading them is not described.
// The forward pass: decoder.cpp.
#include <algorithm>
#include <bit>
#include <utility>

#include "core/frameworks/models/decoder.hpp"
#include "core/frameworks/sharding/flat_fsdp.hpp"
#include "core/frameworks/sharding/zero_script.hpp"

namespace trainhost::frameworks {
Decoder::Decoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings)
    : t_(tape),
      a_(architecture),
      s_(settings),
      batch_(settings.batch),
      sequence_(settings.sequence),
      hidden_(architecture.hidden),
      gemma_(architecture.family.starts_with("gemma")),
      gpt2_(architecture.family == "gpt2"),
      phi3_(architecture.family == "phi3"),
      granite_(architecture.family == "granite"),
      olmo_(architecture.family == "olmo2" || architecture.family == "olmo3"),
      gpt_oss_(architecture.family == "gpt_oss"),
      glm4_(architecture.family == "glm4"),
      seed_oss_(architecture.family == "seed_oss"),
      under_autocast_(s_.autocast || (s_.fsdp.flat && s_.fsdp.is_mixed() && !s_.frozen)),
      mask_per_kind_((gemma_ && architecture.family != "gemma") || gpt_oss_ ||
                     architecture.family == "olmo3") {
  if (s_.fsdp.ranks && s_.fsdp.flat)
    fsdp_ = std::make_unique<FlatFsdp>(tape, s_.fsdp, a_.layer_count());
  else if (s_.fsdp.ranks)
    fsdp_ = std::make_unique<Fsdp>(tape, s_.fsdp, a_.layer_count());
  if (s_.zero.stage == 3) zero3_ = std::make_unique<Zero3>(tape, s_);
  const auto vocab = static_cast<std::int64_t>(a_.vocab);
  // A tied embedding is needed from the first product to the last: it belongs to the last unit, which stays
  // gathered.
  embedding_ = weight({vocab, hidden_}, "embed_tokens", true, a_.tied ? Fsdp::kLast : Fsdp::kFirst);
  embedding_->embedding = true;
  if (a_.learned_positions) {
    positions_ = weight({static_cast<std::int64_t>(a_.learned_positions), hidden_}, "wpe");
    positions_->embedding = true;
  }
  for (const model::LayerRun& run : a_.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t_.layer = static_cast<std::int32_t>(layers_.size());
      add_layer(run.layer);
    }
  t_.layer = -1;
  const std::int32_t unit_of_norm = finds_final_norm() ? Fsdp::kLast : Fsdp::kRoot;
  final_norm_ = norm_weight(hidden_, "norm", unit_of_norm);
  if (gpt2_) final_shift_ = weight({hidden_}, "norm", true, unit_of_norm);
  // Tied: lm_head.weight is embed_tokens.weight, one parameter that two modules of stage 3 gather.
  if (!a_.tied) head_ = weight({vocab, hidden_}, "lm_head", true, Fsdp::kLast);
  if (zero3_) {
    if (a_.tied) zero3_->share(embedding_, "lm_head");
    zero3_->start();
  }
  if (s_.fsdp.flat) trained_ = fsdp_->start();
  const auto buffer = [&](const Shape& shape, Element type, const char* module, const char* tensor) {
    buffers_.push_back(t_.new_storage(shape, type, Purpose::kBuffers, module, tensor));
  };
  // Buffers: inv_freq and original_inv_freq of each rotary embedding, which share memory in transformers 4;
  // in 4.45 each layer of some families has one too. Gemma's scale is a scalar in the type of the weights.
  if (s_.unsloth.on)
    add_buffers_of_unsloth();
  else if (!gpt2_)
    for (std::size_t i = 0; i < rotary_tables(); ++i)
      buffer({rotary_width() / 2}, rotary_type(), "rotary_emb", "inverse frequencies");
  // name2qmap of bitsandbytes, of which each weight has a copy.
  if (s_.nf4 && s_.double_quantized) buffer({256}, Element::kF32, "", "table of the NF4 scales");
  if (gemma_) {
    // FSDP1 casts buffers, FSDP2 does not.
    const Element of_model = fsdp_ && !s_.fsdp.flat ? s_.fsdp.frozen.value_or(s_.fsdp.shards) : s_.weights;
    buffer({}, s_.nf4 || s_.int8 ? computed_type() : of_model, "embed_tokens", "scale");
  }
  if (s_.frozen) return;  // the policy has the tokens
  if (s_.preferences.trainer != PreferenceTrainer::kNone && s_.preferences.reference && !s_.lora_rank)
    add_reference();
  ids_ = t_.new_storage({batch_, sequence_}, Element::kI64, Purpose::kBuffers, "", "token ids");
  if (reference_) reference_->ids_ = ids_;
  if (s_.trainer_loss)
    loss_weights_ =
        t_.new_storage({batch_, sequence_}, Element::kF32, Purpose::kBuffers, "", "weights of the tokens");
}

void Decoder::add_reference() {
  reference_settings_ = std::make_unique<StepSettings>(s_);
  StepSettings& r = *reference_settings_;
  const std::optional<Element> type = r.preferences.reference_type;
  const bool of_trl = r.preferences.trainer == PreferenceTrainer::kTrl;
  r.preferences = {};
  r.frozen = true;
  if (r.fsdp.ranks) {
    if (type) r.fsdp.shards = *type;
    // prepare_fsdp() of TRL, which does not cut the model into units under FSDP2.
    r.fsdp.one_unit = of_trl && !r.fsdp.flat;
  } else if (type) {
    r.weights = *type;
  }
  // prepare_deepspeed() of TRL: below stage 3 an engine without ZeRO.
  if (r.zero.stage != 3) r.zero = {};
  // Its calls of ZeRO would be taken for those of the first model.
  if (t_.zero_script && r.zero.stage == 3) t_.zero_script->fail();
  reference_ = std::make_unique<Decoder>(t_, a_, r);
}

std::size_t Decoder::rotary_tables() const {
  if (s_.release == TransformersRelease::k5) return two_rotaries() ? 4 : 2;
  const bool in_layers = s_.release == TransformersRelease::k445 && !granite_;
  return 1 + (in_layers ? layers_.size() : 0);
}

void Decoder::add_buffers_of_unsloth() {
  const auto buffer = [&](const Shape& shape, Element type, const char* name) {
    buffers_.push_back(t_.new_storage(shape, type, Purpose::kBuffers, "", name));
  };
  // LlamaRotaryEmbedding: tables of 32,768 positions, or of a multiple of 8,192 where the sequence is longer.
  constexpr std::int64_t kPositions = 32768, kStep = 8192;
  const std::int64_t positions = std::max(kPositions, (sequence_ + kStep - 1) / kStep * kStep);
  for (const char* name : {"cos", "sin"}) buffer({positions, layers_.front().head_dim}, s_.weights, name);
  // fast_dequantize(use_global_buffer): the largest weight that its functions multiply. With dropout they
  // have no such buffer.
  std::int64_t largest = 0;
  if (s_.lora_dropout == 0)
    for (const LayerWeights& w : layers_)
      for (const LinearWeights* each : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down})
        if (each->quantized && each->lora_a)
          largest = std::max(largest, static_cast<std::int64_t>(each->quantized->shape.count()));
  if (largest) buffer({largest}, computed_type(), "dequantized weight");
  if (!s_.unsloth.offloads) return;
  // Two buffers are used alternately, so that a copy overlaps the computation (double buffering).
  for (int i = 0; i < 2; ++i) {
    staged_input_ = t_.new_storage({batch_, sequence_, hidden_}, s_.weights, Purpose::kBuffers, "",
                                   "layer input, copied from host memory");
    buffers_.push_back(staged_input_);
  }
}

Tensor Decoder::weight(const Shape& shape, const char* module, bool base, std::optional<std::int32_t> unit) {
  if (fsdp_) {
    const bool trained = !s_.frozen && (!base || s_.lora_rank == 0);
    // Without mixed precision adapters are gathered in their own type, beside a base in another one.
    const Element type = base                   ? s_.weights
                         : s_.fsdp.flat         ? s_.fsdp.reduce
                         : s_.fsdp.casts_output ? s_.weights
                                                : s_.fsdp.shards;
    const ShardedUnits::Weight w =
        fsdp_->parameter(unit.value_or(t_.layer), shape, type, module, type, trained);
    if (trained && w.shard) trained_.push_back(w.shard);
    return w.full;
  }
  // With LoRA only adapters are trained: frozen weights have no gradient and no optimizer state.
  const bool trained = !s_.frozen && (!base || s_.lora_rank == 0);
  if (zero3_) {
    const Tensor w = zero3_->parameter(shape, s_.weights, module, trained);
    if (trained) trained_.push_back(w);
    return w;
  }
  // peft keeps adapters in f32 where the base is in bf16 or f16; the engine of DeepSpeed casts the whole
  // model, and TRL the adapters of a quantized one.
  Tensor w = t_.parameter(shape, base || s_.zero.stage ? s_.weights : s_.adapters, module, trained);
  if (trained) trained_.push_back(w);
  return w;
}

Tensor Decoder::norm_weight(std::int64_t width, const char* module, std::optional<std::int32_t> unit) {
  return s_.norm_weights ? t_.parameter({width}, *s_.norm_weights, module, false)
                         : weight({width}, module, true, unit);
}

Element Decoder::computed_type() const {
  return s_.product_type.value_or(s_.autocast ? s_.autocast_type : s_.weights);
}

AdapterModules Decoder::names_of_adapter(const char* module) {
  const auto keep = [&](const char* part) {
    return adapter_names_.insert(std::string(module) + part).first->c_str();
  };
  return {keep(".lora"), keep(".lora_dropout"), keep(".lora_A"), keep(".lora_B")};
}

std::int64_t Decoder::adapter_rank(std::uint32_t target) const {
  if (s_.lora_ranks.empty()) return s_.lora_targets & target ? s_.lora_rank : 0;
  // Matrices with ranks of their own are not fused.
  return s_
      .lora_ranks[static_cast<std::size_t>(t_.layer)][static_cast<std::size_t>(std::countr_zero(target))];
}

LinearWeights Decoder::linear_weights(const char* module, std::int64_t inputs, std::int64_t outputs,
                                      bool bias, std::int64_t rank) {
  LinearWeights w;
  w.module = module;
  if (s_.nf4) {
    // Linear4bit casts its bias to the type in which it computes, for good, in its first call.
    const Shape shape{outputs, inputs};
    const bool shards = fsdp_ && !s_.whole_packed;
    w.quantized = bitsandbytes_weight(t_, shape, computed_type(), module, s_.double_quantized,
                                      shards ? weight(packed_shape(shape, s_.weights), module) : Tensor());
    w.weight = w.quantized->parts.front();
    if (bias)
      w.bias = fsdp_ ? weight({outputs}, module) : t_.parameter({outputs}, computed_type(), module, false);
  } else if (s_.int8) {
    // Linear8bitLt casts its bias to the type of its input, which is that of the norms.
    w.int8 = int8_weight(t_, {outputs, inputs}, module, s_.outlier_columns(inputs));
    w.weight = w.int8->weight;
    if (bias) w.bias = weight({outputs}, module);
  } else {
    // Conv1D of GPT-2 stores [inputs, outputs].
    w.weight = weight(gpt2_ ? Shape{inputs, outputs} : Shape{outputs, inputs}, module);
    if (bias) w.bias = weight({outputs}, module);
  }
  if (rank) {
    // A: [r, inputs], B: [outputs, r].
    w.adapter = names_of_adapter(module);
    // fsdp_auto_wrap_policy() of peft: each matrix is a unit of FSDP1, numbered behind the layers.
    const auto next_unit = [&] { return static_cast<std::int32_t>(a_.layer_count() + adapter_units_++); };
    if (s_.fsdp.flat) w.unit_a = next_unit(), w.unit_b = next_unit();
    const auto unit = [&](std::int32_t u) { return s_.fsdp.flat ? std::optional(u) : std::nullopt; };
    w.lora_a = weight({rank, inputs}, zero3_ ? w.adapter.a : module, false, unit(w.unit_a));
    w.lora_b = weight({outputs, rank}, zero3_ ? w.adapter.b : module, false, unit(w.unit_b));
  }
  return w;
}

void Decoder::add_attention(LayerWeights& w, const model::Attention& a) {
  const auto q = static_cast<std::int64_t>(a.q_width()), kv = static_cast<std::int64_t>(a.k_width());
  w.heads = a.heads;
  w.kv_heads = a.kv_heads;
  w.head_dim = a.head_dim;
  w.window = a.window;
  w.rotary = a.rotary;
  // In the order of model.parameters().
  if (a.sinks) w.sinks = weight({w.heads}, "self_attn");
  const auto add_output = [&] {
    w.o = linear_weights(gpt2_ ? "attn.c_proj" : "self_attn.o_proj", q, hidden_, gpt2_ || a.o_bias,
                         adapter_rank(kLoraO));
  };
  // Phi3Attention declares o_proj before qkv_proj.
  if (phi3_) add_output();
  if (phi3_ || gpt2_) {
    w.qkv = linear_weights(gpt2_ ? "attn.c_attn" : "self_attn.qkv_proj", hidden_, q + 2 * kv, gpt2_,
                           adapter_rank(kLoraQ | kLoraK | kLoraV));
  } else {
    w.q = linear_weights("self_attn.q_proj", hidden_, q, a.q_bias, adapter_rank(kLoraQ));
    w.k = linear_weights("self_attn.k_proj", hidden_, kv, a.k_bias, adapter_rank(kLoraK));
    w.v = linear_weights("self_attn.v_proj", hidden_, kv, a.v_bias, adapter_rank(kLoraV));
  }
  if (!phi3_) add_output();
  if (a.qk_norm != model::NormKind::kNone) {
    w.q_norm = norm_weight(a.qk_norm_per_head ? w.head_dim : q, "self_attn.q_norm");
    w.k_norm = norm_weight(a.qk_norm_per_head ? w.head_dim : kv, "self_attn.k_norm");
  }
}

void Decoder::add_mlp(LayerWeights& w, const model::Layer& l) {
  if (l.experts.count) {
    w.experts_per_token = l.experts.active;
    const std::int64_t n = l.experts.count, width = l.experts.each.width;
    if (s_.release != TransformersRelease::k5) {
      w.router_layer = linear_weights("mlp.gate", hidden_, n, false, 0);
      for (std::int64_t i = 0; i < n; ++i) {
        ExpertLayers& e = w.expert_layers.emplace_back();
        const auto add = [&](LinearWeights& w_of_expert, const char* name, bool down) {
          w_of_expert = linear_weights(name, down ? width : hidden_, down ? hidden_ : width, false, 0);
        };
        if (a_.family == "mixtral") {
          add(e.gate, "mlp.experts.w1", false);
          add(e.down, "mlp.experts.w2", true);
          add(e.up, "mlp.experts.w3", false);
        } else {
          add(e.gate, "mlp.experts.gate_proj", false);
          add(e.up, "mlp.experts.up_proj", false);
          add(e.down, "mlp.experts.down_proj", true);
        }
      }
      return;
    }
    // All experts of a layer are one tensor each, as grouped products need them; no linear layers, so that
    // bitsandbytes quantizes neither them nor the router.
    const auto own = [&](const Shape& shape, const char* module) {
      return s_.expert_weights ? t_.parameter(shape, *s_.expert_weights, module, false)
                               : weight(shape, module);
    };
    const auto add_router = [&] {
      w.router = own({n, hidden_}, gpt_oss_ ? "mlp.router" : zero3_ ? Zero3::kLeaf : "mlp.gate");
      if (l.experts.router_bias) w.router_bias = own({n}, "mlp.router");
    };
    // Qwen3MoeSparseMoeBlock declares its experts before the router.
    const bool router_last = a_.family == "qwen3_moe";
    if (!router_last) add_router();
    // Stage 3 gathers them in one module: see experts(). Only reports name them.
    const char* gathered_in = gpt_oss_ ? "mlp.experts" : Zero3::kLeaf;
    const char *up = zero3_ ? gathered_in : "mlp.experts.gate_up_proj",
               *down = zero3_ ? gathered_in : "mlp.experts.down_proj";
    w.experts_up = own({n, 2 * width, hidden_}, up);
    if (l.experts.each.up_bias) w.experts_up_bias = own({n, 2 * width}, up);
    w.experts_down = own({n, hidden_, width}, down);
    if (l.experts.each.down_bias) w.experts_down_bias = own({n, hidden_}, down);
    if (router_last) add_router();
    // peft makes one of the adapters of gate and up, and wraps the parameters in the order of their names.
    if (const std::int64_t r = n * adapter_rank(kLoraDown)) {
      w.experts_down_a = weight({r, width}, "mlp.experts.down_proj", false);
      w.experts_down_b = weight({hidden_, r}, "mlp.experts.down_proj", false);
    }
    if (const std::int64_t r = 2 * n * adapter_rank(kLoraGate)) {
      w.experts_up_a = weight({r, hidden_}, "mlp.experts.gate_up_proj", false);
      w.experts_up_b = weight({2 * width, r}, "mlp.experts.gate_up_proj", false);
    }
    return;
  }
  const std::int64_t width = l.mlp.width;
  if (phi3_ || glm4_) {
    w.gate_up =
        linear_weights("mlp.gate_up_proj", hidden_, 2 * width, false, adapter_rank(kLoraGate | kLoraUp));
  } else if (gpt2_) {
    w.up = linear_weights("mlp.c_fc", hidden_, width, true, adapter_rank(kLoraUp));
  } else {
    w.gate = linear_weights("mlp.gate_proj", hidden_, width, l.mlp.up_bias, adapter_rank(kLoraGate));
    w.up = linear_weights("mlp.up_proj", hidden_, width, l.mlp.up_bias, adapter_rank(kLoraUp));
  }
  w.down = linear_weights(gpt2_ ? "mlp.c_proj" : "mlp.down_proj", width, hidden_, gpt2_ || l.mlp.down_bias,
                          adapter_rank(kLoraDown));
}

void Decoder::add_layer(const model::Layer& l) {
  LayerWeights w;
  // GPT2Block declares each norm before the module that reads it.
  const auto add_gpt2_norm = [&](std::size_t i) {
    w.norms.push_back(weight({hidden_}, kGpt2NormModules[i]));
    w.norm_shifts.push_back(weight({hidden_}, kGpt2NormModules[i]));
  };
  if (gpt2_) add_gpt2_norm(0);
  add_attention(w, l.attention);
  if (gpt2_) add_gpt2_norm(1);
  add_mlp(w, l);
  for (std::uint32_t i = 0; i < l.norms && !gpt2_; ++i) {
    const char* module = olmo_ ? kOlmoNormModules[i] : glm4_ ? kGlmNormModules[i] : kNormModules[i];
    w.norms.push_back(norm_weight(hidden_, module));
  }
  layers_.push_back(std::move(w));
}

}  // namespace trainhost::frameworks
