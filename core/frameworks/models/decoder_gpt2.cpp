// GPT-2: learned positions, LayerNorm, fused q, k and v, an MLP with gelu_new written as operators.
#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {
namespace {

// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
Tensor gelu_new(Tape& t, const Tensor& x) {
  const ModuleScope scope(t, "mlp.act");
  const Tensor half = mul_number(t, x);
  Tensor inner;
  {
    const Tensor wide = t.autocast_on ? to(t, x, Element::kF32) : x;
    inner = pow(t, wide);
  }
  inner = mul_number(t, inner);
  inner = add(t, x, inner);
  inner = mul_number(t, inner);
  inner = tanh(t, inner);
  inner = add_number(t, inner);
  return mul(t, half, inner);
}

}  // namespace

AttentionOutputs Decoder::gpt2_attention(const Tensor& x, const LayerWeights& w, const Context& context) {
  const std::int64_t width = w.heads * w.head_dim;
  const Tensor fused = run(w.qkv, x);
  const std::vector<Tensor> parts = split(t_, fused, {width, width, width});
  const auto heads_first = [&](const Tensor& flat) {
    return transpose(t_, view(t_, flat, {batch_, sequence_, w.heads, w.head_dim}), 1, 2);
  };
  AttentionInputs in;
  in.k = heads_first(parts[1]);
  in.v = heads_first(parts[2]);
  in.q = heads_first(parts[0]);
  in.mask = context.mask;
  in.f32_softmax = false;
  in.dropout = s_.dropout;
  AttentionOutputs out = s_.attention == AttentionKernel::kEager    ? eager_attention(t_, in)
                         : s_.attention == AttentionKernel::kFlash2 ? flash_attention_2(t_, in)
                                                                    : sdpa_attention(t_, in);
  out.output = reshape(t_, out.output, {batch_, sequence_, width});
  out.output = run(w.o, out.output);
  out.output = dropout_module("attn.resid_dropout", out.output);
  return out;
}

Tensor Decoder::gpt2_layer(const Tensor& input, const LayerWeights& w, const Context& context) {
  const auto normed = [&](const Tensor& x, std::size_t i) {
    return module(kGpt2NormModules[i], x, [&](const Tensor& in) {
      const ModuleScope scope(t_, kGpt2NormModules[i]);
      return layer_norm(t_, in, w.norms[i], w.norm_shifts[i]);
    });
  };
  Tensor residual = input;
  Tensor x = normed(input, 0);
  AttentionOutputs attended;
  attended.output = module("attn", x, [&](const Tensor& in) {
    attended = gpt2_attention(in, w, context);
    return std::move(attended.output);
  });
  {
    const ModuleScope scope(t_, "attn");
    x = add(t_, attended.output, residual);
  }
  residual = x;
  x = normed(x, 1);
  const Tensor h = module("mlp", x, [&](const Tensor& in) {
    Tensor y = run(w.up, in);
    y = module("mlp.act", y, [&](const Tensor& gate) { return gelu_new(t_, gate); });
    y = run(w.down, y);
    return dropout_module("mlp.dropout", y);
  });
  const ModuleScope scope(t_, "mlp");
  return add(t_, residual, h);
}

}  // namespace trainhost::frameworks
