// Attention of transformers 5.23: eager_attention_forward() of its models, and sdpa_attention_forward() with
// the kernels of torch 2.15. Scores [B, heads, S, S] exist in eager attention and in the math kernel only.
// Other frameworks call sdpa_attention() with their own preparation.
#include "core/frameworks/autograd/attention.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trainhost::frameworks {
namespace {

enum class SdpaKernel { kFlash, kEfficient, kMath };

// The kernel that torch chooses without cuDNN. flash: compute capability 8.0 and higher, half precision, no
// mask and head dimensions of up to 256. efficient: rows of 16 bytes, and before 8.0 no bf16.
SdpaKernel kernel_for(Element type, std::int64_t head_dim, bool mask, bool ampere) {
  const bool half = type != Element::kF32;
  if (ampere && half && !mask && head_dim <= 256) return SdpaKernel::kFlash;
  if (!ampere && type == Element::kBF16) return SdpaKernel::kMath;
  return head_dim % (half ? 8 : 4) == 0 ? SdpaKernel::kEfficient : SdpaKernel::kMath;
}

std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// Memory in the order [B, S, heads, D], seen as [B, heads, S, D]: what the kernels return.
Shape token_major(const Shape& s) { return Shape{s[0], s[2], s[1], s[3]}.transposed(1, 2); }

// The backward kernel of flash attention accumulates dq in f32 and sums dk and dv of each query head.
void flash_backward_temporaries(Tape& t, const Shape& q, const Shape& k) {
  const auto n = [](std::int64_t x) { return static_cast<std::uint64_t>(x); };
  const std::uint64_t rows = n(q[0]) * n(q[1]) * n(rounded_up(q[2], 128));
  t.kernel_temporary(rows * n(rounded_up(q[3], 32)) * 4 + rows * 4 + (k[1] != q[1] ? q.count() * 4 : 0),
                     "dq in f32, row sums, dk and dv per query head");
}

/// What ring attention of torch allocates beside its kernels, on every rank (_templated_ring_attention() and
/// its backward pass, with the default rotation by an all-gather): the keys and values as one tensor, and
/// those of all ranks.
std::vector<Tensor> ring_keys(Tape& t, const Tensor& k, std::int64_t context) {
  if (context == 1) return {};
  const auto elements = static_cast<std::int64_t>(2 * k->shape.count());
  return {t.make({elements}, k->type, "keys and values"),
          t.make({context * elements}, k->type, "keys and values of all ranks")};
}

/// Gradients in f32: that of the queries, and those of keys and values, which go round the ranks: the sum so
/// far, the tensor that is sent, and the one that arrives.
std::vector<Tensor> ring_gradients(Tape& t, const Shape& q, const Shape& k, std::int64_t context) {
  if (context == 1) return {};
  std::vector<Tensor> out{t.make(elementwise(q), Element::kF32, "gradient of the queries, summed")};
  const auto elements = static_cast<std::int64_t>(2 * k.count());
  for (const char* name : {"gradients of keys and values, summed", "gradients of keys and values, sent",
                           "gradients of keys and values, received"})
    out.push_back(t.make({elements}, Element::kF32, name));
  return out;
}

Tensor flash(Tape& t, const AttentionInputs& in) {
  // _scaled_dot_product_flash_attention(): head dimensions are padded to a multiple of 8 before the node, so
  // the padded copies are saved. The result is sliced.
  const std::int64_t width = in.q->shape[-1];
  const Tensor q = pad_last(t, in.q, 8), k = pad_last(t, in.k, 8), v = pad_last(t, in.v, 8);
  const Shape shape = elementwise(q->shape);  // empty_like(q)
  // Saved for the backward pass, which computes the probabilities again from them: f32 per row, and the state
  // of the random numbers, also without dropout. Selective recomputation keeps them with the result.
  const bool kept = !in.recomputed;
  const Tensor log_sums = t.make_result({shape[0], shape[1], shape[2]}, Element::kF32, "log-sum-exp", kept);
  const Tensor counters = t.make_result({3}, Element::kI64, "random state", kept);
  const std::array inputs{q, k, v};
  const std::array saved{q, k, v, log_sums, counters};
  std::vector<Tensor> ring = ring_keys(t, k, in.context);
  // The outputs of the ranks' parts are merged in f32.
  if (in.context > 1) ring.push_back(t.make(shape, Element::kF32, "output, merged"));
  const Tensor out = t.apply({"output", inputs, saved, true,
                              [context = in.context](BackwardCall& c) {
                                const Shape &qs = c.saved[0]->shape, &ks = c.saved[1]->shape;
                                const auto keys = ring_keys(c.tape, c.saved[1], context);
                                const auto sums = ring_gradients(c.tape, qs, ks, context);
                                for (std::size_t i = 0; i < 3; ++i)
                                  c.results[i] =
                                      c.tape.make(elementwise(i ? ks : qs), c.saved[0]->type, "gradient");
                                flash_backward_temporaries(c.tape, qs, ks);
                              },
                              kept},
                             shape, q->type);
  return width == shape[-1] ? out : slice(t, out, -1, width);
}

/// A boolean mask as one that is added, with rows padded to eight columns.
Tensor additive_mask(Tape& t, const Tensor& mask, Element type) {
  if (!mask || mask->type != Element::kBool) return mask;
  // convert_boolean_attn_mask(): zeros and -inf in the type of q.
  const Tensor inverted = t.make(elementwise(mask->shape), Element::kBool, "mask, inverted");
  return t.make(elementwise(inverted->shape), type, "mask");
}

/// _scaled_dot_product_efficient_attention(): works in the order [B, S, heads, D], which its results and
/// gradients have whatever the strides of its inputs are. Rows of the log-sum-exp are padded to 32.
Tensor efficient(Tape& t, const AttentionInputs& in, const Tensor& mask) {
  Shape shape = in.q->shape;
  shape.size[3] = in.v->shape[3];
  shape = token_major(shape);
  const Tensor sums =
      t.make_result({shape[0], shape[1], rounded_up(shape[2], 32)}, Element::kF32, "log-sum-exp", true);
  const Tensor counters = t.make_result({2}, Element::kI64, "random state", true);
  const std::array inputs{in.q, in.k, in.v};
  std::array<Tensor, 6> saved{in.q, in.k, in.v, sums, counters, mask};
  return t.apply({"output", inputs, std::span(saved.data(), mask ? 6u : 5u), true,
                  [](BackwardCall& c) {
                    for (std::size_t i = 0; i < 3; ++i)
                      c.results[i] =
                          c.tape.make(token_major(c.saved[i]->shape), c.saved[0]->type, "gradient");
                    const Shape& s = c.saved[0]->shape;
                    const auto rows = static_cast<std::uint64_t>(s[0] * s[1] * s[2]);
                    const bool half = c.saved[0]->type != Element::kF32;
                    c.tape.kernel_temporary(rows * 4 + (half ? s.count() * 4 : 0), "dq in f32, row sums");
                  },
                  true},
                 shape, in.q->type);
}

/// _scaled_dot_product_attention_math: computes in f32, and materialises the scores.
Tensor math(Tape& t, const AttentionInputs& in, const Tensor& mask) {
  const Element type = in.q->type;
  const bool autocast = std::exchange(t.autocast_on, false);  // scaled_dot_product_attention() turns it off
  // The variables of the C++ function: the f32 copies exist until it returns. q and k are scaled by the root
  // of the factor each, for precision, which costs a copy of each.
  const Tensor q = to(t, in.q, Element::kF32), k = to(t, in.k, Element::kF32), v = to(t, in.v, Element::kF32);
  // The scaled q is a variable too, the scaled k is not.
  const Tensor scaled_q = mul_number(t, q);
  Tensor scores = matmul(t, scaled_q, mul_number(t, transpose(t, k, 2, 3)));
  if (mask) scores = add(t, scores, mask);
  scores = softmax(t, scores, "probabilities");
  const Tensor returned = to(t, scores, type);
  const Tensor out = matmul(t, scores, v);
  t.autocast_on = autocast;
  return to(t, out, type);
}

}  // namespace

