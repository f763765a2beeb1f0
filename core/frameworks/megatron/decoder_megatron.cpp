// Weights, buffers and optimizer state of MegatronDecoder. Schedules: megatron_schedules.cpp.
#include "core/frameworks/megatron/decoder_megatron.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <tuple>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// In elements, as are all sizes of buffers here.
constexpr std::int64_t kParameterStart = 64;

std::int64_t padded(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

MegatronDecoder::MegatronDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      batch_(settings.batch),
      tokens_(std::int64_t{settings.batch} * (settings.sequence / settings.context)),
      rows_(settings.megatron.sequence_parallel ? tokens_ / settings.tensor : tokens_),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab) / settings.tensor),
      tied_(a.tied) {
  plan_weights(a);
  allocate_weights();
  t_.layer = -1;
  const model::Attention& attention = a.layers.front().layer.attention;
  rotated_dim_ = attention.latent ? attention.rope_head_dim : attention.head_dim;
  angles_.resize(virtual_stages_.size());
  t_.after_gradient = [](const Tensor& p) { p->grad.reset(); };  // it was added to the buffer
}

/// The layers of this rank. Virtual stages divide each part of the model in turn over the ranks.
void MegatronDecoder::plan_weights(const model::Architecture& a) {
  const std::uint32_t virtual_stages = s_.megatron.virtual_stages;
  const auto [begin, end] = layers_of_stage(a.layer_count(), s_.stage);
  layers_.resize(end - begin);
  buffers_.resize(virtual_stages), in_flight_.resize(virtual_stages), last_inputs_.resize(virtual_stages);
  const std::uint32_t each = (end - begin) / virtual_stages, part = a.layer_count() / virtual_stages;
  assert(virtual_stages == 1 || std::uint64_t{each} * virtual_stages * s_.stage.stages == a.layer_count());
  for (std::uint32_t i = 0; i < virtual_stages; ++i) {
    virtual_stages_.push_back({i * each, i + 1 == virtual_stages ? end - begin : (i + 1) * each,
                               s_.stage.first() && i == 0, s_.stage.last() && i + 1 == virtual_stages});
    plan_virtual_stage(a, i, virtual_stages == 1 ? begin : i * part + s_.stage.index * each);
  }
}

/// first_layer: of the model.
void MegatronDecoder::plan_virtual_stage(const model::Architecture& a, std::size_t index,
                                         std::uint32_t first_layer) {
  const VirtualStage& stage = virtual_stages_[index];
  const std::size_t planned = planned_.size(), end = first_layer + (stage.end - stage.begin);
  if (stage.first) planned_.push_back({{vocab_, hidden_}, -1, "embedding", &embedding_});
  std::size_t layer = 0;
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i, ++layer)
      if (layer >= first_layer && layer < end) {
        const std::size_t own = stage.begin + layer - first_layer;
        layers_[own].quantized = is_quantized(layer, a.layer_count());
        plan_layer(run.layer, static_cast<std::int32_t>(own), layers_[own]);
      }
  if (stage.last) {
    planned_.push_back({{hidden_}, -1, "final_layernorm", &final_norm_});
    // A tied head on another stage than the embedding has its own copy.
    if (!tied_ || !stage.first) planned_.push_back({{vocab_, hidden_}, -1, "output_layer", &head_});
  }
  for (std::size_t i = planned; i < planned_.size(); ++i) planned_[i].stage = index;
}

/// layer: of the `layers` of the model.
bool MegatronDecoder::is_quantized(std::size_t layer, std::size_t layers) const {
  const ProductPolicy& policy = s_.megatron.products;
  return policy.recipe != ProductRecipe::kNone && layer >= policy.bf16_first &&
         layer + policy.bf16_last < layers;
}

