// Mixture of experts of Mixtral, Qwen3-MoE and gpt-oss in transformers 5.23, and the modules of experts of
// the first two before it: their routers, and
// grouped_mm_experts_forward(), which transformers takes on a GPU; adapters of experts as peft 0.21 adds
// them. N tokens, k experts per token, R = N * k rows in the order of the experts, E experts of width I. How
// many rows an expert has is not known, and decides no size.
#include <array>

#include "core/frameworks/kernels/liger.hpp"
#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {
namespace {

/// The factors of the adapters of all experts in the type of the weight: lhs [E, outputs, r], rhs [E, r,
/// inputs].
struct ExpertFactors {
  Tensor lhs, rhs;
};

ExpertFactors factors_of(Tape& t, const Tensor& a, const Tensor& b, const Tensor& weight) {
  const std::int64_t experts = weight->shape[0], rank = a->shape[0] / experts;
  const Tensor rhs = view(t, a, {experts, rank, a->shape[1]});
  const Tensor lhs = transpose(t, transpose(t, view(t, b, {b->shape[0], rank, experts}), 0, 2), 1, 2);
  return {to(t, lhs, weight->type), to(t, rhs, weight->type)};
}

/// baddbmm(): the weights of all experts with their adapters, one tensor of the size of the weights.
Tensor folded(Tape& t, const Tensor& weight, const ExpertFactors& f) {
  const std::array inputs{weight, f.lhs, f.rhs};
  const std::array saved{f.lhs, f.rhs};
  return t.apply({"adapted weight", inputs, saved, false,
                  [](BackwardCall& c) {
                    // A product, then its copy times the scale, for each factor.
                    for (std::size_t i = 0; i < 2; ++i) {
                      if (!c.needs(i + 1)) continue;
                      const Shape shape = c.saved[i]->shape.made_contiguous();
                      const Tensor product = c.tape.make(shape, c.grads[0]->type, "gradient");
                      c.results[i + 1] = c.tape.make(shape, c.grads[0]->type, "gradient");
                    }
                  }},
                 weight->shape, weight->type);
}

/// type: of the weights. Qwen3MoeTopKRouter returns them in that of the logits, MixtralTopKRouter in f32, and
/// modules of experts have them in that of the hidden states.
Routing route(Tape& t, Tensor logits, std::int64_t k, Element type) {
  const ModuleScope scope(t, "mlp.gate");
  Routing r;
  r.logits = std::move(logits);
  // softmax(logits.float()) and topk(): the probabilities [N, E] are saved in f32, the chosen ones by their
  // indices.
  Tensor probabilities;
  {
    const Tensor wide = to(t, r.logits, Element::kF32);
    probabilities = softmax(t, wide, "probabilities");
  }
  const Shape shape{r.logits->shape[0], k};
  r.experts = t.make(shape, Element::kI64, "experts");
  const Tensor chosen = t.apply({"weights", std::span(&probabilities, 1), std::span(&r.experts, 1), false,
                                 [before = probabilities->shape](BackwardCall& c) {
                                   c.results[0] = c.tape.make(before, Element::kF32, "gradient");
                                 }},
                                shape, Element::kF32);
  // router_top_value /= its sum. `before`: the quotient's gradients need the values that are overwritten.
  const Tensor total = sum(t, chosen);
  const Tensor before = t.make(shape, Element::kF32, "weights");  // the copy that autograd keeps
  const std::array inputs{chosen, total};
  const std::array saved{total, before};
  r.weights = t.apply_view({"weights", inputs, saved, false,
                            [](BackwardCall& c) {
                              const Shape& s = c.grads[0]->shape;
                              c.results[0] = c.tape.make(s, Element::kF32, "gradient");
                              c.results[1] = c.tape.make(s, Element::kF32, "gradient");
                            }},
                           chosen, shape);
  r.weights = to(t, r.weights, type);
  return r;
}

Tensor logits_of(Tape& t, const Tensor& tokens, const Tensor& router) {
  const ModuleScope scope(t, "mlp.gate");
  return linear(t, tokens, router);
}

/// GptOssTopKRouter: softmax() of the chosen logits, in their type.
Routing route_of_gpt_oss(Tape& t, const Tensor& tokens, const Tensor& router, const Tensor& bias,
                         std::int64_t k) {
  const ModuleScope scope(t, "mlp.router");
  Routing r;
  r.logits = linear(t, tokens, router, bias);
  const Shape shape{tokens->shape[0], k};
  r.experts = t.make(shape, Element::kI64, "experts");
  const Tensor chosen = t.apply({"weights", std::span(&r.logits, 1), std::span(&r.experts, 1), false,
                                 [before = r.logits->shape](BackwardCall& c) {
                                   c.results[0] =
                                       c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                                 }},
                                shape, r.logits->type);
  r.weights = softmax(t, chosen, "weights");
  return r;
}

/// [N, k, H] to [N, H].
Tensor sum_of_experts(Tape& t, const Tensor& x) {
  // The gradient is expanded to the k rows of a token: a view.
  const std::int64_t k = x->shape[1];
  return t.apply({"sum",
                  std::span(&x, 1),
                  {},
                  false,
                  [k](BackwardCall& c) {
                    const Tensor g = c.take();
                    c.results[0] = c.tape.alias(g, g->shape.unsqueezed(1).expanded(1, k));
                  }},
                 {x->shape[0], x->shape[2]}, x->type);
}

/// hidden_states[None, top_x]: rows of the tokens that an expert gets.
Tensor rows_of_expert(Tape& t, const Tensor& tokens, const Tensor& places) {
  return selected_rows(t, tokens, places);
}

/// routing_weights[top_x, idx, None]: [rows, 1].
Tensor weights_of_expert(Tape& t, const Tensor& weights, const Tensor& places) {
  return t.apply({"rows", std::span(&weights, 1), std::span(&places, 1), false,
                  [before = weights->shape](BackwardCall& c) {
                    Tensor zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    if (c.tape.options.subclass_gradients)  // as in selected_rows()
                      zeros = c.tape.make(before.made_contiguous(), c.grads[0]->type, "gradient");
                    c.results[0] = std::move(zeros);
                  }},
                 {places->shape[0], 1}, weights->type);
}

/// total.index_add_(0, top_x, rows): saves the rows too, of which the backward pass needs the shape.
Tensor add_rows(Tape& t, const Tensor& total, const Tensor& places, const Tensor& rows) {
  const std::array inputs{total, rows};
  const std::array saved{places, rows};
  return t.apply_view({"sum", inputs, saved, false,
                       [shape = rows->shape](BackwardCall& c) {
                         if (c.needs(1))
                           c.results[1] = c.tape.make(shape, c.grads[0]->type, "gradient of rows");
                         if (c.needs(0)) c.results[0] = c.take();
                       }},
                      total, total->shape);
}

}  // namespace

