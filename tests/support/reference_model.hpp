// A whole LLaMA-family model in double, made of reference_ops.hpp: loss and gradients by checkpoint name. Keeps every
// tensor it computes. Its gradients are compared with finite differences, and the trainers with it.
#pragma once
#include <map>
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/tensors.hpp"
#include "tests/support/reference_ops.hpp"

namespace trainhost::reference {

using Weights = std::map<std::string, Vec>;

struct LayerTape {  // what the backward pass reads
  Vec x, h1, qkv_pre, qkv, o, x2, h2, gu, a;
};

class Model {
 public:
  Model(const ModelSpec& spec, Size seq) : spec_(spec), seq_(seq), inv_freq_(rope_inv_freq(spec)) {}

  /// Logits [tokens, vocab].
  Vec logits(const Weights& w, const Ids& ids) const {
    std::vector<LayerTape> tape(spec_.layers);
    Vec x = embed(w.at("model.embed_tokens.weight"), ids, spec_.hidden);
    for (std::uint32_t l = 0; l < spec_.layers; ++l) x = layer(w, l, x, tape[l]);
    return linear(rms_norm(x, w.at("model.norm.weight"), spec_.hidden, spec_.norm_eps), w.at(head_name()), {},
                  {}, spec_.vocab, spec_.hidden);
  }

  /// Mean loss over counted targets; gradients of it when asked for (all tensors, zero where untouched).
  double loss(const Weights& w, const Ids& ids, const Ids& targets, Weights* grads = nullptr) const {
    std::vector<LayerTape> tape(spec_.layers);
    Vec x = embed(w.at("model.embed_tokens.weight"), ids, spec_.hidden);
    for (std::uint32_t l = 0; l < spec_.layers; ++l) x = layer(w, l, x, tape[l]);
    const Vec hf = rms_norm(x, w.at("model.norm.weight"), spec_.hidden, spec_.norm_eps);
    const std::string head = head_name();
    const Vec logits = linear(hf, w.at(head), {}, {}, spec_.vocab, spec_.hidden);
    double counted = 0;
    for (std::int32_t t : targets) counted += t != -100;
    Vec dlogits;
    const double total = cross_entropy(logits, targets, spec_.vocab, 1 / counted, grads ? &dlogits : nullptr);
    if (grads) {
      for (const auto& [name, v] : w) (*grads)[name].assign(v.size(), 0);
      linear_dw(dlogits, hf, spec_.vocab, spec_.hidden, (*grads)[head], nullptr);
      Vec dhf = linear_dx(dlogits, w.at(head), spec_.vocab, spec_.hidden);
      Vec dx = rms_norm_bwd(dhf, x, w.at("model.norm.weight"), spec_.hidden, spec_.norm_eps,
                            (*grads)["model.norm.weight"]);
      for (std::uint32_t l = spec_.layers; l-- > 0;) dx = layer_bwd(w, l, dx, tape[l], *grads);
      embed_bwd(dx, ids, spec_.hidden, (*grads)["model.embed_tokens.weight"]);
    }
    return total / counted;
  }

 private:
  std::string head_name() const { return spec_.tied ? "model.embed_tokens.weight" : "lm_head.weight"; }
  static std::string name(std::uint32_t l, const char* what) {
    return "model.layers." + std::to_string(l) + "." + what;
  }
  static Vec get(const Weights& w, const std::string& n) {
    auto i = w.find(n);
    return i == w.end() ? Vec{} : i->second;
  }
  static Vec join(std::initializer_list<Vec> parts) {
    Vec all;
    for (const Vec& p : parts) all.insert(all.end(), p.begin(), p.end());
    return all;
  }
  static void split(const Vec& all, std::initializer_list<Vec*> parts) {  // sizes are those of the parts
    Size at = 0;
    for (Vec* p : parts) {
      for (double& v : *p) v += all[at++];
    }
  }
  Heads heads(std::uint32_t l) const {
    return {seq_, spec_.heads, spec_.kv_heads, spec_.head_dim, spec_.window(l)};
  }
  Vec qkv_weight(const Weights& w, std::uint32_t l, const char* kind) const {
    std::string k = kind;
    return join({get(w, name(l, "self_attn.q_proj.") + k), get(w, name(l, "self_attn.k_proj.") + k),
                 get(w, name(l, "self_attn.v_proj.") + k)});
  }
  Vec gate_up(const Weights& w, std::uint32_t l, const char* kind) const {
    std::string k = kind;
    return join({get(w, name(l, "mlp.gate_proj.") + k), get(w, name(l, "mlp.up_proj.") + k)});
  }
  // The q (or k) heads of all rows, packed, and back.
  Vec take(const Vec& qkv, Size first, Size count) const {
    Vec out;
    Size width = spec_.qkv_width(), d = spec_.head_dim;
    for (Size r = 0; r < qkv.size() / width; ++r)
      out.insert(out.end(), qkv.begin() + static_cast<long>(r * width + first * d),
                 qkv.begin() + static_cast<long>(r * width + (first + count) * d));
    return out;
  }
  void put(Vec& qkv, Size first, Size count, const Vec& part) const {
    Size width = spec_.qkv_width(), d = spec_.head_dim;
    for (Size r = 0; r < qkv.size() / width; ++r)
      for (Size i = 0; i < count * d; ++i) qkv[r * width + first * d + i] = part[r * count * d + i];
  }

