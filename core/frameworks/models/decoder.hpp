// The models of transformers, written with the operators of the tape. The functions have the local variables
// of the Python code, because their lifetimes are part of the memory. Other frameworks' models:
// decoder_*.hpp; their steps: training_step.hpp.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/frameworks/autograd/attention.hpp"
#include "core/frameworks/kernels/adapter_kernels.hpp"
#include "core/frameworks/kernels/int8.hpp"
#include "core/frameworks/kernels/nf4.hpp"
#include "core/frameworks/kernels/tiled_loss.hpp"
#include "core/frameworks/step_model.hpp"
#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

/// Modules of the norms of a layer, in the order of LayerWeights::norms.
inline constexpr const char* kNormModules[4] = {"input_layernorm", "post_attention_layernorm",
                                                "pre_feedforward_layernorm", "post_feedforward_layernorm"};

inline constexpr const char* kGlmNormModules[4] = {"input_layernorm", "post_self_attn_layernorm",
                                                   "post_attention_layernorm", "post_mlp_layernorm"};

inline constexpr const char* kGpt2NormModules[2] = {"ln_1", "ln_2"};

/// OLMo 2 and 3 have norms of the outputs only.
inline constexpr const char* kOlmoNormModules[2] = {"post_attention_layernorm", "post_feedforward_layernorm"};

/// Names of the modules of an adapter: LoraLayer of peft, which contains base and adapter, and its parts.
struct AdapterModules {
  const char *layer = "", *dropout = "", *a = "", *b = "";
};

/// A linear layer with its adapter, if it has one.
struct LinearWeights {
  const char* module = "";
  AdapterModules adapter;
  Tensor weight, bias;                 // quantized: the packed tensor of `quantized`
  std::optional<Nf4Weight> quantized;  // by bitsandbytes
  std::optional<Int8Weight> int8;      // likewise; `weight` is then its bytes
  Tensor lora_a, lora_b;
  std::int32_t unit_a = 0, unit_b = 0;  // of FSDP1
};

/// Of a kernel that computes several layers with their adapters.
inline AdaptedWeights for_kernel(const LinearWeights& w) {
  return {w.weight, w.quantized, w.lora_a, w.lora_b};
}
inline bool all_adapted(std::initializer_list<const LinearWeights*> layers) {
  return std::ranges::all_of(layers, [](const LinearWeights* w) { return static_cast<bool>(w->lora_a); });
}

/// An expert that is a module of linear layers, as before transformers 5.
struct ExpertLayers {
  LinearWeights gate, up, down;
};

struct LayerWeights {
  LinearWeights qkv, q, k, v, o;          // fused or separate
  LinearWeights gate_up, gate, up, down;  // fused or separate
  Tensor q_norm, k_norm;
  std::vector<Tensor> norms, norm_shifts;   // of width H, in order of use
  Tensor router, experts_up, experts_down;  // [E, H], [E, 2I, H], [E, H, I]
  // Their adapters, A and B: [rE, inputs], [outputs, rE]. That of gate and up together has twice the rank.
  Tensor experts_up_a, experts_up_b, experts_down_a, experts_down_b;
  LinearWeights router_layer;  // where experts are modules
  std::vector<ExpertLayers> expert_layers;
  // Of gpt-oss: [E], [E, 2I], [E, H]; a score per head that takes part in the softmax.
  Tensor router_bias, experts_up_bias, experts_down_bias, sinks;
  std::uint32_t window = 0, experts_per_token = 0;
  bool rotary = true;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

/// Of the tokens to experts: [N, E], [N, k], [N, k].
struct Routing {
  Tensor logits, weights, experts;
};

class Decoder : public StepModel {
 public:
  /// Allocates weights and token ids.
  Decoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);

  void after_backward() override {
    if (s_.kept_logits == KeptLogits::kBackward) output_logits_.reset();
  }
  Tensor loss() override;