Tensor repeat_kv(Tape& t, const Tensor& x, std::int64_t groups) {
  if (groups == 1) return x;
  const Shape& s = x->shape;
  const Tensor wide = expand(t, unsqueeze(t, x, 2), 2, groups);
  return reshape(t, wide, {s[0], s[1] * groups, s[2], s[3]});
}

AttentionOutputs eager_attention(Tape& t, const AttentionInputs& in) {
  const ModuleScope scope(t, "self_attn");
  // eager_attention_forward(): key_states and value_states are variables, attn_weights is assigned again, so
  // one of two successive scores is freed when the next exists, unless autograd saves it.
  const Tensor keys = repeat_kv(t, in.k, in.groups);
  const Tensor values = repeat_kv(t, in.v, in.groups);
  Tensor weights = matmul(t, in.q, transpose(t, keys, 2, 3));
  weights = mul_number(t, weights);
  if (in.soft_cap) {
    weights = div_number(t, weights);
    weights = tanh(t, weights);
    weights = mul_number(t, weights);
  }
  if (in.mask) weights = add(t, weights, in.mask);
  const Element type = in.q->type;
  // softmax(attn_weights, dtype=torch.float32).to(query.dtype): the variable keeps the scores while softmax()
  // works on a copy in f32; of f16 scores it makes none.
  Tensor scores = weights;
  if (in.f32_softmax && !t.autocast_on && scores->type == Element::kF16) {
    weights = softmax(t, scores, "probabilities", Element::kF32);
  } else {
    const Tensor wide = in.f32_softmax || t.autocast_on ? to(t, scores, Element::kF32) : scores;
    weights = softmax(t, wide, "probabilities");
  }
  if (!in.f32_softmax) scores.reset();  // GPT-2 casts in a statement of its own
  weights = to(t, weights, in.f32_softmax ? type : in.v->type);
  scores.reset();
  weights = dropout(t, weights, in.dropout);
  Tensor output = matmul(t, weights, values);
  output = transpose(t, output, 1, 2);
  return {contiguous(t, output), weights};
}