/// forward() of MixtralSparseMoeBlock and Qwen3MoeSparseMoeBlock before transformers 5: a loop over the
/// experts. Each gets an equal share of the rows; the first ones get one more where they do not divide.
Tensor Decoder::expert_modules(const Tensor& x, const LayerWeights& w) {
  const ModuleScope scope(t_, "mlp.experts");
  const std::int64_t tokens = batch_ * sequence_, k = w.experts_per_token, rows = tokens * k;
  const auto count = static_cast<std::int64_t>(w.expert_layers.size());
  const Tensor flat = view(t_, x, {tokens, hidden_});
  const Routing routing = route(t_, run(w.router_layer, flat), k, flat->type);
  Tensor total = t_.make({tokens, hidden_}, flat->type, "sum of the experts");
  const Tensor mask = t_.make({tokens, k, count}, Element::kI64, "mask of the experts");
  Tensor places, state, h;  // variables of the loop, which are assigned again
  for (std::int64_t e = 0; e < count; ++e) {
    const ExpertLayers& expert = w.expert_layers[static_cast<std::size_t>(e)];
    const std::int64_t own = rows / count + (e < rows % count ? 1 : 0);
    places = t_.make({own, 2}, Element::kI64, "rows of the expert");
    state = rows_of_expert(t_, flat, places);
    Tensor product;
    {
      const Tensor gate = silu(t_, run(expert.gate, state));
      const Tensor up = run(expert.up, state);
      product = mul(t_, gate, up);
    }
    {
      const Tensor out = run(expert.down, product);
      product.reset();
      h = mul(t_, out, weights_of_expert(t_, routing.weights, places));
    }
    total = add_rows(t_, total, places, to(t_, h, flat->type));
  }
  return view(t_, total, {batch_, sequence_, hidden_});
}

/// The modules of the router and of the experts. Both get the rows of all tokens, the experts also the
/// weights of the router. To stage 3 of ZeRO the block of Mixtral and Qwen3-MoE is a leaf, whose own call
/// gathers all weights in it (DEFAULT_LEAF_MODULE_CLASSES), so it calls no module but the one of gpt-oss.
Tensor Decoder::experts(const Tensor& x, const LayerWeights& w) {
  const ModuleScope scope(t_, "mlp.experts");
  const std::int64_t tokens = batch_ * sequence_, k = w.experts_per_token;
  const Tensor flat = view(t_, x, {tokens, hidden_});
  Routing routing;
  Tensor result;
  if (gpt_oss_) {
    routing.weights = module("mlp.router", flat, [&](const Tensor& in) {
      routing = route_of_gpt_oss(t_, in, w.router, w.router_bias, k);
      return routing.weights;
    });
    result = module("mlp.experts", flat, [&](const Tensor& in) { return stacked_experts(in, w, routing); });
  } else {
    const Tensor logits = logits_of(t_, flat, w.router);
    routing = route(t_, logits, k, a_.family == "qwen3_moe" ? logits->type : Element::kF32);
    result = stacked_experts(flat, w, routing);
  }
  return view(t_, result, {batch_, sequence_, hidden_});
}