void MegatronDecoder::plan_layer(const model::Layer& l, std::int32_t index, Layer& w) {
  const model::Attention& a = l.attention;
  w.heads = a.heads / s_.tensor;
  w.kv_heads = a.kv_heads / s_.tensor;
  w.head_dim = a.head_dim;
  w.width = l.mlp.width / s_.tensor;
  if (a.latent) plan_latent_attention(a, index, w);
  const auto add = [&](const Shape& shape, const char* module, Tensor& target) {
    planned_.push_back({shape, index, module, &target, false, keeps_quantized(w, shape)});
  };
  const std::int64_t qkv = (w.heads + 2 * w.kv_heads) * w.head_dim;
  if (!a.latent) {
    add({hidden_, w.heads * w.head_dim}, "self_attention.linear_proj", w.o);
    add({hidden_}, "self_attention.linear_qkv.norm", w.qkv_norm);
    add({qkv, hidden_}, "self_attention.linear_qkv", w.qkv);
    if (a.q_bias) add({qkv}, "self_attention.linear_qkv.bias", w.qkv_bias);
    if (a.qk_norm != model::NormKind::kNone) {
      add({w.head_dim}, "self_attention.q_layernorm", w.q_norm);
      add({w.head_dim}, "self_attention.k_layernorm", w.k_norm);
    }
  }
  if (l.experts.count) {
    add({hidden_}, "pre_mlp_layernorm", w.mlp_norm);
    plan_experts(l.experts, index, w);
    return;
  }
  add({hidden_}, "mlp.linear_fc1.norm", w.mlp_norm);
  add({2 * w.width, hidden_}, "mlp.linear_fc1", w.fc1);
  add({hidden_, w.width}, "mlp.linear_fc2", w.fc2);
}

/// Parameters begin at multiples of 64 elements; the end is padded so that all ranks have equal parts.
void MegatronDecoder::allocate_buffers(std::size_t stage, std::size_t kind) {
  constexpr std::int64_t kBucketEnd = 128;
  const bool moved = s_.megatron.distributed_optimizer;
  Buffers& b = buffers_[stage][kind];
  bool experts = false, quantized = false;
  for (const Planned& p : planned_) {
    if (p.kind() != kind || p.stage != stage) continue;
    experts = p.expert, quantized = p.quantized;
    const auto n = static_cast<std::int64_t>(p.shape.count());
    b.elements += moved ? padded(n, kParameterStart) : n;
  }
  if (b.elements == 0) return;
  b.ranks = experts ? s_.megatron.expert_optimizer_ranks : s_.megatron.optimizer_ranks;
  if (moved) b.elements = padded(b.elements, std::lcm(b.ranks, kBucketEnd));
  const char* module = experts ? "experts" : "";
  if (moved && (!quantized || s_.megatron.products.recipe != ProductRecipe::kMxfp8))
    b.weights = t_.new_storage({b.elements}, quantized ? Element::kByte : s_.weights, Purpose::kWeights,
                               module, quantized ? "buffer of 8-bit weights" : "buffer of weights");
  b.gradients =
      t_.new_storage({b.elements}, s_.megatron.gradients, Purpose::kGradients, module, "buffer of gradients");
}

/// Elements of each parameter in the part of its buffer that this rank updates. A buffer has the parameters
/// in reverse order, and each rank an equal part of it.
void MegatronDecoder::find_shards(std::size_t stage, std::size_t kind) {
  const Buffers& b = buffers_[stage][kind];
  const std::int64_t part = b.elements / b.ranks;
  const std::int64_t first = part * (s_.megatron.optimizer_rank % b.ranks), last = first + part;
  std::int64_t begin = 0;
  for (std::size_t i = planned_.size(); i-- > 0;) {
    if (planned_[i].kind() != kind || planned_[i].stage != stage) continue;
    const auto n = static_cast<std::int64_t>(planned_[i].shape.count());
    shards_[i] = std::max<std::int64_t>(0, std::min(begin + n, last) - std::max(begin, first));
    begin += padded(n, kParameterStart);
  }
}

