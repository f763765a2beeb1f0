// Multi-latent attention and experts of MegatronDecoder. Experts: fused routing of tokens (permute), an
// all-to-all between the expert-parallel ranks, a gather over the ranks that divide an expert, and grouped
// products of Transformer Engine. Every expert gets an equal share of the tokens. Under sequence parallelism
// router and norms see the tokens of one rank.
#include <array>
#include <utility>
#include <vector>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"
#include "core/frameworks/megatron/output_checkpoint.hpp"

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
  const std::int64_t width = e.each.width / s_.megatron.expert_tensor, shared = e.shared.width / s_.tensor;
  w.experts.resize(2 * std::size_t{own});  // before their addresses are taken
  for (std::uint32_t i = 0; i < own; ++i) {
    add({2 * width, hidden_}, "mlp.experts.linear_fc1", w.experts[2 * i], true);
    add({hidden_, width}, "mlp.experts.linear_fc2", w.experts[2 * i + 1], true);
  }
  if (shared == 0) return;
  add({2 * shared, hidden_}, "mlp.shared_experts.linear_fc1", w.shared_fc1, false);
  add({hidden_, shared}, "mlp.shared_experts.linear_fc2", w.shared_fc2, false);
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

/// A product whose outputs are divided over the tensor-parallel ranks. Under sequence parallelism it keeps
/// the rank's tokens and gathers all of them in both passes.
Tensor MegatronDecoder::column_linear(const Tensor& x, const Tensor& weight, const char* module,
                                      bool keeps_input) {
  if (!s_.megatron.sequence_parallel) return plain_linear(x, weight, module, keeps_input);
  if (quantizing_)
    return quantized_linear(x, {&weight, 1}, module, {keeps_input && keeps_inputs_in_bf16(), false, true});
  const ModuleScope scope(t_, module);
  Tensor out;
  {
    const Tensor all = gathered(x, "gathered tokens");
    out = t_.make({tokens_, weight->shape[0]}, x->type, "output");
  }
  const std::array inputs{x};
  return t_.apply_view({"output", inputs, inputs, false,
                        [this, weight](BackwardCall& c) {
                          const Tensor all = gathered(c.saved[0], "gathered tokens");
                          const Tensor product =
                              t_.make(all->shape, c.grads[0]->type, "gradient of all tokens");
                          c.results[0] = scattered(product, "gradient of the rank's tokens");
                          dummy_gradient(weight);
                        }},
                       out, out->shape);
}

/// fc1 (first = 0) or fc2 (1) of all experts, which share one dummy gradient.
Tensor MegatronDecoder::expert_linear(const Tensor& x, const Layer& w, std::size_t first,
                                      const char* module) {
  if (!quantizing_) return plain_linear(x, w.experts[first], module);
  std::vector<Tensor> weights;
  for (std::size_t i = first; i < w.experts.size(); i += 2) weights.push_back(w.experts[i]);
  return quantized_linear(x, weights, module, {});
}

Tensor MegatronDecoder::normed_before(const Tensor& x, const Tensor& norm, const char* module, const Layer& w,
                                      const std::function<Tensor(const Tensor&)>& consumer) {
  const auto region = [this, norm, module](const std::vector<Tensor>& in) {
    const ModuleScope scope(t_, module);
    return std::vector{rms_norm(t_, in[0], norm)};
  };
  if (!s_.megatron.recomputed.norms) return consumer(region({x})[0]);
  OutputCheckpoint normed(t_, {x}, region);
  const Tensor out = consumer(normed.outputs()[0]);
  normed.discard(out);
  quantizing_ = w.quantized;
  return out;
}

/// q, keys and values of one rank. The rotary embedding of q is computed in place; that of the keys writes
/// keys and values, which the latent was expanded to, into two tensors.
std::vector<Tensor> MegatronDecoder::latent_projections(const Tensor& q_latent, const Tensor& latent,
                                                        const Tensor& rotated, const Layer& w) {
  quantizing_ = w.quantized;
  const Tensor q = w.q_down ? norm_linear(q_latent, w.q_norm, w.q_up, {}, "self_attention.linear_q_up_proj")
                            : column_linear(q_latent, w.q_up, "self_attention.linear_q_proj");
  const Tensor expanded = norm_linear(latent, w.kv_norm, w.kv_up, {}, "self_attention.linear_kv_up_proj");
  const ModuleScope scope(t_, "self_attention");
  std::vector<Tensor> angles;  // that operators keep which are not fused; those of q and of the keys
  if (!s_.megatron.fused_rotation)
    for (int i = 0; i < 4; ++i)
      angles.push_back(t_.make({tokens_ / batch_, w.rope_dim}, s_.weights, i % 2 ? "sine" : "cosine"));
  const std::array inputs{expanded, rotated};
  const std::int64_t keys = w.heads * w.q_head_dim, values = w.heads * w.v_head_dim;
  std::vector<Tensor> kv =
      t_.apply_many({"keys and values", inputs, angles, false,
                     [this, width = expanded->shape[1], rope = w.rope_dim](BackwardCall& c) {
                       c.results[0] = t_.make({tokens_, width}, s_.weights, "gradient");
                       c.results[1] = t_.make({tokens_, rope}, s_.weights, "gradient");
                     }},
                    [&] {
                      return std::vector<Tensor>{t_.make({tokens_, keys}, s_.weights, "keys"),
                                                 t_.make({tokens_, values}, s_.weights, "values")};
                    });
  return {q, kv[0], kv[1]};
}

