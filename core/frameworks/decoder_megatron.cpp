#include "core/frameworks/decoder_megatron.hpp"

#include <array>
#include <utility>

#include "core/frameworks/fused.hpp"
#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// The mean over all tokens; its gradient is that of each token.
Tensor mean_of_tokens(Tape& t, const Tensor& losses) {
  return t.apply({"loss",
                  std::span(&losses, 1),
                  {},
                  false,
                  [shape = losses->shape](BackwardCall& c) {
                    c.results[0] = c.tape.make(shape, Element::kF32, "gradient of the losses");
                  }},
                 {}, Element::kF32);
}

}  // namespace

MegatronDecoder::MegatronDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      tokens_(settings.sequence / settings.context),
      sequences_(settings.batch),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab) / settings.tensor),
      engine_(tape, settings.tensor, settings.megatron.shares_tokens) {
  if (s_.stage.first()) {
    embedding_ = matrix(vocab_, hidden_, "embedding.word_embeddings");
    embedding_->requires_grad = true;
  }
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
    final_norm_ = vector(hidden_, "decoder.final_layernorm");
    // The last of several stages has its own copy of a shared table.
    head_ = a.tied && s_.stage.first() ? embedding_ : matrix(vocab_, hidden_, "output_layer");
  }
  const model::Attention& attention = a.layers.front().layer.attention;
  const std::int64_t head_dim = attention.latent ? attention.rope_head_dim : attention.head_dim;
  add_buffers();
  // What autograd computes (gradients of norms and of the embedding) is added to the buffer and freed.
  t_.after_gradient = [](const Tensor& p) { p->grad.reset(); };
  angles_ =
      t_.new_storage({tokens_, 1, 1, head_dim}, Element::kF32, Purpose::kBuffers, "rotary_pos_emb", "angles");
  ids_ = t_.new_storage({sequences_, tokens_}, Element::kI64, Purpose::kBuffers, "", "token ids");
  labels_ = t_.new_storage({sequences_, tokens_}, Element::kI64, Purpose::kBuffers, "", "labels");
}

/// Experts are shared by fewer ranks, so they have buffers of their own.
void MegatronDecoder::add_buffers() {
  const MegatronPolicy& p = s_.megatron;
  buffers_.reserve(2);
  buffers_.emplace_back(t_, p, p.ranks, parameters_);
  if (!expert_parameters_.empty()) buffers_.emplace_back(t_, p, p.ranks / p.expert, expert_parameters_);
  for (const MegatronBuffers& b : buffers_)
    trained_.insert(trained_.end(), b.main_weights().begin(), b.main_weights().end());
}

Tensor MegatronDecoder::matrix(std::int64_t outputs, std::int64_t inputs, const char* module) {
  parameters_.push_back(t_.parameter({outputs, inputs}, s_.weights, module, false));
  return parameters_.back();
}

Tensor MegatronDecoder::vector(std::int64_t features, const char* module) {
  parameters_.push_back(t_.parameter({features}, s_.weights, module, true));
  return parameters_.back();
}

void MegatronDecoder::add_layer(const model::Layer& l) {
  const std::int64_t ranks = s_.tensor, width = l.mlp.width / ranks;
  Layer w;
  if (l.attention.latent) {
    add_latent_attention(l.attention, w);
  } else {
    w.heads = l.attention.heads / ranks;
    w.groups = l.attention.kv_heads / ranks;
    w.head_dim = l.attention.head_dim;
    w.input_norm = vector(hidden_, "self_attention.linear_qkv.layer_norm");
    w.qkv = matrix((w.heads + 2 * w.groups) * w.head_dim, hidden_, "self_attention.linear_qkv");
    w.proj = matrix(hidden_, w.heads * w.head_dim, "self_attention.linear_proj");
  }
  if (l.experts.count) {
    w.mlp_norm = vector(hidden_, "pre_mlp_layernorm");
    add_experts(l.experts, w);
    layers_.push_back(std::move(w));
    return;
  }
  w.mlp_norm = vector(hidden_, "mlp.linear_fc1.layer_norm");
  w.fc1 = matrix(2 * width, hidden_, "mlp.linear_fc1");
  w.fc2 = matrix(hidden_, width, "mlp.linear_fc2");
  layers_.push_back(std::move(w));
}

StageModel::Pass MegatronDecoder::pass(const Tensor& input) {
  Tensor x = s_.stage.first() ? embedded() : input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    t_.layer = static_cast<std::int32_t>(i);
    x = layer(x, layers_[i]);
  }
  t_.layer = -1;
  if (!s_.stage.last()) return {std::move(x), {}};
  Tensor normed;
  {
    const ModuleScope scope(t_, "decoder.final_layernorm");
    normed = engine_.norm(x, final_norm_);
  }
  x.reset();
  Tensor loss = loss_of(normed);
  return {loss, loss};
}