Tensor Decoder::stacked_experts(const Tensor& flat, const LayerWeights& w, const Routing& routing) {
  const std::int64_t tokens = batch_ * sequence_, k = w.experts_per_token, rows = tokens * k;
  if (s_.liger.swiglu)
    return liger_experts(t_, flat, w.experts_up, w.experts_down, routing.experts, routing.weights);
  // ParamWrapper of peft registers a parametrization for each call, whose result it computes once to check
  // it.
  ExpertFactors up_factors, down_factors;
  if (w.experts_up_a) {
    up_factors = factors_of(t_, w.experts_up_a, w.experts_up_b, w.experts_up);
    t_.make(w.experts_up->shape, w.experts_up->type, "adapted weight, checked");
  }
  if (w.experts_down_a) {
    down_factors = factors_of(t_, w.experts_down_a, w.experts_down_b, w.experts_down);
    t_.make(w.experts_down->shape, w.experts_down->type, "adapted weight, checked");
  }
  // Variables of the function exist until it returns, as in Python: two orders of the rows (i64, R), the
  // selected hidden states [R, H] and the weighted results [R, H].
  const Tensor row_weights = view(t_, routing.weights, {rows});
  const Tensor sorted = t_.make({rows}, Element::kI64, "experts, sorted");
  const Tensor order = t_.make({rows}, Element::kI64, "order of the rows");
  Tensor selected;
  {
    const Tensor token = t_.make({rows}, Element::kI64, "token of each row");
    selected = selected_rows(t_, flat, token);
  }
  const Tensor selected_weights = selected_rows(t_, row_weights, order);
  const Tensor counted = t_.make({rows}, Element::kI32, "experts, sorted");
  const Tensor counts = t_.make({w.router->shape[0]}, Element::kI32, "tokens per expert");
  const Tensor offsets = t_.make({w.router->shape[0]}, Element::kI32, "offsets");
  // up [R, 2I], silu() of one half times the other, down [R, H]. `h` is proj_out, which is assigned again.
  Tensor biases;  // of each row; a variable that is assigned again
  if (w.experts_up_bias) biases = selected_rows(t_, w.experts_up_bias, sorted);
  const Tensor up = w.experts_up_a ? folded(t_, w.experts_up, up_factors) : expert_weight(w.experts_up);
  Tensor h = grouped_product(t_, to(t_, selected, w.experts_up->type), up, offsets);
  if (biases) h = add_in_place(t_, h, biases);
  if (gpt_oss_) {
    h = clamped_swiglu(h);
  } else {
    const std::int64_t width = h->shape[1] / 2;
    const std::vector<Tensor> parts = split(t_, h, {width, width});
    const Tensor gate = silu(t_, parts[0]);
    h = mul(t_, gate, parts[1]);
  }
  if (w.experts_down_bias) biases = selected_rows(t_, w.experts_down_bias, sorted);
  const Tensor down =
      w.experts_down_a ? folded(t_, w.experts_down, down_factors) : expert_weight(w.experts_down);
  h = grouped_product(t_, h, down, offsets);
  if (biases) h = add_in_place(t_, h, biases);
  Tensor weighted = mul(t_, h, unsqueeze(t_, selected_weights, 1));
  // inv_perm = empty_like(perm); inv_perm[perm] = arange(R): back to the order of the tokens.
  const Tensor back = t_.make({rows}, Element::kI64, "original order");
  t_.make({rows}, Element::kI64, "positions");  // written to it and freed
  weighted = selected_rows(t_, weighted, back);
  const Tensor total = sum_of_experts(t_, view(t_, weighted, {tokens, k, hidden_}));
  return to(t_, total, flat->type);
}

/// The stacked weights as a grouped product reads them: those of gpt-oss as they are, others transposed.
/// Stage 3 of ZeRO replaces the memory of a parameter; a view keeps that which was gathered.
Tensor Decoder::expert_weight(const Tensor& w) {
  if (!zero3_ || gpt_oss_) return w;
  return t_.apply_view(
      {"transposed", std::span(&w, 1), {}, false, [](BackwardCall& c) { c.results[0] = c.take(); }}, w,
      w->shape);
}

}  // namespace trainhost::frameworks
