// Multi-latent attention and experts of MegatronDecoder. Experts: fused routing of tokens (permute), an
// all-to-all between the ranks, and grouped products of Transformer Engine. Every expert gets an equal share
// of the tokens. One tensor-parallel rank.
#include <array>

#include "core/frameworks/decoder_megatron.hpp"
#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {
namespace {

/// A copy with `rows` rows, whose gradient is a copy too: with padding, or without it.
Tensor resized(Tape& t, const Tensor& x, std::int64_t rows, const char* name) {
  return t.apply({name,
                  std::span(&x, 1),
                  {},
                  false,
                  [name, before = x->shape.made_contiguous()](BackwardCall& c) {
                    c.results[0] = c.tape.make(before, c.grads[0]->type, name);
                  }},
                 {rows, x->shape[1]}, x->type);
}

/// A copy of the same size: of an all-to-all, or of rows in another order.
Tensor moved(Tape& t, const Tensor& x, const char* name) { return resized(t, x, x->shape[0], name); }

}  // namespace

void MegatronDecoder::plan_latent_attention(const model::Attention& a, std::int32_t index, Layer& w) {
  const auto add = [&](const Shape& shape, const char* module, Tensor& target) {
    planned_.push_back({shape, index, module, &target, false, keeps_quantized(w, shape)});
  };
  w.q_head_dim = a.nope_head_dim + a.rope_head_dim;
  w.v_head_dim = a.v_head_dim;
  w.latent = a.kv_lora_rank;
  w.rope_dim = a.rope_head_dim;
  const std::int64_t q = w.heads * w.q_head_dim, ranks_of_q = a.q_lora_rank;
  add({hidden_}, "input_layernorm", w.qkv_norm);
  add({hidden_, w.heads * w.v_head_dim}, "self_attention.linear_proj", w.o);
  if (ranks_of_q) {
    add({ranks_of_q, hidden_}, "self_attention.linear_q_down_proj", w.q_down);
    add({ranks_of_q}, "self_attention.linear_q_up_proj.norm", w.q_norm);
  }
  add({q, ranks_of_q ? ranks_of_q : hidden_}, "self_attention.linear_q_up_proj", w.q_up);
  add({w.latent + w.rope_dim, hidden_}, "self_attention.linear_kv_down_proj", w.kv_down);
  add({w.latent}, "self_attention.linear_kv_up_proj.norm", w.kv_norm);
  add({w.heads * (a.nope_head_dim + w.v_head_dim), w.latent}, "self_attention.linear_kv_up_proj", w.kv_up);
}

void MegatronDecoder::plan_experts(const model::Experts& e, std::int32_t index, Layer& w) {
  const auto add = [&](const Shape& shape, const char* module, Tensor& target, bool expert) {
    planned_.push_back({shape, index, module, &target, expert, keeps_quantized(w, shape)});
  };
  w.expert_count = e.count;
  w.experts_per_token = e.active;
  planned_.push_back({{e.count, hidden_}, index, "mlp.router", &w.router});  // in bf16
  const std::uint32_t own = e.count / s_.megatron.expert_ranks;
  w.experts.resize(2 * std::size_t{own});  // before their addresses are taken
  for (std::uint32_t i = 0; i < own; ++i) {
    add({2 * std::int64_t{e.each.width}, hidden_}, "mlp.experts.linear_fc1", w.experts[2 * i], true);
    add({hidden_, e.each.width}, "mlp.experts.linear_fc2", w.experts[2 * i + 1], true);
  }
  if (e.shared.width == 0) return;
  add({2 * std::int64_t{e.shared.width}, hidden_}, "mlp.shared_experts.linear_fc1", w.shared_fc1, false);
  add({hidden_, e.shared.width}, "mlp.shared_experts.linear_fc2", w.shared_fc2, false);
}

