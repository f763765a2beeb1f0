// The Llama of torchtune, and its Qwen 2 and 3, Gemma, Gemma 2 and Phi-3 (decoder_torchtune_gemma.cpp): full
// training, LoRA and QLoRA, with its losses (torchtune_loss.cpp). Its recipes' optimizers:
// optimizer_step.hpp.
#pragma once
#include <vector>

#include "core/frameworks/kernels/nf4.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

class TorchtuneDecoder : public StepModel {
 public:
  /// Allocates weights, angles, token ids, labels and positions.
  TorchtuneDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  Tensor loss() override;

 private:
  struct Linear {
    const char* module = "";
    Tensor weight, bias, lora_a, lora_b;
    std::int32_t unit_a = 0, unit_b = 0;  // of FSDP1
    Nf4Weight nf4;
  };
  struct Layer {
    Linear q, k, v, output, gate, down, up;
    Tensor attention_norm, mlp_norm, q_norm, k_norm;
    Tensor attention_scale, mlp_scale;  // norms of what attention and MLP return; Gemma 2
    Tensor angles;                      // of this layer; none: those of all layers
    bool window = false;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  };

  Tensor weight(std::int32_t unit, const Shape& shape, const char* module, bool adapter = false);
  Linear linear_weights(const char* module, std::int64_t inputs, std::int64_t outputs, bool bias,
                        std::uint32_t target);
  void add_layer(const model::Layer& layer);
  Tensor last_layer();
  Tensor unit_of_layer(const Tensor& x, const Layer& w);
  Tensor block(const Tensor& x, const Layer& w);
  void after_forward(const Tensor& output);
  void offload(const Tensor& input, std::size_t kept);
  void bring_back(const Tensor& input, std::int32_t layer);
  Tensor attention(const Tensor& x, const Layer& w);
  Tensor feed_forward(const Tensor& x, const Layer& w);
  Tensor rotated(const Tensor& x, const Layer& w);
  Tensor rotated_halves(const Tensor& x, const Layer& w);
  // decoder_torchtune_gemma.cpp
  Tensor last_norm(const Tensor& x);
  Tensor embedded();
  Tensor rotated_halves_in_f32(const Tensor& x, const Layer& w);
  Tensor capped_attention(const Tensor& x, const Layer& w);
  Tensor causal_mask();
  const Tensor& angles_of(const Layer& w) const { return w.angles ? w.angles : angles_; }

  Tensor positioned(Tensor x, const Layer& w, const Tensor& norm_weight, const char* name);
  Tensor repeated(const Tensor& x, std::int64_t times);
  Tensor norm(const Tensor& x, const Tensor& weight, const char* module);
  Tensor run(const Linear& w, const Tensor& x);
  Tensor product_of_adapter(const Tensor& x, const Tensor& weight, std::int32_t unit);
  Tensor head(const Tensor& hidden);
  Tensor loss_of_rows(const Tensor& logits, const Tensor& labels);
  Tensor plain_loss(Tensor hidden, Tensor last);
  Tensor loss_of_moved_logits(Tensor logits);
  Tensor chunked_loss(Tensor hidden, Tensor last);
  Tensor linear_loss(const Tensor& hidden);

  Tape& t_;
  const StepSettings& s_;
  std::int64_t batch_, sequence_, hidden_, vocab_;
  bool tied_;
  bool qwen_;  // its rotary embedding
  bool gemma_, gemma2_, phi3_;
  Tensor embedding_, head_, final_norm_, ids_, labels_, positions_, angles_;
  Tensor moved_logits_;  // of the last micro-batch
  std::int32_t layer_count_;
  std::int32_t adapter_units_ = 0;  // of FSDP1
  std::vector<Tensor> buffers_, offloading_;
  std::vector<Layer> layers_;
};

}  // namespace trainhost::frameworks