/// Quantized parameters are created in bf16 one at a time. Columns of blockwise ones are made by the first
/// product that needs them, as after each update.
void MegatronDecoder::allocate_weights() {
  const ProductPolicy& products = s_.megatron.products;
  std::vector<Tensor> own(planned_.size());
  std::vector<Quantized> copies(planned_.size());
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    const Planned& p = planned_[i];
    t_.layer = p.layer;
    own[i] = t_.parameter(p.shape, s_.weights, p.module, true);
    if (!p.quantized) continue;
    copies[i] = quantize_weight(p.shape, {true, products.recipe != ProductRecipe::kBlockwise}, p.module);
    own[i].reset();
  }
  t_.layer = -1;
  shards_.resize(planned_.size());
  // With MXFP8 parameters, none becomes a part of its buffer, which is allocated all the same.
  const bool stays = products.weights && products.recipe == ProductRecipe::kMxfp8;
  // The buffers of one virtual stage after the other; its weights are moved to them.
  for (std::size_t stage = 0; stage < virtual_stages_.size(); ++stage)
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      allocate_buffers(stage, kind);
      find_shards(stage, kind);
      for (std::size_t i = planned_.size(); i-- > 0;) {
        const Planned& planned = planned_[i];
        if (planned.kind() != kind || planned.stage != stage) continue;
        const Tensor buffer = stays ? Tensor() : buffers_[stage][kind].weights;
        if (planned.quantized) {
          *planned.target = quantized_parameter(planned, std::move(copies[i]), buffer);
          continue;
        }
        Tensor p = std::move(own[i]);
        if (buffer) {
          p = t_.alias(buffer, planned.shape);
          p->parameter = p->requires_grad = true;
        }
        *planned.target = std::move(p);
      }
    }
  update_order_.resize(planned_.size());
  std::iota(update_order_.rbegin(), update_order_.rend(), 0);
  std::ranges::stable_sort(update_order_, {}, [this](std::size_t i) {
    const Planned& p = planned_[i];
    return std::tuple(p.expert, p.shape.dims == 1, p.stage, p.quantized);
  });
  for (const std::size_t i : update_order_) {
    if (shards_[i] == 0) continue;
    const Planned& p = planned_[i];
    t_.layer = p.layer;
    const Tensor copy =
        t_.new_storage({shards_[i]}, s_.weights, Purpose::kKernel, p.module, "copy of the shard");
    main_.push_back(
        t_.new_storage({shards_[i]}, Element::kF32, Purpose::kMasterWeights, p.module, "main weight"));
  }
}

void MegatronDecoder::update() {
  // Gradients of another type than f32 are converted, all of them before the update.
  std::vector<Tensor> wide;
  const auto allocate = [&](Element type, Purpose purpose, const char* name, int count,
                            std::vector<Tensor>& out) {
    for (const std::size_t i : update_order_)
      for (int k = 0; k < count && shards_[i] > 0; ++k) {
        t_.layer = planned_[i].layer;
        out.push_back(t_.new_storage({shards_[i]}, type, purpose, planned_[i].module, name));
      }
  };
  if (s_.megatron.gradients != Element::kF32)
    allocate(Element::kF32, Purpose::kUpdate, "gradient in f32", 1, wide);
  if (moments_.empty()) allocate(s_.megatron.moments, Purpose::kOptimizerState, "moment", 2, moments_);
  update_quantized_parameters();
  for (Tensor& t : wide) t.reset();
  t_.layer = -1;
}

/// Allocates the workspace of Transformer Engine, once per run.
void MegatronDecoder::use_workspace() {
  if (linear_workspace_ || !s_.megatron.linear_workspace) return;
  linear_workspace_ = t_.new_storage({static_cast<std::int64_t>(s_.megatron.linear_workspace)},
                                     Element::kByte, Purpose::kKernel, "", "workspace of Transformer Engine");
}

/// The head is a product of PyTorch: a workspace of cuBLAS for each thread, and the backward pass has its
/// own.
void MegatronDecoder::use_cublas_workspace(Tensor& workspace) {
  if (workspace || !s_.machine.cublas_workspace) return;
  workspace = t_.new_storage({static_cast<std::int64_t>(s_.machine.cublas_workspace)}, Element::kByte,
                             Purpose::kKernel, "", "workspace of cuBLAS");
}

}  // namespace trainhost::frameworks
