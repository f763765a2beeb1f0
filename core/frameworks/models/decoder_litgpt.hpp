// The GPT of litgpt, with LoRA or in full training: families whose layers are an attention with a fused
// projection of q, k and v and an MLP. On several ranks under FSDP2.
#pragma once
#include <vector>

#include "core/frameworks/kernels/nf4.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

class LitgptDecoder : public StepModel {
 public:
  /// Allocates weights, angles, token ids and labels.
  LitgptDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  Tensor loss() override;

 private:
  struct Linear {
    const char* module = "";
    Tensor weight;  // or
    Nf4Weight nf4;
    Tensor bias, lora_a, lora_b;  // or none
  };
  struct Norm {
    const char* module = "";
    Tensor weight, bias;  // with bias: LayerNorm, else RMSNorm
  };
  struct Layer {
    Linear qkv, proj, fc_1, fc_2, down;  // without fc_2: an MLP with GELU instead of SwiGLU
    Norm norm_1, norm_2, norm_q, norm_k;
    Tensor columns;  // of the adapted ones of q, k and v, where not all are
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::vector<std::int64_t> adapted;  // their widths
    bool parallel = false;              // attention and MLP both read the input of the layer
  };

  Tensor weight(const Shape& shape, const char* module, bool adapter = false);
  void add_embedding();
  Linear linear_weights(const char* module, std::int64_t inputs, std::int64_t outputs, bool bias,
                        bool adapted);
  Norm norm_weights(const char* module, model::NormKind kind, std::int64_t width);
  void add_layer(const model::Layer& layer, bool parallel);
  Tensor unit_of_layer(const Tensor& x, const Layer& w);
  Tensor block(const Tensor& x, const Layer& w);
  Tensor attention(const Tensor& x, const Layer& w);
  Tensor fused_qkv(const Tensor& x, const Layer& w);
  Tensor convolution(const Tensor& x, const Tensor& filter);
  Tensor rotated(const Tensor& x);
  Tensor repeated(const Tensor& x, std::int64_t times);
  Tensor feed_forward(const Tensor& x, const Layer& w);
  Tensor run(const Linear& w, const Tensor& x);
  Tensor product(const Linear& w, const Tensor& x);
  Tensor adapter_product(const Tensor& x, const Tensor& w);
  Tensor norm(const Norm& w, const Tensor& x);

  Tape& t_;
  const StepSettings& s_;
  std::int64_t batch_, sequence_, hidden_, vocab_;
  Linear head_;
  Norm embedding_norm_, final_norm_;
  Tensor embedding_, replaced_, ids_, labels_, cos_, sin_;
  void drop_graph_of_logits();

  std::vector<Tensor> logits_;  // a variable of the training loop
  // Inputs of NF4 products, per layer, those of the head first: of the graph of logits_, and of the one that
  // a forward pass builds.
  std::vector<std::vector<Tensor>> kept_inputs_, new_inputs_;
  std::vector<Layer> layers_;
};

}  // namespace trainhost::frameworks