AttentionOutputs flash_attention_2(Tape& t, const AttentionInputs& given) {
  const ModuleScope scope(t, "self_attn");
  // Variables of flash_attention_forward(); where they are f32, autocast's type replaces them for the kernel.
  AttentionInputs in = given;
  in.mask.reset();
  in.q = t.lowered(in.q);
  in.k = t.lowered(in.k);
  in.v = t.lowered(in.v);
  const Tensor output = transpose(t, flash(t, in), 1, 2);
  return {contiguous(t, output), {}};
}

AttentionOutputs sdpa_attention(Tape& t, const AttentionInputs& given) {
  const ModuleScope scope(t, "self_attn");
  AttentionInputs in = given;
  // use_gqa_in_sdpa(): without a mask, and for head dimensions of up to 256, torch is given grouped heads,
  // which its kernels read as they are. Otherwise transformers repeats them.
  if (in.mask || in.repeats_keys || in.q->shape[-1] > 256) {
    in.k = repeat_kv(t, in.k, in.groups);
    in.v = repeat_kv(t, in.v, in.groups);
  }
  // Variables of sdpa_attention_forward(), in the type of the weights where autocast casts them for the
  // kernel.
  if (in.copies_inputs) {
    in.q = contiguous(t, in.q);
    in.k = contiguous(t, in.k);
    in.v = contiguous(t, in.v);
  }
  const Tensor keys = in.k, values = in.v;
  in.q = t.lowered(in.q);
  in.k = t.lowered(in.k);
  in.v = t.lowered(in.v);
  const SdpaKernel kernel = in.own_value_width
                                ? SdpaKernel::kEfficient
                                : kernel_for(in.q->type, in.q->shape[-1], bool(in.mask), t.options.ampere);
  Tensor output;
  if (kernel == SdpaKernel::kFlash) {
    output = flash(t, in);
  } else {
    Tensor mask = additive_mask(t, in.mask, in.q->type);
    if (kernel == SdpaKernel::kEfficient) {
      // pad_bias(): rows of the mask begin at multiples of 16 bytes. The copy is saved, the mask is not.
      if (mask && mask->shape[-1] % 8) {
        const Tensor narrow = mask;
        mask = t.make({mask->shape[0], 1, mask->shape[2], rounded_up(mask->shape[3], 8)}, mask->type,
                      "mask, padded");
      }
      output = efficient(t, in, mask);
    } else {
      output = math(t, in, mask);
    }
  }
  output = transpose(t, output, 1, 2);
  return {contiguous(t, output), {}};
}

}  // namespace trainhost::frameworks