 private:
  struct Rotary {
    Tensor cos, sin;  // [1, 1, S, D]
  };
  struct Context {
    Rotary rotary;
    Tensor mask, position_ids;  // a checkpointed layer keeps its arguments
  };

  /// unit: of FSDP2; without one, the layer that Tape::layer names.
  Tensor weight(const Shape& shape, const char* module, bool base = true,
                std::optional<std::int32_t> unit = {});
  Tensor norm_weight(std::int64_t width, const char* module, std::optional<std::int32_t> unit = {});
  /// Of products with quantized weights (bnb_4bit_compute_dtype), in which the model was loaded.
  Element computed_type() const;
  /// Memory that Unsloth keeps during the whole run.
  void add_buffers_of_unsloth();
  std::size_t rotary_tables() const;
  AdapterModules names_of_adapter(const char* module);
  /// target: the bit of LoraTarget, or several of a fused matrix.
  std::int64_t adapter_rank(std::uint32_t target) const;
  /// rank: of the adapter; 0: none.
  LinearWeights linear_weights(const char* module, std::int64_t inputs, std::int64_t outputs, bool bias,
                               std::int64_t rank);
  void add_layer(const model::Layer& layer);
  void add_attention(LayerWeights& w, const model::Attention& a);
  void add_mlp(LayerWeights& w, const model::Layer& l);

  /// A module of torch, whose weights stage 3 of ZeRO gathers. by_position: its input is no keyword argument.
  Tensor module(const char* name, const Tensor& x, const std::function<Tensor(const Tensor&)>& body,
                bool by_position = true);
  Tensor hidden_states();
  /// Whether accelerate finds the last norm, and puts it into the unit with the head: among the children of
  /// the attribute `base_model_prefix`. In a model with adapters "model" names another object, but
  /// "transformer" of GPT-2 the same; elsewhere the norm stays in the root unit.
  bool finds_final_norm() const;
  bool last_unit_begins_at_norm() const;
  Tensor enter_last_unit(const Tensor& x);
  /// A call of the model, by the engine of DeepSpeed in stage 3.
  Tensor called_model(const std::function<Tensor()>& forward);
  Tensor loss_of_model();
  Tensor liger_loss_of(const Tensor& x);
  Tensor cut_loss_of(const Tensor& x);
  /// With the fused head of TRL.
  Tensor tiled_loss();
  TiledOutputs tiled_outputs();
  TiledOutputs tiled_outputs_of_call();
  /// The weight of the head as code outside of its module finds it.
  Tensor whole_head();
  Tensor unsloth_loss_of(const Tensor& x);
  /// The Trainer's loss, from the result of the model: its logits and its own loss.
  Tensor loss_of_moved_labels(const Tensor& wide);
  /// `logits`: the variable of the model.
  Tensor loss_of_moved_logits(const Tensor& wide, Tensor& logits);
  Tensor trainer_loss_of(Tensor logits, Tensor loss);
  // Training by preferences: preference_loss.cpp.
  Tensor logits_of_rows();
  Tensor logits_of_model();
  void add_reference();
  Tensor reference_logits();
  /// What `call` returns without gradients, of the reference.
  template <class Call>
  auto of_reference(Call call);
  Tensor preference_loss();
  Tensor loss_of_scores(const Tensor& policy, const Tensor& reference);
  Tensor trl_preference_loss();
  Tensor tiled_preference_loss();
  Tensor factory_preference_loss();
  bool two_rotaries() const;
  /// Of the inverse frequencies: buffer_dtype of FSDP1's mixed precision casts them.
  Element rotary_type() const;
  Rotary rotary_tables(std::int64_t head_dim);
  Tensor mask(bool window);
  Tensor checkpointed_layer(const Tensor& x, const LayerWeights& w, const Context& context);
  /// kept: gets the arguments as the unit casts them.
  Tensor sharded_layer(const Tensor& x, const LayerWeights& w, const Context& context,
                       Context* kept = nullptr);
  /// The arguments that FSDP2 hands to the modules of a layer.
  Context arguments_in_unit(const Context& context);
  Tensor layer(const Tensor& x, const LayerWeights& w, const Context& context);
  Tensor gpt2_layer(const Tensor& x, const LayerWeights& w, const Context& context);
  AttentionOutputs gpt2_attention(const Tensor& x, const LayerWeights& w, const Context& context);
  Tensor dropout_module(const char* name, const Tensor& x);
  Tensor norm(const Tensor& x, const Tensor& weight, const char* name);
  Tensor norm_of(const Tensor& x, const Tensor& weight, const char* name);
  Tensor olmo_layer(const Tensor& x, const LayerWeights& w, const Context& context);
  /// Granite's residual_multiplier; others add the output as it is.
  Tensor scaled_output(const Tensor& x);
  Tensor run(const LinearWeights& w, const Tensor& x);
  Tensor base_product(const LinearWeights& w, const Tensor& x);
  Tensor product_of_adapter(const Tensor& x, const Tensor& weight, std::int32_t unit);
  Tensor adapted(const LinearWeights& w, const Tensor& x);
  Tensor adapted_quantized(const LinearWeights& w, const Tensor& x);
  Tensor dropped(const LinearWeights& w, const Tensor& x);
  std::array<Tensor, 3> query_key_value(const LayerWeights& w, const Tensor& x);
  AttentionOutputs attended(const Tensor& x, const LayerWeights& w, const Context& context);
  AttentionOutputs attention(const Tensor& x, const LayerWeights& w, const Context& context);
  Tensor rotated(const Tensor& x, const Rotary& rotary);
  std::pair<Tensor, Tensor> rotated_pairs(const Tensor& q, const Tensor& k, const Rotary& rotary);
  /// Elements of a head that are rotated.
  std::int64_t rotary_width() const { return layers_.front().head_dim / (glm4_ ? 2 : 1); }
  Tensor activated(const Tensor& x);
  Tensor mlp(const Tensor& x, const LayerWeights& w);
  Tensor experts(const Tensor& x, const LayerWeights& w);
  Tensor stacked_experts(const Tensor& flat, const LayerWeights& w, const Routing& routing);
  Tensor expert_weight(const Tensor& w);
  Tensor expert_modules(const Tensor& x, const LayerWeights& w);
  // gpt-oss: decoder_gpt_oss.cpp.
  Tensor rotated_halves(const Tensor& x, const Rotary& rotary);
  AttentionOutputs attention_with_sinks(const AttentionInputs& in, const Tensor& sinks);
  Tensor clamped_swiglu(const Tensor& gate_up);

