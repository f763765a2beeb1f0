// The model that arguments of Megatron-LM describe: with SwiGLU the fields of a Llama, with experts, latent
// attention or an MLP of two matrices the text of a config.json of a family with the same tensors.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"
#include "core/model/model_names.hpp"
#include "core/runfile/named_values.hpp"

namespace trainhost::framework_files {
namespace {

std::uint64_t model_number(const Job& job, const char* key, std::uint64_t otherwise) {
  const Given* given = job.find(key);
  return given ? count_of(*given) : otherwise;
}

/// Megatron's own default: 4 x hidden, or two thirds of it with SwiGLU, a multiple of 64.
void megatron_finish_mlp(Job& job) {
  const Given* hidden = job.find("model.hidden_size");
  if (!hidden) return;
  job.set_default("model.intermediate_size", std::to_string(count_of(*hidden) * 8 / 3 / 64 * 64),
                  "default of Megatron-LM");
}

/// The vocabulary of a known tokenizer: GPT-2's, or that of the model which a tokenizer of the Hub is named
/// after. Models have up to 0.2 % more words than their tokenizers.
void vocabulary_of_tokenizer(Job& job) {
  constexpr const char* kOfGpt2 = "50257";
  const Given *type = job.find("@megatron.tokenizer"), *name = job.find("@megatron.tokenizer_name");
  if (!type || job.find("model.vocab_size")) return;
  if (type->value == "GPT2BPETokenizer") return job.set_default("model.vocab_size", kOfGpt2, *type);
  if (!name || (type->value != "HuggingFaceTokenizer" && type->value != "HFTokenizer")) return;
  const ModelSpec* model = runfile::find_preset(preset_of(name->value));
  if (model) job.set_default("model.vocab_size", std::to_string(model->vocab), *name);
}

/// The tokenizer decides the vocabulary; NullTokenizer adds the end of a document to --vocab-size.
void megatron_finish_vocabulary(Job& job) {
  if (!job.find("@megatron.padded_vocab")) vocabulary_of_tokenizer(job);
  const Given *padded = job.find("@megatron.padded_vocab"), *tokenizer = job.find("@megatron.tokenizer"),
              *vocab = job.find("model.vocab_size");
  if (!padded && !(vocab && tokenizer && tokenizer->value == "NullTokenizer")) return;
  Given size = padded ? *padded : *vocab;
  if (!padded) size.value = std::to_string(checked_add(count_of(size), 1));
  job.erase("model.vocab_size");
  job.set_default("model.vocab_size", size.value, size);
}

void megatron_finish_heads(Job& job) {
  // --num-query-groups counts only with --group-query-attention, and is 1 without a value.
  const Given *grouped = job.find("@megatron.grouped"), *groups = job.find("@megatron.query_groups");
  const Given* heads = job.find("model.num_attention_heads");
  if (grouped)
    job.set_default("model.num_key_value_heads", groups ? groups->value : "1", groups ? *groups : *grouped);
  else if (heads)
    job.set_default("model.num_key_value_heads", heads->value, "without --group-query-attention");
}

/// A list of Python of zeros and ones, as --moe-layer-freq has them: "([0]*3+[1]*58)", "[0,1]*24".
class LayerPattern {
 public:
  static constexpr std::size_t kMost = 1 << 16;  // layers

  explicit LayerPattern(std::string_view text) : rest_(text) {}

  /// Per layer, whether it has experts; nullopt for another text.
  std::optional<std::vector<bool>> read() {
    std::optional<std::vector<bool>> all = sum();
    return all && rest_.empty() ? all : std::nullopt;
  }

 private:
  bool take(char c) {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return true;
  }

  std::optional<std::size_t> number() {
    std::size_t n = 0;
    const auto [end, failed] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
    if (failed != std::errc{}) return {};
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return n;
  }

  std::optional<std::vector<bool>> sum() {
    std::optional<std::vector<bool>> all = product();
    while (all && take('+')) {
      const std::optional<std::vector<bool>> more = product();
      if (!more || all->size() + more->size() > kMost) return {};
      all->insert(all->end(), more->begin(), more->end());
    }
    return all;
  }

  std::optional<std::vector<bool>> product() {
    std::optional<std::vector<bool>> one = list();
    while (one && take('*')) {
      const std::optional<std::size_t> times = number();
      if (!times || *times > kMost / std::max<std::size_t>(1, one->size())) return {};
      std::vector<bool> all;
      for (std::size_t i = 0; i < *times; ++i) all.insert(all.end(), one->begin(), one->end());
      one = std::move(all);
    }
    return one;
  }

