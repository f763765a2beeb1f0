// The weights of a LitgptDecoder, in the order of model.parameters(): the head first, then the embedding, the
// layers and the last norm. Frozen weights are all but the adapters. The forward pass: decoder_litgpt.cpp.
#include <numeric>
#include <utility>

#include "core/frameworks/models/decoder_litgpt.hpp"
#include "core/frameworks/sharding/flat_fsdp.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::uint32_t kLoraQkv = kLoraQ | kLoraK | kLoraV, kLoraMlp = kLoraGate | kLoraUp | kLoraDown;

}  // namespace

LitgptDecoder::LitgptDecoder(Tape& tape, const model::Architecture& a, const StepSettings& settings)
    : t_(tape),
      s_(settings),
      batch_(settings.batch),
      sequence_(settings.sequence),
      hidden_(a.hidden),
      vocab_(static_cast<std::int64_t>(a.vocab)) {
  if (s_.fsdp.ranks && s_.fsdp.flat)
    fsdp_ = std::make_unique<FlatFsdp>(tape, s_.fsdp, a.layer_count());
  else if (s_.fsdp.ranks)
    fsdp_ = std::make_unique<Fsdp>(tape, s_.fsdp, a.layer_count());
  head_ = linear_weights("lm_head", hidden_, vocab_, a.head_bias, false);
  add_embedding();
  for (const model::LayerRun& run : a.layers)
    for (std::uint32_t i = 0; i < run.count; ++i) {
      t_.layer = static_cast<std::int32_t>(layers_.size());
      // parallel_residual: Phi, which has one norm per layer, and gpt_neox.
      add_layer(run.layer, run.layer.norms == 1 || a.family == "gpt_neox");
    }
  t_.layer = -1;
  final_norm_ = norm_weights("ln_f", a.final_norm, hidden_);
  if (s_.fsdp.flat) trained_ = fsdp_->start();
  const auto buffer = [&](const Shape& shape, Element type, const char* name) {
    return t_.new_storage(shape, type, Purpose::kBuffers, "", name);
  };
  const std::int64_t head_dim = layers_.front().head_dim;
  // max_seq_length is that of the longest example, so the tables have one row per token of the micro-batch.
  // MixedPrecision of FSDP1 has a type for buffers; in "bf16-true" too, where it casts no weights.
  const Element table = s_.fsdp.flat ? s_.weights : Element::kF32;
  cos_ = buffer({sequence_, head_dim}, table, "cos");
  sin_ = buffer({sequence_, head_dim}, table, "sin");
  ids_ = buffer({batch_, sequence_}, Element::kI64, "token ids");
  labels_ = buffer({batch_, sequence_}, Element::kI64, "labels");
}

Tensor LitgptDecoder::weight(const Shape& shape, const char* module, bool adapter) {
  const bool trained = adapter || s_.lora_rank == 0;
  if (fsdp_) {
    // fully_shard() of each block and of the model: what is in no layer belongs to the root. Frozen weights
    // are sharded and gathered like all others.
    const std::int32_t unit = t_.layer < 0 ? Fsdp::kRoot : t_.layer;
    const Fsdp::Weight w = fsdp_->parameter(unit, shape, s_.weights, module, s_.weights, trained);
    if (trained) trained_.push_back(w.shard);
    return w.full;
  }
  Tensor w = t_.parameter(shape, s_.weights, module, trained);
  if (trained) trained_.push_back(w);
  return w;
}

/// With quantized layers main() replaces the embedding by a StableEmbedding of bitsandbytes, which has a
/// LayerNorm; its variable old_embedding keeps the one before. The new weights are made after the others have
/// been frozen and the optimizer has its parameters: they require a gradient that no zero_grad() frees.
void LitgptDecoder::add_embedding() {
  if (!s_.nf4 || !s_.stable_embedding) {
    embedding_ = weight({vocab_, hidden_}, "wte");
    return;
  }
  replaced_ = t_.new_storage({vocab_, hidden_}, s_.weights, Purpose::kWeights, "wte", "replaced weight");
  embedding_ = t_.parameter({vocab_, hidden_}, s_.weights, "wte", true);
  embedding_norm_ = {"wte", t_.parameter({hidden_}, s_.weights, "wte", true),
                     t_.parameter({hidden_}, s_.weights, "wte", true)};
}

