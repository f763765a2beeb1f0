// See architecture_tensors.hpp. Fused weights (qkv, gate and up) are listed separately. Products are not
// checked for overflow here: count() has already rejected such models.
#include "tests/support/architecture_tensors.hpp"

namespace trainhost::model {
namespace {

class ShapeList {
 public:
  void set_layer(std::int32_t l) { layer_ = l; }

  // Absent parts have a dimension of 0: no position table, no router, no shared expert.
  void add(const std::string& name, std::uint64_t rows, std::uint64_t cols = 1, std::uint64_t copies = 1) {
    if (rows == 0 || cols == 0 || copies == 0) return;
    out.push_back(
        {(layer_ < 0 ? "" : "layers." + std::to_string(layer_) + ".") + name, layer_, rows, cols, copies});
  }
  /// A linear layer, [out][in], and its bias.
  void linear(const std::string& name, std::uint64_t to, std::uint64_t from, bool bias,
              std::uint64_t copies = 1) {
    add(name, to, from, copies);
    if (bias) add(name + ".bias", to, 1, copies);
  }
  // A LayerNorm has a shift beside its scale; kScaleOnly and RMSNorm have one vector.
  void norm(const std::string& name, NormKind kind, std::uint64_t n) {
    if (kind == NormKind::kNone || kind == NormKind::kUnscaled) return;
    add(name, n);
    if (kind == NormKind::kLayer) add(name + ".bias", n);
  }

  std::vector<TensorShape> out;

