// Llama 3 and Qwen3 of torchtitan: weights of this rank, and the forward pass of its stage. StepSettings
// choose between the versions 0.0 to 0.2 (composite_norms, units at the ends, compiled loss); the modules are
// those of 0.2. Attention: decoder_torchtitan_attention.cpp. Parallelism: fsdp.hpp, tensor_parallel.hpp,
// pipeline.hpp. Context parallelism only divides the tokens.
#include "core/frameworks/models/decoder_torchtitan.hpp"

#include <utility>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/kernels/fused.hpp"

namespace trainhost::frameworks {

TorchtitanDecoder::TorchtitanDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      qwen3_(a.family == "qwen3" || a.family == "qwen3_moe"),
      llama4_(a.family.starts_with("llama4")),
      latent_(a.layers.front().layer.attention.latent),
      batch_(settings.batch),
      sequence_(settings.sequence / settings.context),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab) / settings.tensor),
      exchange_{settings.tensor, settings.float8_layers},
      outside_{settings.tensor, false} {
  if (s_.fsdp.ranks) {
    auto made = std::make_unique<Fsdp>(tape, s_.fsdp, a.layer_count());
    units_ = made.get();
    fsdp_ = std::move(made);
    if (s_.expert > 1) units_->separate_experts(s_.fsdp.ranks * s_.tensor / s_.expert);
  }
  if (s_.stage.first()) embedding_ = weight(Fsdp::kFirst, {vocab_, hidden_}, "tok_embeddings");
  const model::Attention& first = a.layers.front().layer.attention;
  const std::int64_t head_dim = latent_ ? first.rope_head_dim : first.head_dim;
  // Of all tokens. Context parallelism keeps a copy while the ranks have their parts.
  // Llama: complex numbers of half a head; Qwen3: cosines and sines of a head.
  const std::int64_t width = qwen3_ ? 2 * head_dim : head_dim / 2;
  const Element type = qwen3_ ? Element::kF32 : Element::kComplex;
  for (std::uint32_t i = 0; i < (settings.context > 1 ? 2u : 1u); ++i)
    all_angles_.push_back(t_.new_storage({settings.sequence, width}, type, Purpose::kBuffers, "",
                                         qwen3_ ? "rope_cache" : "freqs_cis"));
  angles_ = t_.alias(all_angles_.front(), {sequence_, width});
  // Layers are numbered from 0 in each stage, because only this stage is in the trace.
  const auto [begin, end] = layers_of_stage(a.layer_count(), s_.stage);
  std::uint32_t index = 0;
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i, ++index) {
      if (index < begin || index >= end) continue;
      t_.layer = static_cast<std::int32_t>(layers_.size());
      add_layer(run.layer);
    }
  t_.layer = -1;
  if (s_.stage.last()) {
    final_norm_ = weight(Fsdp::kLast, {hidden_}, "norm");
    const Shape shape{vocab_, hidden_};
    if (!qwen3_ || !a.tied || !s_.stage.first())
      head_ = weight(Fsdp::kLast, shape, "output");
    else if (units_)
      head_ = units_->tied_parameter(Fsdp::kLast, shape, s_.weights, "output", s_.weights, trained_.front());
    else
      head_ = embedding_;
  }
  const Shape tokens{batch_, sequence_};
  ids_ = t_.new_storage(tokens, Element::kI64, Purpose::kBuffers, "", "token ids");
  labels_ = t_.new_storage(tokens, Element::kI64, Purpose::kBuffers, "", "labels");
}

Tensor TorchtitanDecoder::weight(std::int32_t unit, const Shape& shape, const char* module) {
  if (fsdp_) {
    // Of every linear layer but the head. The gradient has the compute type.
    const bool narrow = s_.float8_gather && unit >= 0 && shape.dims == 2;
    const Fsdp::Weight w =
        fsdp_->parameter(unit, shape, narrow ? Element::kByte : s_.weights, module, s_.weights);
    trained_.push_back(w.shard);
    w.full->copies_gradient = s_.tensor > 1;
    return w.full;
  }
  trained_.push_back(t_.parameter(shape, s_.weights, module, true));
  return trained_.back();
}

