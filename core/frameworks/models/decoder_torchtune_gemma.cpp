// What Gemma, Gemma 2 and Phi-3 of torchtune (main branch, commit bd2a0fc) have of their own: norms with 1 +
// weight in f32, the scaled embedding, attention with capped scores, and a rotary embedding in f32. The rest
// is that of its Llama: decoder_torchtune.cpp.
#include <utility>

#include "core/frameworks/models/decoder_torchtune.hpp"

namespace trainhost::frameworks {

/// GemmaNormEmbeddings: times a scalar, which is in host memory on a GPU and is counted nevertheless.
Tensor TorchtuneDecoder::embedded() {
  const Tensor rows = embedding(t_, ids_, embedding_);
  const Tensor scale = t_.make({}, rows->type, "scale");
  return mul(t_, rows, scale);
}

/// Gemma2FinalNorm caps the hidden states, where other software caps the logits.
Tensor TorchtuneDecoder::last_norm(const Tensor& x) {
  Tensor y = norm(x, final_norm_, "norm");
  if (!gemma2_) return y;
  const ModuleScope scope(t_, "norm");
  y = div_number(t_, y);
  y = tanh(t_, y);
  return mul_number(t_, y);
}

Tensor TorchtuneDecoder::rotated_halves_in_f32(const Tensor& x, const Layer& w) {
  // Phi3RotaryPositionalEmbeddings.forward(): products with cos and sin in f32, whose views are saved.
  const ModuleScope scope(t_, "attn.pos_embeddings");
  const std::int64_t rows = s_.packed ? batch_ : 1, dim = w.head_dim, half = dim / 2;
  Tensor table = angles_of(w);
  if (s_.packed) table = t_.make({batch_, sequence_, 2 * dim}, Element::kF32, "cos and sin of the tokens");
  const Tensor angles = t_.alias(table, {rows, sequence_, 1, 2 * dim});
  const Tensor cos = slice(t_, angles, -1, dim), sin = slice(t_, angles, -1, dim);
  const Tensor first = slice(t_, x, -1, half), second = slice(t_, x, -1, half);
  const Tensor turned = concatenate(t_, {neg(t_, second), first});
  Tensor out;
  {
    const Tensor left = mul(t_, x, cos), right = mul(t_, turned, sin);
    out = add(t_, left, right);
  }
  return to(t_, out, x->type);
}

/// The mask of a causal layer in f32, [S, S], and its temporaries.
Tensor TorchtuneDecoder::causal_mask() {
  const Shape square{sequence_, sequence_};
  Tensor mask;
  {
    Tensor allowed;
    {
      const Tensor ones = t_.make(square, Element::kBool, "mask of ones");
      allowed = t_.make(square, Element::kBool, "allowed positions");
    }
    const Tensor refused = t_.make(square, Element::kBool, "refused positions");
    mask = t_.make(square, Element::kF32, "mask");
  }
  return mask;
}

/// Gemma2Attention.forward(): scores in the type of x, capped, then with the mask in f32. Its variables exist
/// until it returns.
Tensor TorchtuneDecoder::capped_attention(const Tensor& x, const Layer& w) {
  const auto heads = [&](const Tensor& flat, std::int64_t count) {
    return view(t_, flat, {batch_, sequence_, count, w.head_dim});
  };
  Tensor q = heads(run(w.q, x), w.heads);
  q = transpose(t_, rotated(std::exchange(q, {}), w), 1, 2);
  Tensor k = run(w.k, x), v = run(w.v, x);
  const ModuleScope scope(t_, "attn");
  k = heads(k, w.kv_heads);
  k = rotated(std::exchange(k, {}), w);
  v = heads(v, w.kv_heads);
  const std::int64_t times = w.heads / w.kv_heads;
  const auto for_all_heads = [&](const Tensor& y) {
    const Tensor wide = expand(t_, unsqueeze(t_, y, 3), 3, times);
    return reshape(t_, wide, {batch_, sequence_, w.heads, w.head_dim});
  };
  k = for_all_heads(k);
  v = for_all_heads(v);
  k = transpose(t_, k, 1, 2);
  v = transpose(t_, v, 1, 2);
  q = mul_number_in_place(t_, q);
  Tensor output = matmul(t_, q, transpose(t_, k, 2, 3));
  Tensor allowed = causal_mask();
  Tensor ones, window;
  if (w.window) {
    const Shape square{sequence_, sequence_};
    ones = t_.make(square, Element::kF32, "mask of ones");
    {
      const Tensor upper = t_.make(square, Element::kF32, "positions above"),
                   lower = t_.make(square, Element::kF32, "positions below");
      window = t_.make(square, Element::kF32, "window");
    }
    const Tensor inside = t_.make(square, Element::kBool, "positions in the window");
    allowed = t_.make(square, Element::kF32, "mask");
  }
  output = div_number(t_, output);
  output = tanh(t_, output);
  output = mul_number(t_, output);
  output = add(t_, output, allowed);
  {
    const Tensor weights = softmax(t_, output);
    output = to(t_, weights, x->type);
  }
  output = matmul(t_, output, v);
  output = contiguous(t_, transpose(t_, output, 1, 2));
  output = view(t_, output, {batch_, sequence_, w.heads * w.head_dim});
  return run(w.output, output);
}

}  // namespace trainhost::frameworks