/// A product without tensor parallelism. keeps_input: something else keeps x too.
Tensor MegatronDecoder::plain_linear(const Tensor& x, const Tensor& weight, const char* module,
                                     bool keeps_input) {
  if (quantizing_)
    return quantized_linear(x, {&weight, 1}, module, {keeps_input && keeps_inputs_in_bf16(), false});
  const ModuleScope scope(t_, module);
  const std::array inputs{x};
  return t_.apply({"output", inputs, inputs, false,
                   [this, weight](BackwardCall& c) {
                     c.results[0] = t_.make(c.saved[0]->shape.made_contiguous(), c.grads[0]->type,
                                            "gradient of the input");
                     dummy_gradient(weight);
                   }},
                  {x->shape[0], weight->shape[0]}, x->type);
}

/// fc1 (first = 0) or fc2 (1) of all experts, which share one dummy gradient.
Tensor MegatronDecoder::expert_linear(const Tensor& x, const Layer& w, std::size_t first,
                                      const char* module) {
  if (!quantizing_) return plain_linear(x, w.experts[first], module);
  std::vector<Tensor> weights;
  for (std::size_t i = first; i < w.experts.size(); i += 2) weights.push_back(w.experts[i]);
  return quantized_linear(x, weights, module, {});
}

/// The rotary embedding of q is computed in place; that of the keys writes keys and values, which the latent
/// was expanded to, into two tensors.
Tensor MegatronDecoder::latent_attention(const Tensor& x, const Layer& w) {
  Tensor q, latent;
  {
    const auto normed = [&] {
      const ModuleScope scope(t_, "input_layernorm");
      return rms_norm(t_, x, w.qkv_norm);
    };
    const Tensor input = normed();
    q = plain_linear(input, w.q_down ? w.q_down : w.q_up, "self_attention.linear_q_down_proj");
    latent = plain_linear(input, w.kv_down, "self_attention.linear_kv_down_proj");
  }
  if (w.q_down) q = norm_linear(q, w.q_norm, w.q_up, {}, "self_attention.linear_q_up_proj");
  const std::vector<Tensor> parts = split(t_, latent, {w.latent, w.rope_dim});
  latent.reset();
  Tensor out;
  {
    const Tensor expanded = norm_linear(parts[0], w.kv_norm, w.kv_up, {}, "self_attention.linear_kv_up_proj");
    const ModuleScope scope(t_, "self_attention");
    const std::array inputs{expanded, parts[1]};
    const std::int64_t keys = w.heads * w.q_head_dim, values = w.heads * w.v_head_dim;
    const std::vector<Tensor> kv =
        t_.apply_many({"keys and values",
                       inputs,
                       {},
                       false,
                       [this, width = expanded->shape[1], rope = w.rope_dim](BackwardCall& c) {
                         c.results[0] = t_.make({tokens_, width}, s_.weights, "gradient");
                         c.results[1] = t_.make({tokens_, rope}, s_.weights, "gradient");
                       }},
                      [&] {
                        return std::vector<Tensor>{t_.make({tokens_, keys}, s_.weights, "keys"),
                                                   t_.make({tokens_, values}, s_.weights, "values")};
                      });
    const auto attended = [this, &w](const std::vector<Tensor>& in) {
      return core_attention(in[0], in[1], in[2], w);
    };
    const std::vector<Tensor> in{q, kv[0], kv[1]};
    out = s_.selective ? t_.checkpointed_reentrant(in, attended) : attended(in);
  }
  return row_linear(out, w.o, "self_attention.linear_proj", true);
}

/// Chooses the experts and returns the tokens in the order of their experts. Keeps f32 scores, those of the
/// auxiliary loss, which experts were chosen, and a map of rows.
Tensor MegatronDecoder::routed(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, "mlp.router");
  const Shape of_experts{tokens_, w.expert_count};
  const std::array inputs{x, w.router};
  Tensor probabilities;
  {
    const Tensor logits = t_.make(of_experts, x->type, "logits");
    const std::array saved{x, t_.make(of_experts, Element::kF32, "scores"),
                           t_.make(of_experts, Element::kF32, "scores of the auxiliary loss"),
                           t_.make(of_experts, Element::kBool, "chosen experts")};
    probabilities = t_.apply({"probabilities", inputs, saved, false,
                              [this, weight = w.router](BackwardCall& c) {
                                c.results[0] = t_.make({tokens_, hidden_}, s_.weights, "gradient");
                                c.results[1] = t_.make(weight->shape, s_.weights, "gradient of the weight");
                              }},
                             of_experts, Element::kF32);
  }
  const Tensor map = t_.make({tokens_, 2 * w.expert_count + 1}, Element::kI32, "map of rows");
  const std::array both{x, probabilities};
  const std::array saved{map, probabilities};
  return t_.apply({"permuted tokens", both, saved, false,
                   [this](BackwardCall& c) {
                     c.results[0] = t_.make({tokens_, hidden_}, s_.weights, "gradient");
                     c.results[1] =
                         t_.make(c.saved[1]->shape, Element::kF32, "gradient of the probabilities");
                   }},
                  {tokens_ * w.experts_per_token, hidden_}, x->type);
}

