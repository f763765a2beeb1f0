// Readers of the decoders of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, which have the layers of Qwen2 and Qwen3. The
// vision tower is not counted, with a note. On the Hub the configs of Qwen2-VL and Qwen2.5-VL have the fields
// of the decoder at the top; transformers saves them in text_config, where Qwen3-VL always has them.
#include "core/model/family_readers.hpp"

namespace trainhost::model {

Architecture read_qwen2_vl_text(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 32768);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8}), .mlp = read_gated_mlp(f)};
  set_qkv_bias(l.attention, true);
  append_windowed(a, l, read_qwen_windows(f, read_layer_count(f)));
  return a;
}

Architecture read_qwen2_vl(ConfigFields& f) {
  if (f.given("text_config")) return read_text_config(f, read_qwen2_vl_text);
  Architecture a = read_qwen2_vl_text(f);
  note_towers(f, a);
  return a;
}

Architecture read_qwen3_vl_text(ConfigFields& f) {
  Architecture a = read_dimensions(f, false, 128000);
  Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 32, .head_dim = 128}), .mlp = read_gated_mlp(f)};
  l.attention.qk_norm = NormKind::kRms;
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  append_equal(a, l, read_layer_count(f));
  return a;
}

Architecture read_qwen3_vl(ConfigFields& f) { return read_text_config(f, read_qwen3_vl_text); }
/// The layers of Qwen3 with experts.
Architecture read_qwen3_vl_moe(ConfigFields& f) { return read_text_config(f, read_qwen3_moe); }

}  // namespace trainhost::model
