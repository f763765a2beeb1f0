// Llama 3 and 4, Qwen3 and DeepSeek V2 and V3 of torchtitan 0.2 with their FSDP2 units and activation
// checkpointing, or one pipeline stage of them. Parallelism itself: fsdp.hpp, tensor_parallel.hpp,
// pipeline.hpp.
#pragma once
#include <utility>
#include <vector>

#include "core/frameworks/sharding/tensor_parallel.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

class TorchtitanDecoder : public StageModel {
 public:
  /// Allocates weights, angles, token ids and labels.
  TorchtitanDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  Tensor loss() override { return pass({}).loss; }
  Pass pass(const Tensor& input) override;
  Shape boundary() const override { return {batch_, sequence_ / s_.tensor, hidden_}; }
  Element boundary_type() const override { return s_.weights; }

 private:
  /// Mixture of experts; shared1 to shared3 are the MLP that all tokens pass, if there is one.
  struct Experts {
    Tensor router, w1, w2, w3, shared1, shared2, shared3;
    std::int64_t count = 0, active = 0;  // of all ranks; per token
    std::vector<Tensor> buffers;         // bias of the router, tokens per expert
  };
  /// Multi-latent attention: q of wq, or of wq_a, a norm and wq; keys and values of wkv_a, a norm and wkv_b.
  struct Latent {
    Tensor wq_a, q_norm, wkv_a, kv_norm, wkv_b;
    std::int64_t rank = 0, nope = 0, rope = 0, value = 0;
  };
  struct Layer {
    Tensor wq, wk, wv, wo, w1, w2, w3, attention_norm, ffn_norm;
    Tensor q_norm, k_norm;  // Qwen3
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    Experts experts;
    Latent latent;
  };

  Tensor weight(std::int32_t unit, const Shape& shape, const char* module);
  void add_layer(const model::Layer& layer);
  Tensor output_of(const Tensor& input);
  Tensor loss_of(const Tensor& logits);
  Tensor embedded();
  Tensor logits(Tensor hidden);
  Tensor unit_of_layer(const Tensor& x, const Layer& w);
  Tensor block(const Tensor& x, const Tensor& angles, const Layer& w);
  Tensor attention(const Tensor& x, const Tensor& angles, const Layer& w);
  Tensor feed_forward(const Tensor& x, const Layer& w);
  // decoder_torchtitan_latent.cpp
  void add_latent(const model::Attention& attention, Layer& w);
  Tensor latent_attention(const Tensor& x, const Tensor& angles, const Layer& w);
  Tensor rotated_alone(const Tensor& x, const Tensor& angles);
  // decoder_torchtitan_experts.cpp
  void add_experts(const model::Experts& experts, Layer& w);
  Tensor mixture(const Tensor& x, const Layer& w);
  Tensor exchanged(const Tensor& rows, const char* name);
  Tensor of_experts(const Tensor& rows, const Experts& e);
  std::pair<Tensor, Tensor> rotated_pairs(const Tensor& q, const Tensor& k, const Tensor& all);
  std::pair<Tensor, Tensor> rotated_halves(const Tensor& q, const Tensor& k, const Tensor& all);
  Tensor repeated(const Tensor& x, std::int64_t times);
  /// Tokens of all tensor-parallel ranks are gathered for attention and MLP, and their results are divided
  /// again: eagerly by the hook of the last product, while the variables of the function exist; in a compiled
  /// layer after it.
  Tensor divided(Tensor product);
  Tensor scattered(Tensor output);
  Tensor norm(const Tensor& x, const Tensor& weight, const char* module);
  /// Inductor does not free a buffer that a later tensor of the same size can use: it exists in between. In
  /// the backward pass of a compiled layer with tensor parallelism and products in 8 bits, the buffers of the
  /// MLP stay until the products of attention use them.
  bool reuses_buffers() const { return s_.compiles_layers && s_.float8_layers && s_.tensor > 1; }
  /// `x`, the input of the MLP: when its gradient is known, its buffers are kept.
  Tensor keeps_buffers_after(const Tensor& x, const Layer& w);
  /// `x`, a result of attention's products: before its gradient is used, the buffers are free again.
  Tensor uses_buffers_before(const Tensor& x);

  Tape& t_;
  const StepSettings& s_;
  const bool qwen3_, llama4_, latent_;
  Fsdp* units_ = nullptr;
  std::int64_t batch_, sequence_, hidden_, vocab_;  // vocab_: of this rank
  TokenExchange exchange_, outside_;                // in the layers, and outside of them
  Tensor embedding_, head_, final_norm_, ids_, labels_, angles_;
  std::vector<Tensor> all_angles_;
  std::vector<Layer> layers_;
  std::vector<Tensor> buffers_;  // kept by the backward pass of the compiled layer that runs
};

}  // namespace trainhost::frameworks
