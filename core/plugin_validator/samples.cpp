// See samples.hpp.
#include "core/plugin_validator/samples.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainhost::plugin_validator {

namespace {

/// Options of the trained families, as Hugging Face writes them; "" for a model without any.
std::string option_fields(const ModelSpec& m) {
  std::string out;
  if (m.family == "llama" || m.family == "qwen3")
    out += fmt::format(R"(, "attention_bias": {}, "mlp_bias": {})", m.qkv_bias, m.mlp_bias);
  if (m.sliding_window)
    out += fmt::format(R"(, "sliding_window": {}, "use_sliding_window": true, "max_window_layers": {})",
                       m.sliding_window, m.first_window_layer);
  if (m.rope.kind == RopeKind::kLinear)
    out += fmt::format(R"(, "rope_scaling": {{"rope_type": "linear", "factor": {}}})", m.rope.factor);
  if (m.rope.kind == RopeKind::kLlama3)
    out += fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": {}, "low_freq_factor": {}, )"
                       R"("high_freq_factor": {}, "original_max_position_embeddings": {}}})",
                       m.rope.factor, m.rope.low_freq_factor, m.rope.high_freq_factor,
                       m.rope.original_max_positions);
  return out;
}

}  // namespace

/// The names of both habits (hidden_size and n_embd), so that a reader of any family finds what it knows.
void write_config(ModelSpec& m) {
  m.config_json = fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "num_hidden_layers": {}, )"
      R"("num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {}, )"
      R"("max_position_embeddings": {}, "n_embd": {}, "n_layer": {}, "n_head": {}, "n_positions": {}, "n_inner": {}, )"
      R"("tie_word_embeddings": {}, "hidden_act": "silu", "rms_norm_eps": {}, "rope_theta": {}{}}})",
      m.family, m.vocab, m.hidden, m.layers, m.heads, m.kv_heads, m.head_dim, m.intermediate, m.max_positions,
      m.hidden, m.layers, m.heads, m.max_positions, m.intermediate, m.tied, m.norm_eps, m.rope_theta,
      option_fields(m));
}

Sample small_sample(const std::vector<std::string>& families) {
  Sample s;
  const auto named = [&](const char* f) {
    return std::find(families.begin(), families.end(), f) != families.end();
  };
  s.model.family = families.empty() || named("*") || named("llama") ? "llama" : families.front();
  s.model.name = "tiny";
  s.model.vocab = 96, s.model.hidden = 32, s.model.layers = 2, s.model.heads = 4, s.model.kv_heads = 2;
  s.model.head_dim = 8, s.model.intermediate = 48, s.model.max_positions = 64;
  s.run.micro_batch = 2, s.run.seq_len = 16;
  write_config(s.model);
  return s;
}

// Values that this version does not define, one at a time.
void for_each_unknown_value(const Sample& s,
                            const std::function<void(const Sample&, const std::string& what)>& visit) {
  const auto with = [&](const char* what, auto change) {
    Sample wrong = s;
    change(wrong);
    visit(wrong, what);
  };
  with("optimizer 99", [](Sample& w) { w.run.optimizer = static_cast<Optimizer>(99); });
  with("mode 99", [](Sample& w) { w.run.mode = static_cast<RunMode>(99); });
  with("dt_weight 99", [](Sample& w) { w.run.weight = static_cast<DType>(99); });
  with("recompute 99", [](Sample& w) { w.run.recompute = static_cast<Recompute>(99); });
}

// The config is rewritten, so that the plugin finds the same number in both places.
void for_each_degenerate_model(const Sample& s,
                               const std::function<void(const Sample&, const std::string& what)>& visit) {
  const auto with = [&](const char* what, auto change) {
    Sample wrong = s;
    change(wrong);
    write_config(wrong.model);
    visit(wrong, what);
  };
  with("0 layers", [](Sample& w) { w.model.layers = 0; });
  with("hidden 0", [](Sample& w) { w.model.hidden = 0; });
  with("vocab 0", [](Sample& w) { w.model.vocab = 0; });
  with("0 heads", [](Sample& w) { w.model.heads = 0, w.model.kv_heads = 0; });
  with("seq_len 0", [](Sample& w) { w.run.seq_len = 0; });
}

}  // namespace trainhost::plugin_validator
