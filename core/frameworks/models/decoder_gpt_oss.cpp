// gpt-oss of transformers 5.24 where it differs from Llama: half tables of the rotary embedding, eager
// attention with a sink per head, whose scores exist, and the clamped activation of its experts. Layer and
// experts: decoder.cpp and decoder_experts.cpp; weights in MXFP4 are those that transformers dequantizes to
// train.
#include <array>
#include <span>

#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {
namespace {

/// max(dim=-1, keepdim=True).values: [..., 1].
Tensor largest(Tape& t, const Tensor& x) {
  Shape shape = x->shape;
  shape.size[shape.dims - 1] = 1;
  shape = shape.made_contiguous();
  const Tensor indices = t.make(shape, Element::kI64, "indices of the maxima");
  return t.apply({"largest", std::span(&x, 1), std::span(&indices, 1), false,
                  [before = x->shape.made_contiguous()](BackwardCall& c) {
                    // value_selecting_reduction_backward(): zeros, into which the gradient is scattered.
                    Tensor zeros = c.tape.make(before, c.grads[0]->type, "gradient");
                    if (c.tape.options.subclass_gradients)  // scatter() instead of scatter_()
                      zeros = c.tape.make(before, c.grads[0]->type, "gradient");
                    c.results[0] = std::move(zeros);
                  }},
                 shape, x->type);
}

/// clamp() with an upper bound, and a lower one where `both`.
Tensor clamp(Tape& t, const Tensor& x, bool both) {
  return t.apply({"clamped", std::span(&x, 1), std::span(&x, 1), false,
                  [both](BackwardCall& c) {
                    // clamp_backward(): where(self <= max, grad, 0), of both bounds the conjunction.
                    const Shape shape = elementwise(c.saved[0]->shape);
                    const Tensor zero = c.tape.make({}, c.grads[0]->type, "zero");
                    Tensor inside = c.tape.make(shape, Element::kBool, "inside the bounds"), upper;
                    if (both) upper = c.tape.make(shape, Element::kBool, "inside the bounds");
                    Tensor conjunction;
                    if (both && c.tape.options.subclass_gradients)  // logical_and() instead of logical_and_()
                      conjunction = c.tape.make(shape, Element::kBool, "inside the bounds");
                    c.results[0] = c.tape.make(elementwise(c.grads[0]->shape), c.grads[0]->type, "gradient");
                  }},
                 elementwise(x->shape), x->type);
}

Tensor sigmoid(Tape& t, const Tensor& x) {
  return t.apply({"sigmoid",
                  std::span(&x, 1),
                  {},
                  true,
                  [](BackwardCall& c) {
                    c.results[0] = c.tape.make(elementwise(c.grads[0]->shape), c.grads[0]->type, "gradient");
                  }},
                 elementwise(x->shape), x->type);
}

}  // namespace

/// _apply_rotary_emb(): x: [B, heads, S, D]; tables: [1, 1, S, D / 2].
Tensor Decoder::rotated_halves(const Tensor& x, const Rotary& r) {
  const ModuleScope scope(t_, "rotary_emb");
  const std::int64_t half = x->shape[-1] / 2;
  const std::vector<Tensor> parts = split(t_, x, {half, half});
  Tensor first, second;
  {
    const Tensor left = mul(t_, parts[0], r.cos);
    const Tensor right = mul(t_, parts[1], r.sin);
    first = subtract(t_, left, right);
  }
  {
    const Tensor left = mul(t_, parts[1], r.cos);
    const Tensor right = mul(t_, parts[0], r.sin);
    second = add(t_, left, right);
  }
  return concatenate(t_, {first, second});
}

AttentionOutputs Decoder::attention_with_sinks(const AttentionInputs& in, const Tensor& sinks) {
  const ModuleScope scope(t_, "self_attn");
  // eager_attention_forward(): attn_weights keeps the scores until it is assigned again, after the softmax of
  // scores and sinks together.
  const auto repeated = [&](const Tensor& x) {
    if (in.groups == 1) return x;
    const Shape& s = x->shape;
    return reshape(t_, expand(t_, unsqueeze(t_, x, 2), 2, in.groups), {s[0], s[1] * in.groups, s[2], s[3]});
  };
  const Tensor keys = repeated(in.k);
  const Tensor values = repeated(in.v);
  Tensor weights = matmul(t_, in.q, transpose(t_, keys, 2, 3));
  weights = mul_number(t_, weights);
  weights = add(t_, weights, in.mask);
  const Tensor heads = view(t_, sinks, {1, sinks->shape[0], 1, 1});
  const Tensor columns = t_.apply_view(
      {"expand", std::span(&heads, 1), {}, false, [](BackwardCall& c) { c.results[0] = c.take(); }}, heads,
      heads->shape.expanded(0, batch_).expanded(2, sequence_));
  Tensor combined = concatenate(t_, {weights, columns});
  {
    const Tensor most = largest(t_, combined);
    combined = subtract(t_, combined, most);
  }
  const Tensor probabilities = softmax(t_, combined, "probabilities");
  const Tensor scores = slice(t_, probabilities, -1, sequence_);
  weights = to(t_, scores, in.v->type);
  const Tensor output = transpose(t_, matmul(t_, weights, values), 1, 2);
  return {contiguous(t_, output), weights};
}

/// GptOssExperts._apply_gate(): (up + 1) * gate * sigmoid(gate * alpha), of gate and up in turn: [R, 2I].
Tensor Decoder::clamped_swiglu(const Tensor& gate_up) {
  Tensor gate = every_second(t_, gate_up), up = every_second(t_, gate_up);
  gate = clamp(t_, gate, false);
  up = clamp(t_, up, true);
  Tensor glu;
  {
    Tensor slope = mul_number(t_, gate);
    slope = sigmoid(t_, slope);
    glu = mul(t_, gate, slope);
  }
  const Tensor shifted = add_number(t_, up);
  return mul(t_, shifted, glu);
}

}  // namespace trainhost::frameworks