void TorchtitanDecoder::add_layer(const model::Layer& l) {
  const model::Attention& a = l.attention;
  // Column-wise: wq, wk, wv, w1 and w3, whose outputs are divided; row-wise: wo and w2, whose inputs are.
  // Norms are whole on each rank.
  const std::int64_t ranks = s_.tensor;
  const auto q = static_cast<std::int64_t>(a.q_width()) / ranks,
             kv = static_cast<std::int64_t>(a.k_width()) / ranks;
  const std::int64_t width = l.mlp.width / ranks;
  const auto add = [&](std::int64_t outputs, std::int64_t inputs, const char* module) {
    return weight(t_.layer, {outputs, inputs}, module);
  };
  Layer w;
  w.heads = a.heads / ranks;
  w.kv_heads = a.kv_heads / ranks;
  w.head_dim = a.head_dim;
  if (a.qk_norm == model::NormKind::kRms) {  // whole on each rank
    w.q_norm = weight(t_.layer, {w.head_dim}, "attention.q_norm");
    w.k_norm = weight(t_.layer, {w.head_dim}, "attention.k_norm");
  }
  if (latent_) {
    add_latent(a, w);
  } else {
    w.wq = add(q, hidden_, "attention.wq");
    w.wk = add(kv, hidden_, "attention.wk");
    w.wv = add(kv, hidden_, "attention.wv");
    w.wo = add(hidden_, q, "attention.wo");
  }
  if (l.experts.count) {
    add_experts(l.experts, w);
  } else {
    w.w1 = add(width, hidden_, "feed_forward.w1");
    w.w2 = add(hidden_, width, "feed_forward.w2");
    w.w3 = add(width, hidden_, "feed_forward.w3");
  }
  w.attention_norm = weight(t_.layer, {hidden_}, "attention_norm");
  w.ffn_norm = weight(t_.layer, {hidden_}, "ffn_norm");
  layers_.push_back(std::move(w));
}

StageModel::Pass TorchtitanDecoder::pass(const Tensor& input) {
  const AutocastScope autocast(t_, s_.autocast);
  Tensor output = output_of(input);
  if (!s_.stage.last()) return {std::move(output), {}};
  Tensor result = loss_of(output);
  return {std::move(output), std::move(result)};
}

Tensor TorchtitanDecoder::loss_of(const Tensor& output) {
  const ModuleScope scope(t_, "loss");
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  t_.in_loss = true;
  const Tensor rows = view(t_, output, {batch_ * sequence_, vocab_});
  const Tensor targets = t_.alias(labels_, {batch_ * sequence_});
  const auto computed = [&] {
    // Compiled, the loss reads the logits in bf16; eagerly it materialises them in f32. With tensor
    // parallelism each rank has a part of the vocabulary.
    if (s_.compiles_loss) return fused_cross_entropy(t_, rows, targets);
    const Tensor wide = to(t_, rows, Element::kF32);
    return s_.tensor > 1 ? parallel_cross_entropy(t_, wide, targets) : cross_entropy(t_, wide, targets);
  };
  Tensor result = computed();
  t_.in_loss = false;
  t_.purpose = before;
  return result;
}

Tensor TorchtitanDecoder::output_of(const Tensor& input) {
  // The root unit has weights only where the ends are no units of their own.
  if (fsdp_) fsdp_->before_forward(Fsdp::kRoot);
  Tensor x = s_.stage.first() ? embedded() : input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    t_.layer = static_cast<std::int32_t>(i);
    x = unit_of_layer(x, layers_[i]);
  }
  t_.layer = -1;
  if (s_.stage.last()) x = logits(std::move(x));
  if (fsdp_) fsdp_->after_forward(Fsdp::kRoot, x);
  return x;
}

Tensor TorchtitanDecoder::embedded() {
  const ModuleScope scope(t_, "tok_embeddings");
  if (fsdp_) fsdp_->before_forward(Fsdp::kFirst);
  Tensor x = scatter_tokens(t_, embedding(t_, ids_, embedding_, s_.tensor), outside_);
  if (fsdp_) fsdp_->after_forward(Fsdp::kFirst, x);
  return x;
}

Tensor TorchtitanDecoder::logits(Tensor hidden) {
  if (fsdp_) fsdp_->before_forward(Fsdp::kLast);
  if (fsdp_) hidden = fsdp_->input(Fsdp::kLast, hidden);
  Tensor x = norm(hidden, final_norm_, "norm");
  // forward() assigns h again: the output of the last layer is free once the norm has it, unless it is saved.
  hidden.reset();
  const ModuleScope scope(t_, "output");
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  x = gather_tokens(t_, x, outside_);
  Tensor output = linear(t_, x, head_);
  t_.purpose = before;
  if (fsdp_) fsdp_->after_forward(Fsdp::kLast, output);
  return output;
}

Tensor TorchtitanDecoder::unit_of_layer(const Tensor& x, const Layer& w) {
  const std::int32_t index = t_.layer;
  // FSDP2 casts the inputs of a unit (cast_forward_inputs): each layer of Qwen3 has a table of its own.
  const Tensor angles = qwen3_ && fsdp_ ? to(t_, angles_, s_.weights) : angles_;
  if (fsdp_) fsdp_->before_forward(index);
  const Tensor input = fsdp_ ? fsdp_->input(index, x) : x;
  Tensor y;
  const auto number = static_cast<std::uint32_t>(index) + 1;
  if (s_.checkpoint || s_.selective || (s_.recomputed_layers && number % s_.recomputed_layers == 0)) {
    // The checkpoint keeps the arguments of the block: its input and the angles; those of Llama count once
    // for all layers.
    t_.note_saved(input);
    t_.note_saved(angles);
    y = t_.checkpointed([&] { return block(input, angles, w); },
                        [this, input, angles, &w, index] {
                          const AutocastScope autocast(t_, s_.autocast);
                          t_.layer = index;
                          t_.module = "";
                          block(input, angles, w);
                        },
                        // Eagerly the whole block runs again (early_stop is off by default). Compiled
                        // recomputation is part of the backward graph: it contains only what is needed, so
                        // the product of w2, and its sum over the ranks, are not kept either.
                        {.keeps_products = s_.selective,
                         .dropped = s_.compiles_layers ? (s_.tensor > 1 ? 2u : 1u) : 0u,
                         .stops_early = s_.compiles_layers});
  } else {
    y = block(input, angles, w);
  }
  if (fsdp_) fsdp_->after_forward(index, y);
  return y;
}

