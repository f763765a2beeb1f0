// Attention of a Decoder: products of q, k and v in the forms that the models of transformers have, norms of
// q and k, rotary positions, the output projection. Attention itself: attention.hpp; the rest of a layer:
// decoder.cpp.
#include <array>
#include <tuple>
#include <utility>

#include "core/frameworks/kernels/liger.hpp"
#include "core/frameworks/kernels/unsloth.hpp"
#include "core/frameworks/models/decoder.hpp"

namespace trainhost::frameworks {

Tensor Decoder::rotated(const Tensor& x, const Rotary& r) {
  const ModuleScope scope(t_, "rotary_emb");
  const auto rotate = [&](const Tensor& part) {
    // (q * cos) + (rotate_half(q) * sin): cos and sin need no gradient, so each product saves only its table.
    Tensor left = mul(t_, part, r.cos);
    Tensor half;
    {
      const Tensor first = slice(t_, part, -1, part->shape[-1] / 2);
      const Tensor second = slice(t_, part, -1, part->shape[-1] / 2);
      half = concatenate(t_, {neg(t_, second), first});
    }
    const Tensor right = mul(t_, half, r.sin);
    half.reset();
    return add(t_, left, right);
  };
  if (!phi3_) return rotate(x);
  const Tensor rest =
      slice(t_, x, -1, 0);  // Phi-3 concatenates the part that it does not rotate, here nothing
  const Tensor turned = rotate(x);
  return concatenate(t_, {turned, rest});
}

std::pair<Tensor, Tensor> Decoder::rotated_pairs(const Tensor& q, const Tensor& k, const Rotary& r) {
  // apply_rotary_pos_emb() of GLM-4: the first half of each head is rotated, in pairs of neighbours.
  const ModuleScope scope(t_, "rotary_emb");
  const std::int64_t width = r.cos->shape[-1];
  const auto of_pairs = [&](const Tensor& x, const char* name) {
    return t_.make({1, 1, sequence_, width}, x->type, name);  // cos[..., :half].repeat_interleave(2)
  };
  const Tensor cos = of_pairs(r.cos, "cos"), sin = of_pairs(r.sin, "sin");
  const auto part = [&](const Tensor& x, std::int64_t n) { return slice(t_, x, -1, n); };
  const Tensor q_rot = part(q, width), q_pass = part(q, q->shape[-1] - width);
  const Tensor k_rot = part(k, width), k_pass = part(k, k->shape[-1] - width);
  const auto turned = [&](const Tensor& x) {
    Tensor left = mul(t_, x, cos);
    Tensor half;
    {
      const Tensor even = every_second(t_, x), odd = every_second(t_, x);
      half = stack_pairs(t_, neg(t_, odd), even);
    }
    const Tensor right = mul(t_, half, sin);
    half.reset();
    return add(t_, left, right);
  };
  Tensor q_embed = turned(q_rot), k_embed = turned(k_rot);
  q_embed = concatenate(t_, {q_embed, q_pass});
  k_embed = concatenate(t_, {k_embed, k_pass});
  return {std::move(q_embed), std::move(k_embed)};
}

AttentionOutputs Decoder::attended(const Tensor& x, const LayerWeights& w, const Context& context) {
  // self_attn is called with keyword arguments only, so stage 3 has no hook on its input.
  if (!zero3_) return attention(x, w, context);
  AttentionOutputs out;
  out.output = zero3_->call(
      "self_attn", x,
      [&](const Tensor& in) {
        out = attention(in, w, context);
        return std::move(out.output);
      },
      false);
  return out;
}

/// The input of a kernel's adapters after dropout; none without dropout.
Tensor Decoder::dropped(const LinearWeights& w, const Tensor& x) {
  const ModuleScope scope(t_, w.adapter.dropout);
  return s_.lora_dropout > 0 ? dropout(t_, x, s_.lora_dropout) : Tensor();
}

std::array<Tensor, 3> Decoder::query_key_value(const LayerWeights& w, const Tensor& x) {
  // LoRA_QKV knows no biases.
  if (s_.unsloth.on && all_adapted({&w.q, &w.k, &w.v}) && !w.q.bias) {
    const ModuleScope scope(t_, "self_attn.qkv");
    const std::array weights{for_kernel(w.q), for_kernel(w.k), for_kernel(w.v)};
    return s_.lora_dropout > 0 ? unsloth_qkv_dropped(t_, x, weights) : unsloth_qkv(t_, x, weights);
  }
  if (!s_.adapter_kernels.qkv || !all_adapted({&w.q, &w.k, &w.v})) {
    Tensor q = run(w.q, x), k = run(w.k, x), v = run(w.v, x);
    return {std::move(q), std::move(k), std::move(v)};
  }
  const Tensor after_dropout = dropped(w.q, x);
  const ModuleScope scope(t_, "self_attn.qkv");
  return axolotl_qkv(t_, x, after_dropout, {for_kernel(w.q), for_kernel(w.k), for_kernel(w.v)});
}

AttentionOutputs Decoder::attention(const Tensor& x, const LayerWeights& w, const Context& context) {
  const auto heads_first = [&](const Tensor& flat, std::int64_t heads) {
    return transpose(t_, view(t_, flat, {batch_, sequence_, heads, w.head_dim}), 1, 2);
  };
  AttentionInputs in;
  if (w.qkv.weight) {
    // Phi3Attention: three slices of one product. Their gradients are three tensors of its full size.
    const std::int64_t q = w.heads * w.head_dim, kv = w.kv_heads * w.head_dim;
    const Tensor fused = run(w.qkv, x);
    in.q = heads_first(slice(t_, fused, -1, q), w.heads);
    in.k = heads_first(slice(t_, fused, -1, kv), w.kv_heads);
    in.v = heads_first(slice(t_, fused, -1, kv), w.kv_heads);
  } else if (s_.adapter_kernels.qkv || s_.adapter_kernels.output || s_.unsloth.on) {
    // patch_self_attn_lora(), and the forward functions of Unsloth: all three products come before the norms.
    {
      const std::array<Tensor, 3> parts = query_key_value(w, x);
      in.q = heads_first(parts[0], w.heads);
      in.k = heads_first(parts[1], w.kv_heads);
      in.v = heads_first(parts[2], w.kv_heads);
    }
    if (w.q_norm && !gemma_) {
      in.q = transpose(t_, norm(transpose(t_, in.q, 1, 2), w.q_norm, "self_attn.q_norm"), 1, 2);
      in.k = transpose(t_, norm(transpose(t_, in.k, 1, 2), w.k_norm, "self_attn.k_norm"), 1, 2);
    } else if (w.q_norm) {
      in.q = norm(in.q, w.q_norm, "self_attn.q_norm");
      in.k = norm(in.k, w.k_norm, "self_attn.k_norm");
    }
  } else if (olmo_) {
    // Norms of the width of all heads, before these are separated.
    const Tensor q = norm(run(w.q, x), w.q_norm, "self_attn.q_norm");
    const Tensor k = norm(run(w.k, x), w.k_norm, "self_attn.k_norm");
    const Tensor v = run(w.v, x);
    in.q = heads_first(q, w.heads), in.k = heads_first(k, w.kv_heads), in.v = heads_first(v, w.kv_heads);
  } else {
    in.q = heads_first(run(w.q, x), w.heads);
    if (w.q_norm && !gemma_)
      in.q = transpose(t_, norm(transpose(t_, in.q, 1, 2), w.q_norm, "self_attn.q_norm"), 1, 2);
    in.k = heads_first(run(w.k, x), w.kv_heads);
    if (w.q_norm && !gemma_)
      in.k = transpose(t_, norm(transpose(t_, in.k, 1, 2), w.k_norm, "self_attn.k_norm"), 1, 2);
    in.v = heads_first(run(w.v, x), w.kv_heads);
    if (w.q_norm && gemma_) {
      in.q = norm(in.q, w.q_norm, "self_attn.q_norm");
      in.k = norm(in.k, w.k_norm, "self_attn.k_norm");
    }
  }
  if (s_.unsloth.on && w.rotary) {
    const ModuleScope scope(t_, "rotary_emb");
    std::tie(in.q, in.k) = unsloth_rope(t_, in.q, in.k);
  } else if (s_.liger.rotary && w.rotary) {
    const ModuleScope scope(t_, "rotary_emb");
    std::tie(in.q, in.k) = liger_rope(t_, in.q, in.k, context.rotary.cos, context.rotary.sin);
  } else if (glm4_) {
    std::tie(in.q, in.k) = rotated_pairs(in.q, in.k, context.rotary);
  } else if (w.rotary) {
    // Both results exist before either variable is assigned again.
    const auto rotate = [&](const Tensor& y) {
      return gpt_oss_ ? rotated_halves(y, context.rotary) : rotated(y, context.rotary);
    };
    Tensor q = rotate(in.q), k = rotate(in.k);
    if (olmo_) {
      // Its tables are in f32 in every type of the weights, and the rotated q and k are cast.
      const ModuleScope scope(t_, "rotary_emb");
      Tensor narrow_q = to(t_, q, in.q->type), narrow_k = to(t_, k, in.k->type);
      q = std::move(narrow_q), k = std::move(narrow_k);
    }
    in.q = std::move(q);
    in.k = std::move(k);
  }
  in.mask = context.mask;
  in.groups = w.heads / w.kv_heads;
  // repeat_kv() of transformers before 4.54.
  in.repeats_keys = (s_.unsloth.on && t_.grad_enabled) || s_.release >= TransformersRelease::k452;
  // The classes for flash-attn of these families before 4.48; that of Llama has grouped heads.
  if (s_.attention == AttentionKernel::kFlash2 && s_.release == TransformersRelease::k445 &&
      (a_.family == "mistral" || a_.family == "qwen2")) {
    const ModuleScope scope(t_, "self_attn");
    in.k = repeat_kv(t_, in.k, in.groups);
    in.v = repeat_kv(t_, in.v, in.groups);
    in.groups = 1;
  }
  // sdpa_attention_forward() of 4.48.
  in.copies_inputs = s_.release >= TransformersRelease::k452 && s_.release <= TransformersRelease::k446;
  // attn_logit_softcapping, which no kernel of SDPA has.
  if (seed_oss_) in.dropout = s_.dropout;
  in.soft_cap = a_.family == "gemma2" && s_.attention == AttentionKernel::kEager;
  AttentionOutputs out = w.sinks                                    ? attention_with_sinks(in, w.sinks)
                         : s_.attention == AttentionKernel::kEager  ? eager_attention(t_, in)
                         : s_.attention == AttentionKernel::kFlash2 ? flash_attention_2(t_, in)
                                                                    : sdpa_attention(t_, in);
  out.output = reshape(t_, out.output, {batch_, sequence_, w.heads * w.head_dim});
  if (s_.unsloth.on && w.o.lora_a) {
    const ModuleScope scope(t_, w.o.module);
    out.output = s_.lora_dropout > 0 ? unsloth_output_dropped(t_, out.output, for_kernel(w.o))
                                     : unsloth_output(t_, out.output, for_kernel(w.o));
  } else if (s_.adapter_kernels.output && w.o.lora_a) {
    const Tensor after_dropout = dropped(w.o, out.output);
    const ModuleScope scope(t_, w.o.module);
    out.output = axolotl_output(t_, out.output, after_dropout, for_kernel(w.o));
  } else {
    out.output = run(w.o, out.output);
  }
  if (seed_oss_) {
    const ModuleScope scope(t_, "self_attn");
    out.output = dropout(t_, out.output, s_.dropout);
  }
  return out;
}

}  // namespace trainhost::frameworks
