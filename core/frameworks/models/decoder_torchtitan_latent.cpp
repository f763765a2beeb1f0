// Multi-latent attention of DeepSeek V3 of torchtitan 0.2. torchtitan computes it by FlexAttention, which
// keeps what the efficient kernel of SDPA keeps: q, k, v, the result and its log-sum-exp.
#include <utility>

#include "core/frameworks/autograd/attention.hpp"
#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/models/decoder_torchtitan.hpp"

namespace trainhost::frameworks {

void TorchtitanDecoder::add_latent(const model::Attention& a, Layer& w) {
  const auto add = [&](std::int64_t outputs, std::int64_t inputs, const char* module) {
    return weight(t_.layer, {outputs, inputs}, module);
  };
  Latent& l = w.latent;
  // Heads are divided among tensor-parallel ranks; the matrices that reduce the rank, and norms, are whole.
  l.rank = a.kv_lora_rank, l.nope = a.nope_head_dim, l.rope = a.rope_head_dim, l.value = a.v_head_dim;
  const std::int64_t width = l.nope + l.rope, q_rank = a.q_lora_rank;
  if (q_rank) {
    l.wq_a = add(q_rank, hidden_, "attention.wq_a");
    l.q_norm = weight(t_.layer, {q_rank}, "attention.q_norm");
  }
  w.wq = add(w.heads * width, q_rank ? q_rank : hidden_, q_rank ? "attention.wq_b" : "attention.wq");
  l.wkv_a = add(l.rank + l.rope, hidden_, "attention.wkv_a");
  l.kv_norm = weight(t_.layer, {l.rank}, "attention.kv_norm");
  l.wkv_b = add(w.heads * (l.nope + l.value), l.rank, "attention.wkv_b");
  w.wo = add(hidden_, w.heads * l.value, "attention.wo");
}

Tensor TorchtitanDecoder::rotated_alone(const Tensor& x, const Tensor& angles) {
  // apply_rotary_emb(): the f32 copy and the result in f32 exist until it returns.
  const Tensor wide = view_as_complex(t_, to(t_, x, Element::kF32));
  const Tensor table = t_.alias(angles, {1, sequence_, 1, x->shape[-1] / 2});
  const Tensor turned = view_as_real(t_, mul(t_, wide, table), x->shape.made_contiguous());
  return to(t_, turned, x->type);
}

Tensor TorchtitanDecoder::latent_attention(const Tensor& x, const Tensor& angles, const Layer& w) {
  const Latent& l = w.latent;
  const auto project = [&](const Tensor& input, const Tensor& weight, const char* module) {
    const ModuleScope scope(t_, module);
    return linear(t_, input, weight);
  };
  const auto heads = [&](const Tensor& flat, std::int64_t width) {
    return view(t_, flat, {batch_, sequence_, w.heads, width});
  };
  Tensor q;
  if (l.wq_a) {
    q = project(x, l.wq_a, "attention.wq_a");
    q = project(norm(q, l.q_norm, "attention.q_norm"), w.wq, "attention.wq_b");
  } else {
    q = project(x, w.wq, "attention.wq");
  }
  const ModuleScope scope(t_, "attention");
  q = heads(q, l.nope + l.rope);
  std::vector<Tensor> of_q = split(t_, q, {l.nope, l.rope});
  of_q[1] = rotated_alone(of_q[1], angles);
  q = concatenate(t_, {of_q[0], of_q[1]});

  Tensor kv = project(x, l.wkv_a, "attention.wkv_a");
  std::vector<Tensor> of_kv = split(t_, kv, {l.rank, l.rope});
  kv = std::move(of_kv[0]);
  const Tensor k_rope = rotated_alone(unsqueeze(t_, of_kv[1], 2), angles);
  of_kv.clear();
  kv = project(norm(kv, l.kv_norm, "attention.kv_norm"), l.wkv_b, "attention.wkv_b");
  kv = heads(kv, l.nope + l.value);
  const std::vector<Tensor> parts = split(t_, kv, {l.nope, l.value});
  const Tensor k = concatenate(t_, {parts[0], expand(t_, k_rope, 2, w.heads)});

  AttentionInputs in;
  in.q = transpose(t_, q, 1, 2);
  in.k = transpose(t_, k, 1, 2);
  in.v = transpose(t_, parts[1], 1, 2);
  in.own_value_width = l.nope + l.rope != l.value;
  q.reset();
  Tensor output = sdpa_attention(t_, in).output;
  output = view(t_, output, {batch_, sequence_, w.heads * l.value});
  const ModuleScope last(t_, "attention.wo");
  return divided(linear(t_, output, w.wo));
}

}  // namespace trainhost::frameworks
