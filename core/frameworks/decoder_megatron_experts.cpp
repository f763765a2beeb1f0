// Multi-latent attention and layers of experts in Megatron-LM, without tensor parallelism: tokens are sent to
// the ranks of their experts (dispatcher `alltoall`), fused permutation, one grouped product for the experts
// of a rank. Tokens are spread evenly.
#include <array>
#include <utility>

#include "core/frameworks/decoder_megatron.hpp"
#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {

void MegatronDecoder::add_latent_attention(const model::Attention& a, Layer& w) {
  w.heads = a.heads;
  w.nope = a.nope_head_dim, w.rope = a.rope_head_dim, w.values = a.v_head_dim;
  w.input_norm = vector(hidden_, "input_layernorm");
  if (a.q_lora_rank) {
    w.q_down = matrix(a.q_lora_rank, hidden_, "self_attention.linear_q_down_proj");
    w.q_norm = vector(a.q_lora_rank, "self_attention.linear_q_up_proj.layer_norm");
  }
  const std::int64_t q_inputs = a.q_lora_rank ? a.q_lora_rank : hidden_;
  w.q_up = matrix(w.heads * (w.nope + w.rope), q_inputs, "self_attention.linear_q_up_proj");
  w.kv_down = matrix(a.kv_lora_rank + w.rope, hidden_, "self_attention.linear_kv_down_proj");
  w.kv_norm = vector(a.kv_lora_rank, "self_attention.linear_kv_up_proj.layer_norm");
  w.kv_up = matrix(w.heads * (w.nope + w.values), a.kv_lora_rank, "self_attention.linear_kv_up_proj");
  w.proj = matrix(hidden_, w.heads * w.values, "self_attention.linear_proj");
}

void MegatronDecoder::add_experts(const model::Experts& e, Layer& w) {
  w.experts = e.count, w.own_experts = e.count / s_.megatron.expert, w.active = e.active;
  w.router = matrix(e.count, hidden_, "mlp.router");
  w.router->requires_grad = true;
  const auto add = [&](std::int64_t outputs, std::int64_t inputs, const char* module) {
    expert_parameters_.push_back(t_.parameter({outputs, inputs}, s_.weights, module, false));
    return expert_parameters_.back();
  };
  const std::int64_t width = e.each.width;
  for (std::int64_t i = 0; i < w.own_experts; ++i)
    w.expert_fc1 = add(2 * width, hidden_, "mlp.experts.linear_fc1");
  for (std::int64_t i = 0; i < w.own_experts; ++i)
    w.expert_fc2 = add(hidden_, width, "mlp.experts.linear_fc2");
  if (e.shared.width == 0) return;
  w.fc1 = matrix(2 * std::int64_t{e.shared.width}, hidden_, "mlp.shared_experts.linear_fc1");
  w.fc2 = matrix(hidden_, e.shared.width, "mlp.shared_experts.linear_fc2");
}

/// Without tensor parallelism row_linear() is a plain product.
Tensor MegatronDecoder::latent_attention(const Tensor& x, const Layer& w) {
  const auto project = [&](const Tensor& input, const Tensor& weight, const char* module) {
    const ModuleScope scope(t_, module);
    return engine_.row_linear(input, weight);
  };
  Tensor normed;
  {
    const ModuleScope scope(t_, "input_layernorm");
    normed = engine_.norm(x, w.input_norm);
  }
  Tensor q;
  if (w.q_down) {
    const Tensor down = project(normed, w.q_down, "self_attention.linear_q_down_proj");
    const ModuleScope scope(t_, "self_attention.linear_q_up_proj");
    q = engine_.norm_linear(down, w.q_norm, w.q_up);
  } else {
    q = project(normed, w.q_up, "self_attention.linear_q_proj");
  }
  const Tensor down = project(normed, w.kv_down, "self_attention.linear_kv_down_proj");
  const std::vector<Tensor> parts = split(t_, down, {w.kv_norm->shape[0], w.rope});
  Tensor up;
  {
    const ModuleScope scope(t_, "self_attention.linear_kv_up_proj");
    up = engine_.norm_linear(parts[0], w.kv_norm, w.kv_up);
  }
  const ModuleScope scope(t_, "self_attention.core_attention");
  const auto shape = [&](std::int64_t features) { return Shape{tokens_, sequences_, w.heads, features}; };
  // q is rotated in place.
  q = view(t_, q, shape(w.nope + w.rope));
  const auto [k, v] = engine_.keys_and_values(up, parts[1], shape(w.nope + w.rope), shape(w.values));
  up.reset();
  const Tensor out = core_attention(q, k, v);
  const ModuleScope last(t_, "self_attention.linear_proj");
  return engine_.row_linear(view(t_, out, {tokens_, sequences_, w.heads * w.values}), w.proj);
}

Tensor MegatronDecoder::shared_expert(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, "mlp.shared_experts");
  const auto activated = [&] { return engine_.swiglu(engine_.row_linear(x, w.fc1)); };
  return engine_.row_linear(activated(), w.fc2);
}

/// The rows of all ranks that the experts of this rank get, and the result in the same order. Rows of several
/// experts are sorted before and after.
Tensor MegatronDecoder::experts_output(const Tensor& rows, const Layer& w) {
  const ModuleScope scope(t_, "mlp.experts");
  const bool sorts = w.own_experts > 1;
  const auto activated = [&] {
    const Tensor sorted = sorts ? engine_.reordered(rows, "rows, sorted by expert") : rows;
    return engine_.swiglu(engine_.grouped_linear(sorted, w.expert_fc1));
  };
  const Tensor output = engine_.grouped_linear(activated(), w.expert_fc2);
  return sorts ? engine_.reordered(output, "rows, sorted by rank") : output;
}

Tensor MegatronDecoder::experts(const Tensor& h, const Layer& w) {
  Tensor x;
  {
    const ModuleScope scope(t_, "pre_mlp_layernorm");
    x = engine_.norm(h, w.mlp_norm);
  }
  const ModuleScope scope(t_, "mlp.token_dispatcher");
  const auto exchanged = [&](const Tensor& rows, const char* name) {
    return s_.megatron.expert > 1 ? engine_.reordered(rows, name) : rows;
  };
  // Variables of MoELayer.forward() keep what was sent and received until it returns.
  const Tensor sent = engine_.permute(x, engine_.route(x, w.router), tokens_ * sequences_ * w.active);
  const Tensor received = exchanged(sent, "received rows");
  const Tensor shared = w.fc1 ? shared_expert(x, w) : Tensor();
  const Tensor output = experts_output(received, w);
  const auto combined = [&] { return engine_.unpermute(exchanged(output, "returned rows"), x->shape); };
  const Tensor sum = combined();
  return shared ? add(t_, sum, shared) : sum;
}

}  // namespace trainhost::frameworks