Tensor MegatronDecoder::loss_of(const Tensor& hidden) {
  const Purpose before = std::exchange(t_.purpose, Purpose::kLogits);
  Tensor logits;
  {
    const ModuleScope scope(t_, "output_layer");
    logits = engine_.head(hidden, head_);
  }
  const ModuleScope scope(t_, "loss");
  t_.in_loss = true;
  const Tensor losses = engine_.cross_entropy(logits, labels_, s_.megatron.in_place_loss);
  Tensor result = mean_of_tokens(t_, losses);
  t_.in_loss = false;
  t_.purpose = before;
  return result;
}

Tensor MegatronDecoder::embedded() {
  const ModuleScope scope(t_, "embedding");
  // [sequences, tokens] to [tokens, sequences], copied with more than one sequence.
  const Tensor x = contiguous(t_, transpose(t_, embedding(t_, ids_, embedding_), 0, 1));
  return dropout(t_, engine_.scatter_tokens(x), s_.dropout);
}

Tensor MegatronDecoder::layer(const Tensor& x, const Layer& w) {
  if (!s_.checkpoint) return block(x, w);
  t_.note_saved(x);
  return t_.checkpointed([&] { return block(x, w); },
                         [this, x, &w, index = t_.layer] {
                           t_.layer = index;
                           t_.module = "";
                           block(x, w);
                         },
                         {.stops_early = false});
}

Tensor MegatronDecoder::block(const Tensor& x, const Layer& w) {
  const Tensor attended = w.kv_down ? latent_attention(x, w) : attention(x, w);
  const Tensor h = add(t_, x, dropout(t_, attended, s_.dropout));
  return add(t_, h, dropout(t_, w.router ? experts(h, w) : mlp(h, w), s_.dropout));
}

Tensor MegatronDecoder::attention(const Tensor& x, const Layer& w) {
  const std::int64_t per_group = w.heads / w.groups;
  std::vector<Tensor> parts;
  {
    const ModuleScope scope(t_, "self_attention.linear_qkv");
    const Tensor mixed = engine_.norm_linear(x, w.input_norm, w.qkv);
    parts = split(t_, view(t_, mixed, {tokens_, sequences_, w.groups, (per_group + 2) * w.head_dim}),
                  {per_group * w.head_dim, w.head_dim, w.head_dim});
  }
  const ModuleScope scope(t_, "self_attention.core_attention");
  Tensor q = reshape(t_, parts[0], {tokens_, sequences_, w.heads, w.head_dim});
  parts[0].reset();
  q = fused_map(t_, q, q->shape.made_contiguous());
  const Tensor k = fused_map(t_, parts[1], parts[1]->shape.made_contiguous());
  parts[1].reset();
  // The variable `value` keeps the output of linear_qkv until the end.
  const Tensor& v = parts[2];
  Tensor out;
  if (s_.selective) {
    for (const Tensor* t : {&std::as_const(q), &k, &v}) t_.note_saved(*t);
    out = t_.checkpointed([&] { return core_attention(q, k, v); },
                          [this, q, k, v, index = t_.layer] {
                            t_.layer = index;
                            core_attention(q, k, v);
                          },
                          {.stops_early = false});
  } else {
    out = core_attention(q, k, v);
  }
  const ModuleScope last(t_, "self_attention.linear_proj");
  return engine_.row_linear(view(t_, out, {tokens_, sequences_, w.heads * w.head_dim}), w.proj);
}

/// The kernel takes three tensors with the same strides, so v is copied out of the output of linear_qkv.
Tensor MegatronDecoder::core_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return engine_.attention(q, k, contiguous(t_, v), s_.megatron.exchanges_heads);
}

Tensor MegatronDecoder::mlp(const Tensor& x, const Layer& w) {
  const auto expanded = [&] {
    const ModuleScope scope(t_, "mlp.linear_fc1");
    return engine_.norm_linear(x, w.mlp_norm, w.fc1);
  };
  const auto activated = [&] {
    const Tensor wide = expanded();
    const ModuleScope scope(t_, "mlp.activation");
    return engine_.swiglu(wide);
  };
  const Tensor active = activated();
  const ModuleScope scope(t_, "mlp.linear_fc2");
  return engine_.row_linear(active, w.fc2);
}

}  // namespace trainhost::frameworks
