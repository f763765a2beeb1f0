// The GPT model of Megatron Core with the modules of Transformer Engine: what its autograd functions keep,
// the buffers of its distributed optimizer, and its schedules (one stage, 1F1B, interleaved 1F1B). Describes
// Megatron Core 0.14 and Transformer Engine 2.11, read from their sources.
//
// Tokens are rows: [T, width] with T = B * S / context on a tensor-parallel rank, and T / tensor of them
// between the matrices under sequence parallelism.
//
// Products in 8 or 4 bits: quantized.hpp has the sizes, megatron_quantized.cpp the tensors of a product.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/frameworks/step_settings.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::frameworks {

class MegatronDecoder {
 public:
  /// Allocates weights and buffers.
  MegatronDecoder(Tape& tape, const model::Architecture& architecture, const StepSettings& settings);
  /// Forward and backward passes of all micro-batches.
  void run_passes(std::uint32_t step);
  /// The optimizer's step.
  void run_update(std::uint32_t step);

 private:
  struct Layer {
    Tensor qkv_norm, qkv, qkv_bias, q_norm, k_norm, o, mlp_norm, fc1, fc2;
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0, width = 0;  // of this rank
    // Multi-latent attention. q_down and q_norm: none where q is a projection of the hidden state. Every
    // tensor-parallel rank has all of q_down and kv_down.
    Tensor q_down, q_up, kv_down, kv_norm, kv_up;
    std::int64_t q_head_dim = 0, v_head_dim = 0, latent = 0, rope_dim = 0;
    // Experts of this rank: fc1 and fc2 of each in turn.
    Tensor router, shared_fc1, shared_fc2;
    std::vector<Tensor> experts;
    std::int64_t expert_count = 0, experts_per_token = 0;
    bool quantized = false;  // its products
  };
  /// A parameter as it is created, before it becomes a part of the buffer.
  struct Planned {
    Shape shape;
    std::int32_t layer;
    const char* module;
    Tensor* target;
    bool expert = false;
    bool quantized = false;  // kept in 8 bits
    std::size_t stage = 0;
    /// Parameters of one kind share a buffer.
    std::size_t kind() const { return 2 * std::size_t{expert} + std::size_t{quantized}; }
  };
  static constexpr std::size_t kKinds = 4;
  /// A virtual stage: layers of layers_, and whether it has the embedding, or the head.
  struct VirtualStage {
    std::size_t begin, end;
    bool first, last;
  };
  /// Contiguous buffers of weights and of gradients of a virtual stage. Experts have their own: fewer ranks
  /// share each. So have parameters in 8 bits.
  struct Buffers {
    Tensor weights, gradients;
    std::int64_t elements = 0, ranks = 1;
  };
  struct Pass {
    Tensor input, output;  // output: the loss in the last stage
  };
  /// Copies of a tensor for products, scaled along its rows and along its columns.
  struct Quantized {
    Tensor rows, row_scales, columns, column_scales;
  };
  /// Of a weight: a cached copy, which is written again in the first micro-batch of a step, or the parameter.
  struct QuantizedWeight {
    Quantized copies;
    Tensor state;  // scales and maxima of its module
    bool parameter = false;
    std::uint32_t step = 0;  // of the last update
  };
  struct Copies {
    bool rows, columns;
  };

  // Weights (decoder_megatron.cpp).
  void plan_weights(const model::Architecture& architecture);
  void plan_virtual_stage(const model::Architecture& architecture, std::size_t stage,
                          std::uint32_t first_layer);
  void plan_layer(const model::Layer& layer, std::int32_t index, Layer& weights);
  bool is_quantized(std::size_t layer, std::size_t layers) const;
  /// Whether a parameter of the layer is kept in 8 bits: matrices of its products are.
  bool keeps_quantized(const Layer& layer, const Shape& shape) const {
    return layer.quantized && s_.megatron.products.weights && shape.dims == 2;
  }
  void allocate_weights();
  void plan_latent_attention(const model::Attention& attention, std::int32_t index, Layer& weights);
  void plan_experts(const model::Experts& experts, std::int32_t index, Layer& weights);
  void allocate_buffers(std::size_t stage, std::size_t kind);
  void find_shards(std::size_t stage, std::size_t kind);

