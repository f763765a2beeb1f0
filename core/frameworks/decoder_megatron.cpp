#include "core/frameworks/decoder_megatron.hpp"

#include <algorithm>
#include <numeric>

#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// Elements, as all sizes of the buffers.
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
  // The angles of the rank's tokens, which a cache keeps.
  const model::Attention& attention = a.layers.front().layer.attention;
  const std::int64_t head_dim = attention.latent ? attention.rope_head_dim : attention.head_dim;
  kept_.push_back(
      t_.new_storage({tokens_ / batch_, head_dim}, Element::kF32, Purpose::kBuffers, "", "rotary angles"));
  if (s_.stage.last() && settings.megatron.sequence_parallel)
    gathered_head_input_ = t_.new_storage({tokens_, hidden_}, Element::kBF16, Purpose::kCommunication,
                                          "output_layer", "buffer of gathered tokens");
  t_.after_gradient = [](const Tensor& p) { p->grad.reset(); };  // it was added to the buffer
}

void MegatronDecoder::plan_weights(const model::Architecture& a) {
  const auto [begin, end] = layers_of_stage(a.layer_count(), s_.stage);
  layers_.resize(end - begin);
  if (s_.stage.first()) planned_.push_back({{vocab_, hidden_}, -1, "embedding", &embedding_});
  std::uint32_t index = 0;
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i, ++index)
      if (index >= begin && index < end)
        plan_layer(run.layer, static_cast<std::int32_t>(index - begin), layers_[index - begin]);
  if (!s_.stage.last()) return;
  planned_.push_back({{hidden_}, -1, "final_layernorm", &final_norm_});
  // A tied head on another stage than the embedding has its own copy.
  if (!tied_ || !s_.stage.first()) planned_.push_back({{vocab_, hidden_}, -1, "output_layer", &head_});
}