 private:
  std::int32_t layer_ = -1;
};

/// Multi-head latent attention: q and kv each pass a narrow vector with a norm of its own (MLA,
/// docs/memory-model.md). The rotary part of k is one vector for all heads and bypasses kv_b, so kv_a has
/// rope_head_dim more rows.
void latent_attention(ShapeList& t, const Attention& a, std::uint64_t h) {
  if (a.q_lora_rank) {
    t.linear("attention.q_a", a.q_lora_rank, h, a.q_bias);
    t.norm("attention.q_a_norm", NormKind::kRms, a.q_lora_rank);
    t.linear("attention.q_b", a.q_width(), a.q_lora_rank, false);
  } else {
    t.linear("attention.q", a.q_width(), h, false);
  }
  t.linear("attention.kv_a", a.kv_lora_rank + a.rope_head_dim, h, a.k_bias);
  t.norm("attention.kv_a_norm", NormKind::kRms, a.kv_lora_rank);
  t.linear("attention.kv_b", a.heads * (a.nope_head_dim + a.v_head_dim), a.kv_lora_rank, false);
  t.linear("attention.o", h, a.out_width(), a.o_bias);
}

void attention(ShapeList& t, const Attention& a, std::uint64_t h) {
  if (a.heads == 0) return;
  if (a.latent) return latent_attention(t, a, h);
  t.linear("attention.q", a.q_width() * (a.gated ? 2 : 1), h, a.q_bias);
  if (!a.reuses_kv) t.linear("attention.k", a.k_width(), h, a.k_bias);
  if (!a.reuses_kv && !a.v_is_k) t.linear("attention.v", a.v_width(), h, a.v_bias);
  // Per head: one vector of D, shared by all heads.
  t.norm("attention.q_norm", a.qk_norm, a.qk_norm_per_head ? a.head_dim : a.q_width());
  if (!a.reuses_kv) t.norm("attention.k_norm", a.qk_norm, a.qk_norm_per_head ? a.head_dim : a.k_width());
  t.linear("attention.o", h, a.out_width(), a.o_bias);
  if (a.sinks) t.add("attention.sinks", a.heads);
}

void linear_attention(ShapeList& t, const LinearAttention& a, std::uint64_t h) {
  if (a.value_heads == 0) return;
  const std::uint64_t keys = std::uint64_t{a.key_heads} * a.key_dim,
                      values = std::uint64_t{a.value_heads} * a.value_dim;
  // q, k, v, the output gate and the gates are one matrix; the convolution is no matrix for an optimizer.
  const std::uint64_t gate_rows = a.gate_rank ? 0 : values;
  t.linear("linear.in", 2 * keys + values + gate_rows + std::uint64_t{a.gates} * a.value_heads, h, a.in_bias);
  for (const char* name : {"linear.forget", "linear.gate"}) {
    if (!a.gate_rank) break;
    t.linear(std::string(name) + ".a", a.gate_rank, h, false);
    t.linear(std::string(name) + ".b", values, a.gate_rank, false);
  }
  if (a.gate_rank) t.add("linear.forget.bias", values);
  t.add("linear.convolution", (2 * keys + values) * a.kernel);
  if (a.convolution_bias) t.add("linear.convolution.bias", 2 * keys + values);
  t.add("linear.heads", a.value_heads, 1, a.head_weights);
  if (a.normed) t.norm("linear.norm", NormKind::kRms, a.norm_per_head ? a.value_dim : values);
  t.linear("linear.out", h, values, a.out_bias);
}

void mlp(ShapeList& t, const std::string& name, const Mlp& m, std::uint64_t h, std::uint64_t copies) {
  if (m.width == 0) return;
  // up_bias is also the bias of the gate.
  if (m.gated) t.linear(name + ".gate", m.width, h, m.up_bias, copies);
  t.linear(name + ".up", m.width, h, m.up_bias, copies);
  t.linear(name + ".down", h, m.width, m.down_bias, copies);
}

// All routed experts have equal shapes, hence one entry with e.count copies per matrix.
void experts(ShapeList& t, const Experts& e, std::uint64_t h) {
  if (e.count == 0) return;
  t.linear("experts.router", e.count, h, e.router_bias);
  if (e.latent) {
    t.linear("experts.into_latent", e.latent, h, e.latent_bias);
    t.linear("experts.from_latent", h, e.latent, e.latent_bias);
  }
  mlp(t, "experts.each", e.each, e.latent ? e.latent : h, e.count);
  mlp(t, "experts.shared", e.shared, h, 1);
  if (e.shared_gate) t.add("experts.shared_gate", 1, h);
  if (e.router_scale) t.add("experts.router_scale", h);
}

}  // namespace

std::vector<TensorShape> tensor_shapes(const Architecture& a) {
  ShapeList t;
  // OPT's embedding may be narrower than H, with a projection on either side.
  const std::uint64_t h = a.hidden, e = a.embedding_width ? a.embedding_width : h;
  t.add("embedding", a.vocab, e);
  if (e != h) t.add("embedding.project_in", h, e);
  t.add("positions", a.learned_positions, h);
  t.norm("embedding_norm", a.embedding_norm, h);
  const std::uint64_t per_layer = std::uint64_t{a.layer_count()} * a.per_layer_width;
  t.add("per_layer.embedding", a.per_layer_vocab, per_layer);
  t.add("per_layer.projection", per_layer, h);
  t.add("per_layer.norm", a.per_layer_width);
  // Numbers count through all runs; a run is only a compressed form of equal layers.
  std::int32_t layer = 0;
  for (const LayerRun& run : a.layers) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t.set_layer(layer++);
      attention(t, run.layer.attention, h);
      linear_attention(t, run.layer.linear, h);
      mlp(t, "mlp", run.layer.mlp, h, 1);
      t.add("per_layer.gate", run.layer.per_layer_width, h);
      t.add("per_layer.out", h, run.layer.per_layer_width);
      experts(t, run.layer.experts, h);
      for (std::uint32_t n = 0; n < run.layer.norms; ++n)
        t.norm("norm" + std::to_string(n + 1), run.layer.norm, h);
    }
  }
  t.set_layer(-1);
  t.norm("final_norm", a.final_norm, h);
  if (e != h) t.add("head.project_out", e, h);
  if (!a.tied) t.add("head", a.vocab, e);
  if (a.head_bias) t.add("head.bias", a.vocab);
  return t.out;
}

}  // namespace trainhost::model