Tensor MegatronDecoder::latent_attention(const Tensor& x, const Layer& w) {
  return normed_before(x, w.qkv_norm, "input_layernorm", w, [this, &w](const Tensor& input) {
    const Tensor q = w.q_down ? plain_linear(input, w.q_down, "self_attention.linear_q_down_proj") : input;
    Tensor latent = plain_linear(input, w.kv_down, "self_attention.linear_kv_down_proj");
    std::vector<Tensor> parts = split(t_, latent, {w.latent, w.rope_dim});
    latent.reset();
    // Keys need the rotated part of all tokens. It is gathered from a contiguous copy.
    if (s_.megatron.sequence_parallel) {
      const ModuleScope scope(t_, "self_attention");
      const Tensor copy = t_.make(parts[1]->shape.made_contiguous(), parts[1]->type, "rotated part, copied");
      parts[1] = resized(t_, parts[1], tokens_, "rotated part of all tokens");
    }
    const auto attended = [this, &w](const std::vector<Tensor>& in) {
      return core_attention(in[0], in[1], in[2], w);
    };
    const auto output = [&](const std::vector<Tensor>& qkv) {
      const ModuleScope scope(t_, "self_attention");
      return s_.selective ? t_.checkpointed_reentrant(qkv, attended) : attended(qkv);
    };
    Tensor out;
    if (s_.megatron.recomputed.up_projections) {
      OutputCheckpoint projected(t_, {q, parts[0], parts[1]}, [this, &w](const std::vector<Tensor>& in) {
        return latent_projections(in[0], in[1], in[2], w);
      });
      out = output(projected.outputs());
      projected.discard(out);
    } else {
      out = output(latent_projections(q, parts[0], parts[1], w));
    }
    return row_linear(out, w.o, "self_attention.linear_proj", true);
  });
}

/// Chooses the experts and returns the tokens in the order of their experts. Keeps f32 scores, those of the
/// auxiliary loss, which experts were chosen, and a map of rows.
Tensor MegatronDecoder::routed(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, "mlp.router");
  const Shape of_experts{rows_, w.expert_count};
  const Element type = s_.megatron.router_in_f32 ? Element::kF32 : x->type;
  const std::array inputs{x, w.router};
  Tensor probabilities;
  {
    const Tensor logits = t_.make(of_experts, type, "logits");
    const std::array saved{x, t_.make(of_experts, Element::kF32, "scores"),
                           t_.make(of_experts, Element::kF32, "scores of the auxiliary loss"),
                           t_.make(of_experts, Element::kBool, "chosen experts")};
    probabilities = t_.apply({"probabilities", inputs, saved, false,
                              [this, weight = w.router](BackwardCall& c) {
                                c.results[0] = t_.make({rows_, hidden_}, s_.weights, "gradient");
                                c.results[1] = t_.make(weight->shape, s_.weights, "gradient of the weight");
                              }},
                             of_experts, type);
  }
  const Tensor map = t_.make({rows_, 2 * w.expert_count + 1}, Element::kI32, "map of rows");
  const std::array both{x, probabilities};
  const std::array saved{map, probabilities};
  return t_.apply({"permuted tokens", both, saved, false,
                   [this](BackwardCall& c) {
                     c.results[0] = t_.make({rows_, hidden_}, s_.weights, "gradient");
                     c.results[1] =
                         t_.make(c.saved[1]->shape, c.saved[1]->type, "gradient of the probabilities");
                   }},
                  {rows_ * w.experts_per_token, hidden_}, x->type);
}

/// Fp8Padding: quantized products pad the tokens of each expert.
std::int64_t MegatronDecoder::padded_rows(std::int64_t rows, const Layer& w) const {
  if (!quantizing_) return rows;
  const auto experts = static_cast<std::int64_t>(w.experts.size() / 2);
  const std::int64_t multiple = expert_row_multiple(s_.megatron.products.recipe);
  const std::int64_t each = (rows + experts - 1) / experts;
  return experts * ((each + multiple - 1) / multiple * multiple);
}

