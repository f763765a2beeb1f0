// The model's parameters as a checkpoint names them, in its order: what load() brings and save() must hand over. Shapes are
// [rows, columns]; a vector has one dimension.
#pragma once
#include <cstdint>
#include <string>
#include <trainhost/model.h>
#include <vector>

struct Tensor {
  std::string name;
  std::uint32_t rank;
  std::uint64_t dim[2], at;  // at: where it begins among all parameters, in elements
  bool loaded = false;
  std::uint64_t elements() const { return dim[0] * (rank == 2 ? dim[1] : 1); }
  bool is_bias() const { return name.size() > 4 && name.compare(name.size() - 4, 4, "bias") == 0; }
};

inline std::uint64_t elements(const std::vector<Tensor>& all) { return all.empty() ? 0 : all.back().at + all.back().elements(); }

/// H hidden, q and kv: widths of queries and keys, I: of the feed-forward part.
inline std::vector<Tensor> tensors(const th_model& m) {
  std::vector<Tensor> out;
  std::string in;  // "model.layers.3."
  const auto matrix = [&](const char* name, std::uint64_t rows, std::uint64_t columns) {
    out.push_back({in + name, columns != 0 ? 2u : 1u, {rows, columns}, elements(out)});
  };
  const auto vector = [&](const char* name, std::uint64_t n) { matrix(name, n, 0); };
  const std::uint64_t H = m.hidden, q = std::uint64_t{m.heads} * m.head_dim, kv = std::uint64_t{m.kv_heads} * m.head_dim, I = m.intermediate;
  const bool qkv_bias = m.flags & TH_MODEL_QKV_BIAS, mlp_bias = m.flags & TH_MODEL_MLP_BIAS;
  matrix("model.embed_tokens.weight", m.vocab, H);
  for (std::uint32_t i = 0; i < m.layers; ++i) {
    in = "model.layers." + std::to_string(i) + ".";
    vector("input_layernorm.weight", H);
    matrix("self_attn.q_proj.weight", q, H);
    matrix("self_attn.k_proj.weight", kv, H);
    matrix("self_attn.v_proj.weight", kv, H);
    if (qkv_bias) vector("self_attn.q_proj.bias", q), vector("self_attn.k_proj.bias", kv), vector("self_attn.v_proj.bias", kv);
    if (m.flags & TH_MODEL_QK_NORM) vector("self_attn.q_norm.weight", m.head_dim), vector("self_attn.k_norm.weight", m.head_dim);
    matrix("self_attn.o_proj.weight", H, q);
    if (m.flags & TH_MODEL_O_BIAS) vector("self_attn.o_proj.bias", H);
    vector("post_attention_layernorm.weight", H);
    matrix("mlp.gate_proj.weight", I, H);
    matrix("mlp.up_proj.weight", I, H);
    if (mlp_bias) vector("mlp.gate_proj.bias", I), vector("mlp.up_proj.bias", I);
    matrix("mlp.down_proj.weight", H, I);
    if (mlp_bias) vector("mlp.down_proj.bias", H);
  }
  in.clear();
  vector("model.norm.weight", H);
  if (!(m.flags & TH_MODEL_TIED_EMBEDDINGS)) matrix("lm_head.weight", m.vocab, H);
  return out;
}
