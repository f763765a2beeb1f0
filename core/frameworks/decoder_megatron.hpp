// The GPTModel of Megatron-LM (core 0.14) with the layers of Transformer Engine 2.11, as a Llama has them
// (RMSNorm, rotary embedding, grouped queries, SwiGLU, no biases), and with multi-latent attention and
// experts as DeepSeek has them. Types of weights and activations are one.
#pragma once
#include <memory>
#include <vector>

#include "core/frameworks/megatron_buffers.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/training_step.hpp"
#include "core/frameworks/transformer_engine.hpp"

namespace trainhost::frameworks {

class MegatronDecoder : public StageModel {
 public:
  /// Allocates weights, buffers, f32 weights, angles, token ids and labels.
  MegatronDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  Tensor loss() override { return pass({}).loss; }
  Pass pass(const Tensor& input) override;
  Shape boundary() const override { return {engine_.own_tokens(tokens_), sequences_, hidden_}; }
  Element boundary_type() const override { return s_.weights; }
  void before_update() override {
    for (MegatronBuffers& b : buffers_) b.before_update();
  }

 private:
  struct Layer {
    Tensor input_norm, qkv, proj, mlp_norm, fc1, fc2;
    std::int64_t heads = 0, groups = 0, head_dim = 0;  // of this rank
    // Multi-latent attention; without q_down, q_up is a plain matrix.
    Tensor q_down, q_norm, q_up, kv_down, kv_norm, kv_up;
    std::int64_t nope = 0, rope = 0, values = 0;  // features per head
    // A layer of experts: sizes of one of them. fc1, fc2: of the shared one, if there is one.
    Tensor router, expert_fc1, expert_fc2;
    std::int64_t experts = 0, own_experts = 0, active = 0;
  };

  Tensor matrix(std::int64_t outputs, std::int64_t inputs, const char* module);
  Tensor vector(std::int64_t features, const char* module);
  void add_layer(const model::Layer& layer);
  void add_latent_attention(const model::Attention& attention, Layer& w);
  void add_experts(const model::Experts& experts, Layer& w);
  void add_buffers();
  Tensor embedded();
  Tensor layer(const Tensor& x, const Layer& w);
  Tensor block(const Tensor& x, const Layer& w);
  Tensor attention(const Tensor& x, const Layer& w);
  Tensor core_attention(const Tensor& q, const Tensor& k, const Tensor& v);
  Tensor latent_attention(const Tensor& x, const Layer& w);
  Tensor mlp(const Tensor& x, const Layer& w);
  Tensor experts(const Tensor& x, const Layer& w);
  Tensor experts_output(const Tensor& rows, const Layer& w);
  Tensor shared_expert(const Tensor& x, const Layer& w);
  Tensor loss_of(const Tensor& hidden);

  Tape& t_;
  const StepSettings& s_;
  std::int64_t tokens_, sequences_, hidden_,
      vocab_;  // tokens_: of a context-parallel rank; vocab_: of this rank
  TransformerEngine engine_;
  std::vector<Tensor> parameters_, expert_parameters_;
  std::vector<MegatronBuffers> buffers_;  // of these
  Tensor embedding_, final_norm_, head_, ids_, labels_, angles_;
  std::vector<Layer> layers_;
};

}  // namespace trainhost::frameworks