  std::optional<std::vector<bool>> list() {
    if (++depth_ > 16) return {};
    if (take('(')) {
      std::optional<std::vector<bool>> inside = sum();
      return inside && take(')') ? inside : std::nullopt;
    }
    if (!take('[')) return {};
    std::vector<bool> out;
    do {
      const std::optional<std::size_t> kind = number();
      if (!kind || *kind > 1) return {};
      out.push_back(*kind == 1);
    } while (take(','));
    return take(']') ? std::optional(std::move(out)) : std::nullopt;
  }

  std::string_view rest_;
  int depth_ = 0;
};

/// Layers without experts in front of those with them; none if the pattern is another one. Beside a list, a
/// number n: every n-th layer has experts, from the first on.
std::optional<std::uint64_t> dense_layers(const Job& job) {
  const Given* pattern = job.find("@megatron.sparse_layers");
  if (!pattern || pattern->value == "1") return 0;
  if (pattern->value.find('[') == std::string::npos) return count_of(*pattern), std::nullopt;
  const std::optional<std::vector<bool>> sparse = LayerPattern(pattern->value).read();
  if (!sparse)
    throw usage_error(fmt::format("{} = {}: expected a list of a 0 or 1 per layer", pattern->key,
                                  escaped(pattern->value, 80)),
                      "for example \"([0]*3+[1]*58)\"", pattern->where);
  const std::uint64_t layers = model_number(job, "model.num_hidden_layers", 1);
  if (sparse->size() != layers)
    throw usage_error(fmt::format("{} = {} is for {} layers, but there are {}", pattern->key,
                                  escaped(pattern->value, 80), sparse->size(), layers),
                      "make both equal", pattern->where);
  const auto first = std::ranges::find(*sparse, true);
  if (first == sparse->end() || std::find(first, sparse->end(), false) != sparse->end()) return {};
  return static_cast<std::uint64_t>(first - sparse->begin());
}

/// What every family has: sizes, heads, tied embedding.
std::string common_fields(const Job& job) {
  const std::uint64_t heads = model_number(job, "model.num_attention_heads", 1),
                      hidden = model_number(job, "model.hidden_size", 1);
  const Given* groups = job.find("@megatron.query_groups");
  const std::uint64_t kv = job.find("@megatron.grouped") ? groups ? count_of(*groups) : 1 : heads;
  return fmt::format(
      R"("num_hidden_layers": {}, "hidden_size": {}, "num_attention_heads": {}, "num_key_value_heads": {}, )"
      R"("tie_word_embeddings": {}, "max_position_embeddings": {})",
      model_number(job, "model.num_hidden_layers", 1), hidden, heads, kv,
      job.find("model.tie_word_embeddings") ? "false" : "true",
      model_number(job, "model.max_position_embeddings", 1));
}

std::uint64_t head_width(const Job& job) {
  return model_number(job, "model.head_dim",
                      model_number(job, "model.hidden_size", 1) /
                          std::max<std::uint64_t>(1, model_number(job, "model.num_attention_heads", 1)));
}

/// DeepSeek V3 with latent attention; else the family with these norms, biases and shared experts. "" if
/// there is none.
std::string config_with_experts(const Job& job) {
  const Given* experts = job.find("@megatron.experts");
  // Latent attention without experts: the layers of DeepSeek V3 before those with experts.
  const std::optional<std::uint64_t> dense =
      experts ? dense_layers(job) : model_number(job, "model.num_hidden_layers", 1);
  if (!dense || !job.find("@megatron.swiglu")) return "";
  const std::uint64_t hidden = model_number(job, "model.hidden_size", 1),
                      count = experts ? count_of(*experts) : 1,
                      width = model_number(job, "model.intermediate_size", hidden * 8 / 3 / 64 * 64),
                      each = model_number(job, "@megatron.expert_width", width),
                      shared = model_number(job, "@megatron.shared_width", 0),
                      active = experts ? model_number(job, "@megatron.experts_per_token", 2) : 1;
  if (active > count) {
    const Given* chosen = job.find("@megatron.experts_per_token");
    throw usage_error(fmt::format("{} = {} is more than the {} experts",
                                  chosen ? chosen->key : "the default of moe-router-topk", active, count),
                      {}, chosen ? chosen->where : experts->where);
  }
  const bool divides = shared % each == 0, latent = job.find("@megatron.latent"),
             normed = job.find("@megatron.qk_norm"), bias = job.find("@megatron.qkv_bias");
  const std::string common = common_fields(job);
  // Fields of DeepSeek, whose shared experts have the width of a multiple of the others.
  const std::string deepseek =
      fmt::format(R"({}, "n_routed_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {}, )"
                  R"("intermediate_size": {}, "n_shared_experts": {}, "first_k_dense_replace": {})",
                  common, count, active, each, width, shared / each, *dense);
  if (latent) {
    if (!divides) return "";
    const Given* q = job.find("@megatron.q_lora_rank");
    return fmt::format(
        R"({{"model_type": "deepseek_v3", {}, "topk_method": "{}", "q_lora_rank": {}, )"
        R"("kv_lora_rank": {}, "qk_nope_head_dim": {}, "qk_rope_head_dim": {}, "v_head_dim": {}}})",
        deepseek, job.find("@megatron.expert_bias") ? "noaux_tc" : "greedy",
        q ? std::to_string(count_of(*q)) : "null", model_number(job, "@megatron.kv_lora_rank", 32),
        model_number(job, "@megatron.qk_head_dim", 128), model_number(job, "@megatron.rope_head_dim", 64),
        model_number(job, "@megatron.v_head_dim", 128));
  }
  const std::string heads = fmt::format(R"("head_dim": {})", head_width(job));
  const std::string routed =
      fmt::format(R"({}, {}, "num_experts": {}, "num_experts_per_tok": {}, "moe_intermediate_size": {}, )"
                  R"("intermediate_size": {})",
                  common, heads, count, active, each, width);
  if (shared == 0 && *dense == 0 && normed)
    return fmt::format(R"({{"model_type": "qwen3_moe", {}, "attention_bias": {}}})", routed, bias);
  if (shared == 0 && *dense == 0 && !bias)
    return fmt::format(R"({{"model_type": "mixtral", {}, {}, "num_local_experts": {}, )"
                       R"("num_experts_per_tok": {}, "intermediate_size": {}}})",
                       common, heads, count, active, each);
  if (normed) return "";
  if (shared && *dense == 0 && job.find("@megatron.shared_gate"))
    return fmt::format(R"({{"model_type": "qwen2_moe", {}, "shared_expert_intermediate_size": {}, )"
                       R"("qkv_bias": {}}})",
                       routed, shared, bias);
  if (bias || !divides) return "";
  return fmt::format(R"({{"model_type": "deepseek", {}, {}}})", deepseek, heads);
}

/// An MLP of two matrices: GPT-2 with a table of positions, StarCoder2 with rotary embedding. Both have
/// LayerNorm, so RMSNorm counts a vector of the hidden size per norm too many.
std::string config_of_gpt(const Job& job) {
  const std::uint64_t hidden = model_number(job, "model.hidden_size", 1),
                      width = model_number(job, "model.intermediate_size", checked_mul(hidden, 4));
  const Given* positions = job.find("@megatron.positions");
  const bool learned =
      !job.find("@megatron.rotary") && (!positions || positions->value == "learned_absolute");
  const std::string fields = fmt::format(R"({}, "head_dim": {}, "intermediate_size": {})", common_fields(job),
                                         head_width(job), width);
  if (learned) return fmt::format(R"({{"model_type": "gpt2", {}}})", fields);
  return fmt::format(R"({{"model_type": "starcoder2", {}, "use_bias": {}}})", fields,
                     !job.find("@megatron.no_bias"));
}

}  // namespace