Tensor TorchtitanDecoder::block(const Tensor& x, const Tensor& angles, const Layer& w) {
  // An argument is freed when the function that it was computed for returns.
  const auto attended = [&] {
    const Tensor input = norm(x, w.attention_norm, "attention_norm");
    if (latent_) return latent_attention(gather_tokens(t_, input, exchange_), angles, w);
    return attention(gather_tokens(t_, input, exchange_), angles, w);
  };
  const Tensor h = add(t_, x, scattered(attended()));
  const auto fed = [&] {
    const Tensor input = keeps_buffers_after(norm(h, w.ffn_norm, "ffn_norm"), w);
    if (!w.experts.count) return feed_forward(gather_tokens(t_, input, exchange_), w);
    // The hook of the whole module divides the sum of the ranks' results, while its input exists.
    const Tensor all = gather_tokens(t_, input, exchange_);
    return divided(mixture(all, w));
  };
  return add(t_, h, scattered(fed()));
}

Tensor TorchtitanDecoder::divided(Tensor product) {
  return s_.compiles_layers ? product : scatter_tokens(t_, product, exchange_);
}

Tensor TorchtitanDecoder::scattered(Tensor output) {
  return s_.compiles_layers ? scatter_tokens(t_, output, exchange_) : output;
}

Tensor TorchtitanDecoder::keeps_buffers_after(const Tensor& x, const Layer& w) {
  if (!reuses_buffers()) return x;
  const std::int64_t tokens = batch_ * sequence_, kv_width = w.kv_heads * w.head_dim;
  const Shape all{tokens, hidden_};
  const auto keep = [=, this](BackwardCall& c) {
    const auto add = [&](const Shape& shape, Element type, const char* name) {
      buffers_.push_back(c.tape.make(shape, type, name));
    };
    // The gradients of the input by w1 and w3, and what was sent to be reduced.
    for (int i = 0; i < 3; ++i) add(all, s_.weights, "buffer of all tokens, used again");
    // In 8 bits: the gathered input, its copy by columns for w1 and for w3, and that of the gathered gradient
    // for w2.
    for (int i = 0; i < 4; ++i) add(all, Element::kByte, "buffer of all tokens in 8 bits, used again");
    // Of the rotary embedding, which the layer recomputed.
    add({tokens, w.heads * w.head_dim}, Element::kF32, "buffer of the queries, used again");
    add({tokens, kv_width}, Element::kF32, "buffer of the keys, used again");
    c.results[0] = c.take();
  };
  return t_.apply_view({"buffers", std::span(&x, 1), {}, false, keep}, x, x->shape);
}

Tensor TorchtitanDecoder::uses_buffers_before(const Tensor& x) {
  if (!reuses_buffers()) return x;
  const auto release = [this](BackwardCall& c) {
    buffers_.clear();
    c.results[0] = c.take();
  };
  return t_.apply_view({"buffers", std::span(&x, 1), {}, false, release}, x, x->shape);
}

Tensor TorchtitanDecoder::norm(const Tensor& x, const Tensor& weight, const char* module) {
  const ModuleScope scope(t_, module);
  const bool compiled = s_.compiles_layers && t_.layer >= 0;
  // torch's RMSNorm is one kernel since torchtitan 0.1. That of 0.0 is the separate operators below, which a
  // compiled layer fuses to the same.
  if (!s_.composite_norms || compiled) return rms_norm(t_, x, weight);
  Tensor scaled = divide_by_rms(t_, x);
  const Tensor narrow = to(t_, scaled, x->type);
  scaled.reset();
  return mul(t_, narrow, weight);
}

Tensor TorchtitanDecoder::feed_forward(const Tensor& x, const Layer& w) {
  const auto project = [&](const Tensor& input, const Tensor& weight, const char* module) {
    const ModuleScope scope(t_, module);
    return linear(t_, input, weight);
  };
  // w2(silu(w1(x)) * w3(x)): saved are the results of w1 and w3, silu() and the product, [N, I / ranks] each.
  Tensor active = project(x, w.w1, "feed_forward.w1");
  const ModuleScope scope(t_, "feed_forward");
  active = silu(t_, active);
  Tensor up = project(x, w.w3, "feed_forward.w3");
  const Tensor product = mul(t_, active, up);
  active.reset();
  up.reset();
  return divided(project(product, w.w2, "feed_forward.w2"));
}

}  // namespace trainhost::frameworks