  Tape& t_;
  const model::Architecture& a_;
  const StepSettings& s_;
  std::int64_t batch_, sequence_, hidden_;
  bool gemma_, gpt2_, phi3_, granite_;
  bool olmo_;  // OLMo 2 and 3
  bool gpt_oss_, glm4_, seed_oss_;
  /// The region of autocast, which accelerate makes of the model under FSDP1 too.
  bool under_autocast_;
  bool mask_per_kind_;  // masks of full attention and of windows are made, whatever the layers need
  Tensor embedding_, positions_, head_, final_norm_, final_shift_, ids_, loss_weights_;
  Tensor output_logits_;  // of the last micro-batch, where the loop keeps them
  std::vector<Tensor> buffers_;
  Tensor staged_input_;  // of a layer whose input is in host memory (Unsloth)
  std::vector<LayerWeights> layers_;
  /// A second model with settings of its own, where nothing but weights are trained by preferences.
  std::unique_ptr<StepSettings> reference_settings_;
  std::unique_ptr<Decoder> reference_;
  bool is_reference_ = false;            // runs as the reference: without adapters and checkpoints
  std::set<std::string> adapter_names_;  // of modules, which weights refer to
  std::uint32_t adapter_units_ = 0;      // of FSDP1
};

}  // namespace trainhost::frameworks
