// See samples.hpp.
#include "core/plugin_validator/samples.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainhost::plugin_validator {

/// The names of both habits (hidden_size and n_embd), so that a reader of any family finds what it knows.
void write_config(ModelSpec& m) {
  m.config_json = fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "num_hidden_layers": {}, )"
      R"("num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {}, )"
      R"("max_position_embeddings": {}, "n_embd": {}, "n_layer": {}, "n_head": {}, "n_positions": {}, "n_inner": {}, )"
      R"("tie_word_embeddings": {}, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0}})",
      m.family, m.vocab, m.hidden, m.layers, m.heads, m.kv_heads, m.head_dim, m.intermediate, m.max_positions,
      m.hidden, m.layers, m.heads, m.max_positions, m.intermediate, m.tied ? "true" : "false");
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