LitgptDecoder::Linear LitgptDecoder::linear_weights(const char* module, std::int64_t inputs,
                                                    std::int64_t outputs, bool bias, bool adapted) {
  Linear w;
  w.module = module;
  if (s_.nf4)
    w.nf4 = bitsandbytes_weight(t_, {outputs, inputs}, s_.weights, module, s_.double_quantized);
  else
    w.weight = weight({outputs, inputs}, module);
  if (bias) w.bias = weight({outputs}, module);
  if (s_.lora_rank && adapted) {
    w.lora_a = weight({s_.lora_rank, inputs}, module, true);
    w.lora_b = weight({outputs, s_.lora_rank}, module, true);
  }
  return w;
}

LitgptDecoder::Norm LitgptDecoder::norm_weights(const char* module, model::NormKind kind,
                                                std::int64_t width) {
  Norm w;
  w.module = module;
  if (kind == model::NormKind::kNone) return w;
  w.weight = weight({width}, module);
  if (kind == model::NormKind::kLayer) w.bias = weight({width}, module);
  return w;
}

void LitgptDecoder::add_layer(const model::Layer& l, bool parallel) {
  const model::Attention& a = l.attention;
  const auto q = static_cast<std::int64_t>(a.q_width()), kv = static_cast<std::int64_t>(a.k_width());
  const std::int64_t width = l.mlp.width;
  Layer w;
  w.heads = a.heads;
  w.kv_heads = a.kv_heads;
  w.head_dim = a.head_dim;
  w.parallel = parallel;
  w.norm_1 = norm_weights("norm_1", l.norm, hidden_);
  w.qkv = linear_weights("attn.qkv", hidden_, q + 2 * kv, a.q_bias, false);
  // LoRAQKVLinear: the rows of A are those of the adapted ones of q, k and v, the rows of B their outputs.
  const std::uint32_t adapted = s_.lora_rank ? s_.lora_targets & kLoraQkv : 0;
  if (adapted & kLoraQ) w.adapted.push_back(q);
  if (adapted & kLoraK) w.adapted.push_back(kv);
  if (adapted & kLoraV) w.adapted.push_back(kv);
  if (adapted) {
    const std::int64_t outputs = std::accumulate(w.adapted.begin(), w.adapted.end(), std::int64_t{0});
    const auto count = static_cast<std::int64_t>(w.adapted.size());
    w.qkv.lora_a = weight({count * s_.lora_rank, hidden_}, "attn.qkv", true);
    w.qkv.lora_b = weight({outputs, s_.lora_rank}, "attn.qkv", true);
    // lora_ind, a buffer: which columns of qkv the adapter adds to. Not needed where it adds to all.
    if (adapted != kLoraQkv)
      w.columns = t_.new_storage({outputs}, Element::kI64, Purpose::kBuffers, "attn.qkv",
                                 "columns of the adapted outputs");
  }
  w.proj = linear_weights("attn.proj", q, hidden_, a.o_bias, (s_.lora_targets & kLoraO) != 0);
  if (a.qk_norm != model::NormKind::kNone) {
    w.norm_q = norm_weights("attn.norm_q", l.norm, a.head_dim);
    w.norm_k = norm_weights("attn.norm_k", l.norm, a.head_dim);
  }
  if (l.norms > 1) w.norm_2 = norm_weights("norm_2", l.norm, hidden_);
  // lora_mlp adapts all matrices of the MLP or none.
  const bool mlp = (s_.lora_targets & kLoraMlp) == kLoraMlp;
  w.fc_1 = linear_weights(l.mlp.gated ? "mlp.fc_1" : "mlp.fc", hidden_, width, l.mlp.up_bias, mlp);
  if (l.mlp.gated) w.fc_2 = linear_weights("mlp.fc_2", hidden_, width, l.mlp.up_bias, mlp);
  w.down = linear_weights("mlp.proj", width, hidden_, l.mlp.down_bias, mlp);
  layers_.push_back(std::move(w));
}

}  // namespace trainhost::frameworks
