// Tensor names and shapes of LLaMA, Mistral, Qwen2 and Qwen3 in Hugging Face checkpoints, and the parameter
// count. Weights are [out, in] like torch.nn.Linear. Tests compare the closed form with the list. The list
// has the order of the forward pass; checkpoints are written in this order.
#include "core/model/tensors.hpp"

#include <utility>

#include "core/base/checked.hpp"

namespace trainhost {
namespace {

/// Appends tensors of one layer (or of the model, layer = -1) under a name prefix.
class TensorList {
 public:
  TensorList(std::vector<TensorInfo>& out, std::string prefix, std::int32_t layer)
      : out_(out), prefix_(std::move(prefix)), layer_(layer) {}

  void matrix(const char* name, TensorRole role, std::uint64_t rows, std::uint64_t cols) {
    out_.push_back({prefix_ + name, role, layer_, 2, {rows, cols}});
  }
  // Vectors have a second dimension of 1, so that rows * cols is the number of elements for both.
  void vector(const char* name, TensorRole role, std::uint64_t n) {
    out_.push_back({prefix_ + name, role, layer_, 1, {n, 1}});
  }

 private:
  std::vector<TensorInfo>& out_;
  std::string prefix_;
  std::int32_t layer_;
};

void list_attention(const ModelSpec& m, TensorList& l) {
  l.matrix("self_attn.q_proj.weight", TensorRole::kQ, m.q_width(), m.hidden);
  l.matrix("self_attn.k_proj.weight", TensorRole::kK, m.kv_width(), m.hidden);
  l.matrix("self_attn.v_proj.weight", TensorRole::kV, m.kv_width(), m.hidden);
  if (m.qkv_bias) {
    l.vector("self_attn.q_proj.bias", TensorRole::kQBias, m.q_width());
    l.vector("self_attn.k_proj.bias", TensorRole::kKBias, m.kv_width());
    l.vector("self_attn.v_proj.bias", TensorRole::kVBias, m.kv_width());
  }
  // One vector of head_dim, used for every head.
  if (m.qk_norm) {
    l.vector("self_attn.q_norm.weight", TensorRole::kQNorm, m.head_dim);
    l.vector("self_attn.k_norm.weight", TensorRole::kKNorm, m.head_dim);
  }
  l.matrix("self_attn.o_proj.weight", TensorRole::kO, m.hidden, m.q_width());
  if (m.o_bias) l.vector("self_attn.o_proj.bias", TensorRole::kOBias, m.hidden);
}

void list_mlp(const ModelSpec& m, TensorList& l) {
  l.matrix("mlp.gate_proj.weight", TensorRole::kGate, m.intermediate, m.hidden);
  l.matrix("mlp.up_proj.weight", TensorRole::kUp, m.intermediate, m.hidden);
  if (m.mlp_bias) {
    l.vector("mlp.gate_proj.bias", TensorRole::kGateBias, m.intermediate);
    l.vector("mlp.up_proj.bias", TensorRole::kUpBias, m.intermediate);
  }
  l.matrix("mlp.down_proj.weight", TensorRole::kDown, m.hidden, m.intermediate);
  if (m.mlp_bias) l.vector("mlp.down_proj.bias", TensorRole::kDownBias, m.hidden);
}

}  // namespace

std::vector<TensorInfo> tensors(const ModelSpec& m) {
  std::vector<TensorInfo> out;
  TensorList whole(out, "", -1);
  whole.matrix("model.embed_tokens.weight", TensorRole::kEmbed, m.vocab, m.hidden);
  for (std::uint32_t i = 0; i < m.layers; ++i) {
    TensorList layer(out, "model.layers." + std::to_string(i) + ".", static_cast<std::int32_t>(i));
    layer.vector("input_layernorm.weight", TensorRole::kNorm1, m.hidden);
    list_attention(m, layer);
    layer.vector("post_attention_layernorm.weight", TensorRole::kNorm2, m.hidden);
    list_mlp(m, layer);
  }
  whole.vector("model.norm.weight", TensorRole::kFinalNorm, m.hidden);
  // A tied head has no tensor: the embedding is read in its place.
  if (!m.tied) whole.matrix("lm_head.weight", TensorRole::kHead, m.vocab, m.hidden);
  return out;
}

// per_layer = 2H + H(A+2K)D + H*A*D + 3HI, plus the biases and q/k norms of the family.
ParameterCounts count_parameters(const ModelSpec& m) {
  const std::uint64_t H = m.hidden, I = m.intermediate;
  // Checked: validate() calls this before anything has bounded the products.
  const auto add = [](std::uint64_t& sum, std::uint64_t n) {
    sum = checked_add(sum, n, "the parameter count");
  };
  ParameterCounts c;
  c.embedding = checked_mul(m.vocab, H);
  // Two norms. 2 * H cannot overflow: H has 32 bits.
  c.per_layer = 2 * H;
  add(c.per_layer, checked_mul(H, m.qkv_width()));
  add(c.per_layer, checked_mul(H, m.q_width()));
  add(c.per_layer, checked_mul(3, H, I));
  if (m.qkv_bias) add(c.per_layer, m.qkv_width());
  if (m.o_bias) add(c.per_layer, H);
  if (m.mlp_bias) add(c.per_layer, 2 * I + H);
  if (m.qk_norm) add(c.per_layer, 2 * std::uint64_t{m.head_dim});
  c.final_norm = H;
  // The head has the shape of the embedding.
  c.head = m.tied ? 0 : c.embedding;
  add(c.total, c.embedding);
  add(c.total, checked_mul(m.layers, c.per_layer));
  add(c.total, c.final_norm);
  add(c.total, c.head);
  return c;
}

}  // namespace trainhost