  Vec layer(const Weights& w, std::uint32_t l, const Vec& x, LayerTape& t) const {
    const Size h = spec_.hidden, q = spec_.q_width(), n = spec_.intermediate;
    t.x = x;
    t.h1 = rms_norm(x, w.at(name(l, "input_layernorm.weight")), h, spec_.norm_eps);
    t.qkv = linear(t.h1, qkv_weight(w, l, "weight"), qkv_weight(w, l, "bias"), {}, spec_.qkv_width(), h);
    t.qkv_pre = t.qkv;
    if (spec_.qk_norm) {
      put(t.qkv, 0, spec_.heads,
          rms_norm(take(t.qkv, 0, spec_.heads), w.at(name(l, "self_attn.q_norm.weight")), spec_.head_dim,
                   spec_.norm_eps));
      put(t.qkv, spec_.heads, spec_.kv_heads,
          rms_norm(take(t.qkv, spec_.heads, spec_.kv_heads), w.at(name(l, "self_attn.k_norm.weight")),
                   spec_.head_dim, spec_.norm_eps));
    }
    rope(t.qkv, heads(l), inv_freq_, 1);
    t.o = attention(t.qkv, heads(l));
    t.x2 = linear(t.o, w.at(name(l, "self_attn.o_proj.weight")), get(w, name(l, "self_attn.o_proj.bias")), x,
                  h, q);
    t.h2 = rms_norm(t.x2, w.at(name(l, "post_attention_layernorm.weight")), h, spec_.norm_eps);
    t.gu = linear(t.h2, gate_up(w, l, "weight"), gate_up(w, l, "bias"), {}, 2 * n, h);
    t.a = swiglu(t.gu, n);
    return linear(t.a, w.at(name(l, "mlp.down_proj.weight")), get(w, name(l, "mlp.down_proj.bias")), t.x2, h,
                  n);
  }

  Vec layer_bwd(const Weights& w, std::uint32_t l, const Vec& dy, const LayerTape& t, Weights& g) const {
    const Size h = spec_.hidden, q = spec_.q_width(), n = spec_.intermediate, qkv_n = spec_.qkv_width();
    auto bias = [&](const char* what) {
      auto i = g.find(name(l, what));
      return i == g.end() ? nullptr : &i->second;
    };
    linear_dw(dy, t.a, h, n, g[name(l, "mlp.down_proj.weight")], bias("mlp.down_proj.bias"));
    const Vec dgu = swiglu_bwd(linear_dx(dy, w.at(name(l, "mlp.down_proj.weight")), h, n), t.gu, n);
    const Vec w_gu = gate_up(w, l, "weight");
    Vec dw(w_gu.size()), db(spec_.mlp_bias ? 2 * n : 0);
    linear_dw(dgu, t.h2, 2 * n, h, dw, db.empty() ? nullptr : &db);
    split(dw, {&g[name(l, "mlp.gate_proj.weight")], &g[name(l, "mlp.up_proj.weight")]});
    if (!db.empty()) split(db, {&g[name(l, "mlp.gate_proj.bias")], &g[name(l, "mlp.up_proj.bias")]});
    Vec dx2 =
        rms_norm_bwd(linear_dx(dgu, w_gu, 2 * n, h), t.x2, w.at(name(l, "post_attention_layernorm.weight")),
                     h, spec_.norm_eps, g[name(l, "post_attention_layernorm.weight")]);
    for (Size i = 0; i < dx2.size(); ++i) dx2[i] += dy[i];

    linear_dw(dx2, t.o, h, q, g[name(l, "self_attn.o_proj.weight")], bias("self_attn.o_proj.bias"));
    Vec dqkv = attention_bwd(linear_dx(dx2, w.at(name(l, "self_attn.o_proj.weight")), h, q), t.qkv, heads(l));
    rope(dqkv, heads(l), inv_freq_, -1);
    if (spec_.qk_norm) {
      put(dqkv, 0, spec_.heads,
          rms_norm_bwd(take(dqkv, 0, spec_.heads), take(t.qkv_pre, 0, spec_.heads),
                       w.at(name(l, "self_attn.q_norm.weight")), spec_.head_dim, spec_.norm_eps,
                       g[name(l, "self_attn.q_norm.weight")]));
      put(dqkv, spec_.heads, spec_.kv_heads,
          rms_norm_bwd(take(dqkv, spec_.heads, spec_.kv_heads), take(t.qkv_pre, spec_.heads, spec_.kv_heads),
                       w.at(name(l, "self_attn.k_norm.weight")), spec_.head_dim, spec_.norm_eps,
                       g[name(l, "self_attn.k_norm.weight")]));
    }
    const Vec w_qkv = qkv_weight(w, l, "weight");
    dw.assign(w_qkv.size(), 0), db.assign(spec_.qkv_bias ? qkv_n : 0, 0);
    linear_dw(dqkv, t.h1, qkv_n, h, dw, db.empty() ? nullptr : &db);
    split(dw, {&g[name(l, "self_attn.q_proj.weight")], &g[name(l, "self_attn.k_proj.weight")],
               &g[name(l, "self_attn.v_proj.weight")]});
    if (!db.empty())
      split(db, {&g[name(l, "self_attn.q_proj.bias")], &g[name(l, "self_attn.k_proj.bias")],
                 &g[name(l, "self_attn.v_proj.bias")]});
    Vec dx = rms_norm_bwd(linear_dx(dqkv, w_qkv, qkv_n, h), t.x, w.at(name(l, "input_layernorm.weight")), h,
                          spec_.norm_eps, g[name(l, "input_layernorm.weight")]);
    for (Size i = 0; i < dx.size(); ++i) dx[i] += dx2[i];
    return dx;
  }

  ModelSpec spec_;
  Size seq_;
  std::vector<double> inv_freq_;
};

}  // namespace trainhost::reference