/// Fp8Padding: quantized products pad the tokens of each expert.
std::int64_t MegatronDecoder::padded_rows(std::int64_t rows, const Layer& w) const {
  if (!quantizing_) return rows;
  const auto experts = static_cast<std::int64_t>(w.experts.size() / 2);
  const std::int64_t multiple = expert_row_multiple(s_.megatron.products.recipe);
  const std::int64_t each = (rows + experts - 1) / experts;
  return experts * ((each + multiple - 1) / multiple * multiple);
}

/// MoELayer.forward(), whose variables keep the permuted and the received tokens, and the results of the
/// experts before and after they are sent back.
Tensor MegatronDecoder::experts(const Tensor& h, const Layer& w) {
  use_workspaces_of_experts();
  const auto normed = [&] {
    const ModuleScope scope(t_, "pre_mlp_layernorm");
    return rms_norm(t_, h, w.mlp_norm);
  };
  const Tensor x = normed();
  const Tensor permuted = routed(x, w);
  const Tensor received = moved(t_, permuted, "tokens after all-to-all");
  Tensor shared;
  if (w.shared_fc1) {
    const Tensor both = plain_linear(x, w.shared_fc1, "mlp.shared_experts.linear_fc1", true);
    shared = row_linear(swiglu(both), w.shared_fc2, "mlp.shared_experts.linear_fc2");
  }
  const auto computed = [&] {
    const Tensor sorted = moved(t_, received, "tokens by expert");
    const std::int64_t rows = sorted->shape[0], padded = padded_rows(rows, w);
    const Tensor input = padded > rows ? resized(t_, sorted, padded, "padded tokens") : sorted;
    const Tensor scale = t_.make({padded}, Element::kF32, "probabilities of the rows");
    const Tensor both = expert_linear(input, w, 0, "mlp.experts.linear_fc1");
    Tensor out = expert_linear(swiglu(both, scale), w, 1, "mlp.experts.linear_fc2");
    if (padded > rows) out = resized(t_, out, rows, "results without padding");
    return moved(t_, out, "results by rank");
  };
  const Tensor results = computed();
  Tensor out;
  {
    const ModuleScope scope(t_, "mlp");
    const Tensor returned = moved(t_, results, "results after all-to-all");
    const std::array inputs{returned};
    out = t_.apply({"output",
                    inputs,
                    {},
                    false,
                    [this, rows = returned->shape[0]](BackwardCall& c) {
                      c.results[0] = t_.make({rows, hidden_}, s_.weights, "gradient of the results");
                    }},
                   {tokens_, hidden_}, x->type);
  }
  return shared ? add(t_, out, shared) : out;
}

/// The products of the experts run on four streams, each with a workspace of cuBLAS.
void MegatronDecoder::use_workspaces_of_experts() {
  constexpr int kWorkspaces = 4;
  if (experts_used_ || s_.megatron.linear_workspace == 0) return;
  experts_used_ = true;
  const std::int32_t layer = std::exchange(t_.layer, -1);
  for (int i = 0; i < kWorkspaces; ++i)
    kept_.push_back(t_.new_storage({static_cast<std::int64_t>(s_.megatron.linear_workspace)}, Element::kByte,
                                   Purpose::kKernel, "", "workspace of the experts"));
  t_.layer = layer;
}

}  // namespace trainhost::frameworks
