// GPT-2: learned positions, LayerNorm, fused q, k and v, an MLP with gelu_new written as operators.
#include "core/frameworks/decoder.hpp"

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

Tensor Decoder::gpt2_layer(const Tensor& input, const LayerWeights& w, const Context& context) {
  Tensor residual = input;
  Tensor x;
  {
    const ModuleScope scope(t_, "ln_1");
    x = layer_norm(t_, input, w.norms[0], w.norm_shifts[0]);
  }
  AttentionOutputs attended;
  {
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
    attended = s_.attention == AttentionKernel::kEager    ? eager_attention(t_, in)
               : s_.attention == AttentionKernel::kFlash2 ? flash_attention_2(t_, in)
                                                          : sdpa_attention(t_, in);
    attended.output = reshape(t_, attended.output, {batch_, sequence_, width});
    attended.output = run(w.o, attended.output);
    const ModuleScope scope(t_, "attn.resid_dropout");
    attended.output = dropout(t_, attended.output, s_.dropout);
  }
  {
    const ModuleScope scope(t_, "attn");
    x = add(t_, attended.output, residual);
  }
  residual = x;
  {
    const ModuleScope scope(t_, "ln_2");
    x = layer_norm(t_, x, w.norms[1], w.norm_shifts[1]);
  }
  Tensor h = run(w.up, x);
  h = gelu_new(t_, h);
  h = run(w.down, h);
  {
    const ModuleScope scope(t_, "mlp.dropout");
    h = dropout(t_, h, s_.dropout);
  }
  const ModuleScope scope(t_, "mlp");
  return add(t_, residual, h);
}

}  // namespace trainhost::frameworks