/// The rows of the rank's experts in their order, from those that the rank received. Ranks that divide an
/// expert gather the rows of all of them.
Tensor MegatronDecoder::dispatched(const Tensor& received, const Layer& w) {
  const std::int64_t rows = received->shape[0];
  const Tensor all = s_.megatron.expert_tensor > 1
                         ? resized(t_, received, rows * s_.megatron.expert_tensor, "gathered rows")
                         : received;
  return w.experts.size() > 2 ? moved(t_, all, "tokens by expert") : all;
}

/// The opposite. The sum over the ranks that divide an expert is in the type of the router's scores.
Tensor MegatronDecoder::combined(const Tensor& results, const Layer& w) {
  Tensor x = w.experts.size() > 2 ? moved(t_, results, "results by rank") : results;
  if (s_.megatron.expert_tensor == 1) return x;
  const std::int64_t rows = x->shape[0] / s_.megatron.expert_tensor;
  if (!s_.megatron.router_in_f32) return resized(t_, x, rows, "sum of results");
  x = to(t_, x, Element::kF32);
  x = resized(t_, x, rows, "sum of results");
  return to(t_, x, s_.weights);
}

Tensor MegatronDecoder::shared_expert(const Tensor& x, const Layer& w) {
  const auto region = [this, &w](const std::vector<Tensor>& in) {
    quantizing_ = w.quantized;
    const Tensor both = column_linear(in[0], w.shared_fc1, "mlp.shared_experts.linear_fc1", true);
    return row_linear(swiglu(both), w.shared_fc2, "mlp.shared_experts.linear_fc2");
  };
  return s_.megatron.recomputed.shared_expert ? t_.checkpointed_reentrant({x}, region) : region({x});
}

/// TEGroupedMLP.forward(): results of the rank's experts for their rows.
Tensor MegatronDecoder::routed_experts(const Tensor& sorted, const Layer& w) {
  const std::int64_t rows = sorted->shape[0], padded = padded_rows(rows, w);
  const Tensor input = padded > rows ? resized(t_, sorted, padded, "padded tokens") : sorted;
  const Element type = s_.megatron.router_in_f32 ? Element::kF32 : s_.weights;
  const Tensor scale = t_.make({padded}, type, "probabilities of the rows");
  const Tensor both = expert_linear(input, w, 0, "mlp.experts.linear_fc1");
  Tensor out;
  if (s_.megatron.recomputed.activation) {
    OutputCheckpoint activated(t_, {both, scale}, [this](const std::vector<Tensor>& in) {
      return std::vector{swiglu(in[0], in[1])};
    });
    out = expert_linear(activated.outputs()[0], w, 1, "mlp.experts.linear_fc2");
    activated.discard(out);
  } else {
    out = expert_linear(swiglu(both, scale), w, 1, "mlp.experts.linear_fc2");
  }
  return padded > rows ? resized(t_, out, rows, "results without padding") : out;
}

/// MoELayer.forward(), whose variables keep the permuted and the received tokens, and the results of the
/// experts before and after they are sent back.
Tensor MegatronDecoder::experts_of(const Tensor& x, const Layer& w) {
  quantizing_ = w.quantized;
  const bool exchanges = s_.megatron.expert_ranks > 1;
  const Tensor permuted = routed(x, w);
  const Tensor received = exchanges ? moved(t_, permuted, "tokens after all-to-all") : permuted;
  Tensor shared;
  if (w.shared_fc1) shared = shared_expert(x, w);
  const auto computed = [&] {
    const Tensor sorted = dispatched(received, w);
    const Tensor out = routed_experts(sorted, w);
    return combined(out, w);
  };
  const Tensor results = computed();
  Tensor out;
  {
    const ModuleScope scope(t_, "mlp");
    const Tensor returned = exchanges ? moved(t_, results, "results after all-to-all") : results;
    const std::array inputs{returned};
    out = t_.apply({"output",
                    inputs,
                    {},
                    false,
                    [this, rows = returned->shape[0]](BackwardCall& c) {
                      c.results[0] = t_.make({rows, hidden_}, s_.weights, "gradient of the results");
                    }},
                   {rows_, hidden_}, x->type);
  }
  return shared ? add(t_, out, shared) : out;
}

Tensor MegatronDecoder::experts(const Tensor& h, const Layer& w) {
  use_workspaces_of_experts();
  return normed_before(h, w.mlp_norm, "pre_mlp_layernorm", w, [this, &w](const Tensor& x) {
    const auto region = [this, &w](const std::vector<Tensor>& in) { return experts_of(in[0], w); };
    return s_.megatron.recomputed.experts ? t_.checkpointed_reentrant({x}, region) : region({x});
  });
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
