// The GPT of litgpt with LoRA on its fused q, k and v: the Llama of its LoRA command.
#pragma once
#include <vector>

#include "core/frameworks/nf4.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/training_step.hpp"

namespace trainhost::frameworks {

class LitgptDecoder : public StepModel {
 public:
  /// Allocates weights, angles, token ids and labels.
  LitgptDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  Tensor loss() override;

 private:
  struct Frozen {
    Tensor weight;  // or
    Nf4Weight nf4;
  };
  struct Layer {
    Frozen qkv, proj, fc_1, fc_2, mlp_proj;
    Tensor lora_a, lora_b, norm_1, norm_2;
    std::int64_t heads = 0, head_dim = 0;
  };

  Tensor weight(const Shape& shape, const char* module, bool adapter = false);
  void add_layer(const model::Layer& layer);
  Tensor block(const Tensor& x, const Layer& w);
  Tensor attention(const Tensor& x, const Layer& w);
  Tensor fused_qkv(const Tensor& x, const Layer& w);
  Tensor convolution(const Tensor& x, const Layer& w);
  Tensor rotated(const Tensor& x);
  Tensor feed_forward(const Tensor& x, const Layer& w);
  Tensor norm(const Tensor& x, const Tensor& weight, const char* module);
  Frozen frozen_weight(const Shape& shape, const char* module);
  Tensor frozen(const Tensor& x, const Frozen& w, const char* module);

  Tape& t_;
  const StepSettings& s_;
  std::int64_t batch_, sequence_, hidden_, vocab_;
  Frozen head_;
  Tensor embedding_, final_norm_, ids_, labels_, positions_, cos_, sin_;
  std::vector<Tensor> logits_;  // a variable of the training loop
  std::vector<Layer> layers_;
};

}  // namespace trainhost::frameworks