void finish_megatron_model(Job& job) {
  if (!job.find("model.num_hidden_layers") || !job.find("model.hidden_size") || job.find(kOtherModel))
    return job.erase_if([](const std::string& key) { return key.starts_with("model."); });
  const bool swiglu = job.find("@megatron.swiglu");
  if (swiglu && !job.find("@megatron.experts") && !job.find("@megatron.latent")) {
    // The family with these norms or biases: Qwen3 normalises q and k, Qwen2 has biases of q, k and v.
    const char* type = job.find("@megatron.qk_norm")    ? "qwen3"
                       : job.find("@megatron.qkv_bias") ? "qwen2"
                                                        : "llama";
    job.set_default("model.model_type", type, "because of --swiglu");
    job.set_default("model.tie_word_embeddings", "true", "default of Megatron-LM");
    megatron_finish_vocabulary(job);
    if (!job.find("@megatron.no_bias") && !job.find("@megatron.qkv_bias") && !job.find("@megatron.qk_norm"))
      for (const char* key : {"model.attention_bias", "model.mlp_bias"})
        job.set_default(key, "true", "without --disable-bias-linear");
    megatron_finish_heads(job);
    megatron_finish_mlp(job);
    return;
  }
  megatron_finish_vocabulary(job);
  const Given *experts = job.find("@megatron.experts"), *latent = job.find("@megatron.latent"),
              *pattern = job.find("@megatron.sparse_layers"), *layers = job.find("model.num_hidden_layers");
  // The argument that a message names.
  const Given from = experts && pattern && pattern->value != "1" ? *pattern
                     : experts                                   ? *experts
                     : latent                                    ? *latent
                                                                 : *layers;
  std::string config = experts || latent ? config_with_experts(job) : config_of_gpt(job);
  // The vocabulary stays a key of its own, so that it can be given where no file does.
  job.erase_if([](const std::string& key) { return key.starts_with("model.") && key != "model.vocab_size"; });
  if (config.empty())
    job.set_default(kOtherModel, from.key, from);
  else
    job.set_default("model.config", config, from);
}

}  // namespace trainhost::framework_files