void MegatronDecoder::plan_layer(const model::Layer& l, std::int32_t index, Layer& w) {
  const model::Attention& a = l.attention;
  w.heads = a.heads / s_.tensor;
  w.kv_heads = a.kv_heads / s_.tensor;
  w.head_dim = a.head_dim;
  w.width = l.mlp.width / s_.tensor;
  if (a.latent) plan_latent_attention(a, index, w);
  const auto add = [&](const Shape& shape, const char* module, Tensor& target) {
    planned_.push_back({shape, index, module, &target});
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

/// Parameters begin at multiples of 64 elements, and the buffers have the same part for each rank.
void MegatronDecoder::allocate_buffers(bool experts) {
  constexpr std::int64_t kBucketEnd = 128;
  const bool moved = s_.megatron.distributed_optimizer;
  Buffers& b = buffers_[experts];
  b.ranks = s_.megatron.optimizer_ranks;
  if (experts) b.ranks = std::max<std::int64_t>(1, b.ranks / s_.megatron.expert_ranks);
  for (const Planned& p : planned_) {
    if (p.expert != experts) continue;
    const auto n = static_cast<std::int64_t>(p.shape.count());
    b.elements += moved ? padded(n, kParameterStart) : n;
  }
  if (b.elements == 0) return;
  if (moved) b.elements = padded(b.elements, std::lcm(b.ranks, kBucketEnd));
  const char* module = experts ? "experts" : "";
  if (moved)
    b.weights = t_.new_storage({b.elements}, s_.weights, Purpose::kWeights, module, "buffer of weights");
  b.gradients =
      t_.new_storage({b.elements}, s_.megatron.gradients, Purpose::kGradients, module, "buffer of gradients");
}

/// Elements of each parameter in the part of its buffer that this rank updates. A buffer has the parameters
/// in reverse order, and each rank an equal part of it.
void MegatronDecoder::find_shards(bool experts) {
  const Buffers& b = buffers_[experts];
  const std::int64_t part = b.elements / b.ranks;
  const std::int64_t first = part * (s_.megatron.optimizer_rank % b.ranks), last = first + part;
  std::int64_t begin = 0;
  for (std::size_t i = planned_.size(); i-- > 0;) {
    if (planned_[i].expert != experts) continue;
    const auto n = static_cast<std::int64_t>(planned_[i].shape.count());
    shards_[i] = std::max<std::int64_t>(0, std::min(begin + n, last) - std::max(begin, first));
    begin += padded(n, kParameterStart);
  }
}

void MegatronDecoder::allocate_weights() {
  std::vector<Tensor> own;
  for (const Planned& p : planned_) {
    t_.layer = p.layer;
    own.push_back(t_.parameter(p.shape, s_.weights, p.module, true));
  }
  t_.layer = -1;
  shards_.resize(planned_.size());
  for (const bool experts : {false, true}) {
    allocate_buffers(experts);
    find_shards(experts);
    for (std::size_t i = planned_.size(); i-- > 0;) {
      if (planned_[i].expert != experts) continue;
      Tensor p = std::move(own[i]);
      if (const Tensor& buffer = buffers_[experts].weights) {
        p = t_.alias(buffer, planned_[i].shape);
        p->parameter = p->requires_grad = true;
      }
      *planned_[i].target = std::move(p);
    }
  }
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    if (shards_[i] == 0) continue;
    const Planned& p = planned_[i];
    t_.layer = p.layer;
    const Tensor copy =
        t_.new_storage({shards_[i]}, s_.weights, Purpose::kKernel, p.module, "copy of the shard");
    main_.push_back(
        t_.new_storage({shards_[i]}, Element::kF32, Purpose::kMasterWeights, p.module, "main weight"));
  }
}

Tensor MegatronDecoder::forward(const Tensor& input) {
  // get_batch(): the embedding keeps the ids; the rest is freed when the function returns.
  const auto of_tokens = [&](Element type, const char* name) {
    return t_.new_storage({batch_, tokens_ / batch_}, type, Purpose::kBuffers, "", name);
  };
  const bool ends = s_.stage.first() || s_.stage.last();
  Tensor ids, labels, mask, positions;
  if (ends) {
    ids = of_tokens(Element::kI64, "token ids");
    labels = of_tokens(Element::kI64, "labels");
    mask = of_tokens(Element::kF32, "mask of the loss");
    positions = of_tokens(Element::kI64, "positions");
  }
  Tensor x = layers(s_.stage.first() ? embedded(ids) : input);
  t_.layer = -1;
  if (!s_.stage.last()) return x;
  {
    const ModuleScope scope(t_, "final_layernorm");
    x = rms_norm(t_, x, final_norm_);
  }
  const Tensor logits = head(x);
  x.reset();
  return loss_of(logits);
}

Tensor MegatronDecoder::received(const char* name) {
  return t_.new_storage({rows_, hidden_}, s_.weights, Purpose::kCommunication, "", name);
}

void MegatronDecoder::run_forward(std::uint32_t step, const Tensor& input) {
  t_.begin(kForward, step, ++forwards_);
  t_.recording = step == 1 && forwards_ == 1;
  use_workspace();
  Tensor output = forward(input);
  t_.recording = false;
  if (!s_.stage.last()) {
    // The output is freed when it is sent; its history remains.
    Tensor sent(new TensorBody);
    sent->node = output->node;
    sent->shape = output->shape;
    sent->type = output->type;
    output = std::move(sent);
  }
  in_flight_.push_back({input, std::move(output)});
}

void MegatronDecoder::run_backward(std::uint32_t step, const Tensor& gradient) {
  t_.begin(kBackward, step, ++backwards_);
  if (step == 1 && backwards_ == 1 && s_.stage.last() && s_.machine.cublas_workspace)
    kept_.push_back(t_.new_storage({static_cast<std::int64_t>(s_.machine.cublas_workspace)}, Element::kByte,
                                   Purpose::kKernel, "", "workspace of cuBLAS"));
  const Pass pass = std::move(in_flight_.front());
  in_flight_.pop_front();
  t_.run_backward(pass.output, {}, gradient);
}

/// forward_backward_pipelining_without_interleaving(), whose local variables keep the last gradients that
/// were received and sent.
void MegatronDecoder::run_stage(std::uint32_t step) {
  const bool first = s_.stage.first(), last = s_.stage.last();
  const std::uint32_t micro_batches = s_.accumulate;
  const std::uint32_t warm_up = std::min(micro_batches, s_.stage.stages - s_.stage.index - 1);
  const auto input = [&] {
    if (first) return Tensor();
    Tensor x = received("received activations");
    x->requires_grad = true;
    return x;
  };
  Tensor from_next, to_previous;
  const auto backward = [&] {
    const Tensor x = in_flight_.front().input;
    run_backward(step, from_next);
    to_previous = x ? std::move(x->grad) : Tensor();
  };
  for (std::uint32_t i = 0; i < warm_up; ++i) run_forward(step, input());
  for (std::uint32_t i = warm_up; i < micro_batches; ++i) {
    run_forward(step, input());
    if (!last) from_next = received("received gradient");
    backward();
  }
  for (std::uint32_t i = 0; i < warm_up; ++i) {
    from_next = received("received gradient");
    backward();
  }
}

void MegatronDecoder::run(std::uint32_t step) {
  forwards_ = backwards_ = 0;
  if (s_.stage.stages > 1) {
    run_stage(step);
  } else {
    for (std::uint32_t i = 0; i < s_.accumulate; ++i) {
      run_forward(step, {});
      run_backward(step, {});
    }
  }
  t_.begin(kUpdate, step, 0);
  update();
}

void MegatronDecoder::update() {
  // Gradients of another type than f32 are converted, all of them before the update.
  std::vector<Tensor> wide;
  const auto allocate = [&](Element type, Purpose purpose, const char* name, int count,
                            std::vector<Tensor>& out) {
    for (std::size_t i = 0; i < planned_.size(); ++i)
      for (int k = 0; k < count && shards_[i] > 0; ++k) {
        t_.layer = planned_[i].layer;
        out.push_back(t_.new_storage({shards_[i]}, type, purpose, planned_[i].module, name));
      }
  };
  if (s_.megatron.gradients != Element::kF32)
    allocate(Element::kF32, Purpose::kUpdate, "gradient in f32", 1, wide);
  if (moments_.empty()) allocate(s_.megatron.moments, Purpose::kOptimizerState, "moment", 2, moments_);
  for (Tensor& t : wide) t.reset();
  t_.layer = -1;
}

/// Of Transformer Engine, and of cuBLAS for the head. The thread of the backward pass has another one of
/// cuBLAS.
void MegatronDecoder::use_workspace() {
  if (linear_workspace_) return;
  if (s_.megatron.linear_workspace)
    linear_workspace_ =
        t_.new_storage({static_cast<std::int64_t>(s_.megatron.linear_workspace)}, Element::kByte,
                       Purpose::kKernel, "", "workspace of Transformer Engine");
  if (s_.stage.last() && s_.machine.cublas_workspace)
    kept_.push_back(t_.new_storage({static_cast<std::int64_t>(s_.machine.cublas_workspace)}, Element::kByte,
                                   Purpose::kKernel, "", "workspace of cuBLAS"));
}

}  // namespace trainhost::frameworks