  // Modules (megatron_layers.cpp).
  Tensor embedded(const Tensor& ids);
  Tensor block(const Tensor& x, const Layer& w);
  Tensor dense_mlp(const Tensor& h, const Layer& w);
  Tensor attention(const Tensor& x, const Layer& w);
  Tensor rotated(const Tensor& x, std::int64_t head_dim);
  Tensor core_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layer& w);
  Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Layer& w);
  std::vector<Tensor> attention_gradients(std::span<const Tensor> like, std::int64_t rows);
  Tensor norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight, const Tensor& bias,
                     const char* module);
  /// output_of_attention: attention keeps x too.
  Tensor row_linear(const Tensor& x, const Tensor& weight, const char* module,
                    bool output_of_attention = false);
  Tensor swiglu(const Tensor& x, const Tensor& scale = {});
  Tensor head(const Tensor& x);
  Tensor loss_of(const Tensor& logits);
  // megatron_experts.cpp
  Tensor latent_attention(const Tensor& x, const Layer& w);
  std::vector<Tensor> latent_projections(const Tensor& q, const Tensor& latent, const Tensor& rotated,
                                         const Layer& w);
  /// An RMSNorm that is not part of a product, and the module that reads it. The output of the norm may be
  /// recomputed in the backward pass.
  Tensor normed_before(const Tensor& x, const Tensor& norm, const char* module, const Layer& w,
                       const std::function<Tensor(const Tensor&)>& consumer);
  Tensor experts(const Tensor& h, const Layer& w);
  Tensor experts_of(const Tensor& x, const Layer& w);
  Tensor shared_expert(const Tensor& x, const Layer& w);
  Tensor routed_experts(const Tensor& rows, const Layer& w);
  Tensor dispatched(const Tensor& permuted, const Layer& w);
  Tensor combined(const Tensor& results, const Layer& w);
  Tensor routed(const Tensor& x, const Layer& w);
  Tensor plain_linear(const Tensor& x, const Tensor& weight, const char* module, bool keeps_input = false);
  Tensor column_linear(const Tensor& x, const Tensor& weight, const char* module, bool keeps_input = false);
  Tensor expert_linear(const Tensor& x, const Layer& w, std::size_t first, const char* module);
  std::int64_t padded_rows(std::int64_t rows, const Layer& w) const;
  void use_workspaces_of_experts();
  Tensor layers(Tensor x, const VirtualStage& stage);
  Tensor gathered(const Tensor& x, const char* name);
  /// Sum over the ranks of what `x` holds; the rank's tokens of it.
  Tensor scattered(const Tensor& x, const char* name);
  Tensor dummy_gradient(const Tensor& weight);
  void use_workspace();
  void use_cublas_workspace(Tensor& workspace);

  // Products in 8 or 4 bits (megatron_quantized.cpp).
  struct LinearKind {
    bool keeps_input = false;  // in bf16, and quantizes it again in the backward pass
    bool row_parallel = false;
    bool column_parallel = false;  // under sequence parallelism it gathers its input
  };
  Quantized quantize(const Shape& shape, Copies copies, std::int64_t parts = 1);
  Quantized quantize_weight(const Shape& shape, Copies copies, const char* module);
  void keep_columns(Quantized& q) const;
  /// set_save_original_input(): of modules whose input is kept anyway. Delayed scaling cannot quantize twice.
  bool keeps_inputs_in_bf16() const { return s_.megatron.products.recipe != ProductRecipe::kDelayed; }
  Quantized gather_quantized(const Shape& shape, Copies copies);
  Quantized gradient_of_output(std::int64_t rows, std::int64_t width, bool gathers, std::int64_t parts = 1);
  void reorder_scales(const Shape& a, bool a_by_columns, const Shape& b, bool b_by_columns,
                      std::int64_t parts = 1);
  Tensor quantized_parameter(const Planned& p, Quantized copies, const Tensor& buffer);
  void use_weight(const Tensor& weight, bool columns, const char* module);
  void update_quantized_parameters();
  Tensor quantized_norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight, const Tensor& bias,
                               const char* module);
  Tensor quantized_linear(const Tensor& x, std::span<const Tensor> weights, const char* module,
                          LinearKind kind);
  Tensor quantized_column_linear(const Tensor& x, const Tensor& weight, const char* module, bool keeps_input);

  // Schedule (megatron_schedules.cpp).
  Tensor rotary_angles();
  Tensor forward(const Tensor& input, std::size_t index);
  void run_stage(std::uint32_t step);
  void run_virtual_stages(std::uint32_t step);
  Tensor run_forward(std::uint32_t step, const Tensor& input, std::size_t stage = 0);
  Tensor run_backward(std::uint32_t step, const Tensor& gradient, std::size_t stage = 0);
  void update();
  Tensor received(const char* name);

  Tape& t_;
  const StepSettings& s_;
  std::int64_t batch_, tokens_, rows_, hidden_,
      vocab_;                     // tokens_: T; rows_: of the hidden state; vocab_: of this rank
  std::int64_t rotated_dim_ = 0;  // elements of a head that are rotated
  bool tied_;
  std::vector<VirtualStage> virtual_stages_;
  std::vector<std::array<Buffers, kKinds>> buffers_;  // by stage and kind
  Tensor embedding_, final_norm_, head_;
  std::vector<Planned> planned_;
  std::vector<std::int64_t> shards_;  // elements of each parameter that this rank updates
  /// Indices of planned_ as the optimizer goes through them. Experts have an optimizer of their own, behind
  /// the other. Parameters without weight decay, which have one dimension, are the second group of each; in a
  /// group the order is that of the buffers, so that of the parameters reversed.
  std::vector<std::size_t> update_order_;
  std::vector<Tensor> main_, moments_, kept_;
  std::vector<Tensor> angles_;  // by virtual stage, from its first forward pass on
  std::vector<Layer> layers_;
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> dummies_;
  Tensor gathered_head_input_, linear_workspace_, forward_workspace_, backward_workspace_;
  std::vector<std::deque<Pass>> in_flight_;  // by stage
  /// Of each virtual stage: what set_input_tensor() was called with last, with its gradient.
  std::vector<Tensor> last_inputs_;
  std::uint32_t forwards_ = 0, backwards_ = 0;
  bool experts_used_ = false;
  std::map<const TensorBody*, QuantizedWeight> quantized_weights_;
  std::uint32_t step_ = 0;
  bool quantizing_ = false;  // the layer that runs
};

}  // namespace trainhost::frameworks
