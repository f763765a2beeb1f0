// Attention of the models of torchtitan: products, norms of q and k (Qwen3), rotary positions, repeated keys
// and values, the output projection. The rest of a layer: decoder_torchtitan.cpp.
#include <tuple>
#include <utility>

#include "core/frameworks/autograd/attention.hpp"
#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/models/decoder_torchtitan.hpp"

namespace trainhost::frameworks {

std::pair<Tensor, Tensor> TorchtitanDecoder::rotated_pairs(const Tensor& q, const Tensor& k,
                                                           const Tensor& all) {
  // apply_rotary_emb() of Llama: its variables keep both f32 copies until it returns.
  const auto complex = [&](const Tensor& part) { return view_as_complex(t_, to(t_, part, Element::kF32)); };
  const Tensor q_complex = complex(q), k_complex = complex(k);
  // The product saves only the angles [S, D/2], a buffer that exists anyway.
  const Tensor angles = t_.alias(all, {1, sequence_, 1, q->shape[-1] / 2});
  const auto turned = [&](const Tensor& part, const Tensor& like) {
    return view_as_real(t_, mul(t_, part, angles), like->shape);
  };
  const Tensor q_out = turned(q_complex, q), k_out = turned(k_complex, k);
  Tensor q_narrow = to(t_, q_out, q->type), k_narrow = to(t_, k_out, k->type);
  return {std::move(q_narrow), std::move(k_narrow)};
}

std::pair<Tensor, Tensor> TorchtitanDecoder::rotated_halves(const Tensor& q, const Tensor& k,
                                                            const Tensor& all) {
  // apply_rotary_emb() of Qwen3: cosines and sines are views of the table, or
  // casts of them where the table has another type, which each product saves.
  const std::int64_t width = q->shape[-1];
  const Tensor table = t_.alias(all, {1, sequence_, 1, 2 * width});
  const auto part = [&] { return to(t_, slice(t_, table, -1, width), q->type); };
  const Tensor cos = part(), sin = part();
  const auto turned = [&](const Tensor& x) {
    Tensor left = mul(t_, x, cos);
    Tensor half;
    {
      const Tensor first = slice(t_, x, -1, width / 2), second = slice(t_, x, -1, width / 2);
      half = concatenate(t_, {neg(t_, second), first});
    }
    const Tensor right = mul(t_, half, sin);
    half.reset();
    return add(t_, left, right);
  };
  Tensor q_out = turned(q), k_out = turned(k);
  return {std::move(q_out), std::move(k_out)};
}

Tensor TorchtitanDecoder::repeated(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  // [B, S, kv heads, D] to [B, S, heads, D]: a copy.
  const Tensor wide = expand(t_, unsqueeze(t_, x, 3), 3, times);
  return reshape(t_, wide, {x->shape[0], x->shape[1], x->shape[2] * times, x->shape[3]});
}

Tensor TorchtitanDecoder::attention(const Tensor& x, const Tensor& angles, const Layer& w) {
  const auto project = [&](const Tensor& weight, const char* module) {
    const ModuleScope scope(t_, module);
    return linear(t_, x, weight);
  };
  const auto heads = [&](const Tensor& flat, std::int64_t count) {
    return view(t_, flat, {batch_, sequence_, count, w.head_dim});
  };
  Tensor q = project(w.wq, "attention.wq"), k = project(w.wk, "attention.wk"),
         v = uses_buffers_before(project(w.wv, "attention.wv"));
  const ModuleScope scope(t_, "attention");
  // Attention.forward() assigns xq, xk and xv again; keys and values are variables of their own.
  q = heads(q, w.heads);
  k = heads(k, w.kv_heads);
  v = heads(v, w.kv_heads);
  if (w.q_norm) {
    q = norm(q, w.q_norm, "attention.q_norm");
    k = norm(k, w.k_norm, "attention.k_norm");
  }
  std::tie(q, k) = qwen3_ ? rotated_halves(q, k, angles) : rotated_pairs(q, k, angles);
  const std::int64_t times = w.heads / w.kv_heads;
  const Tensor keys = repeated(k, times), values = repeated(v, times);
  AttentionInputs in;
  in.context = s_.context;
  in.recomputed = s_.recomputes_attention;
  in.q = transpose(t_, q, 1, 2);
  in.k = transpose(t_, keys, 1, 2);
  in.v = transpose(t_, values, 1, 2);
  q.reset();
  k.reset();
  v.reset();
  Tensor output = sdpa_attention(t_, in).output;
  output = view(t_, output, {batch_, sequence_, w.heads * w.head_dim});
  const ModuleScope last(t_, "attention.wo");
  return divided(linear(t_, output, w.wo));
}

}  // namespace trainhost::frameworks
