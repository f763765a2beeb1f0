// Readers of Gemma 1 to 3: explicit head_dim, tied head. Gemma 2 and 3 have four norms per layer (before and
// after attention and MLP) and mix sliding-window layers with full-attention layers.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

Layer gemma_layer(ConfigFields& f, std::uint32_t hidden, std::uint32_t kv_heads) {
  Layer l{.attention = read_heads(f, hidden, {.kv_heads = kv_heads, .head_dim = 256}),
          .mlp = read_gated_mlp(f)};
  set_all_biases(l.attention, f.flag({"attention_bias"}, false));
  return l;
}

}  // namespace

Architecture read_gemma(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 8192);
  append_equal(a, gemma_layer(f, a.hidden, 16), read_layer_count(f));
  return a;
}

/// Even layers have a window. Some files state the window twice.
Architecture read_gemma2(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 8192);
  Layer l = gemma_layer(f, a.hidden, 4);
  l.norms = 4;
  f.mark_as_read("sliding_window_size");
  const std::uint32_t window = read_window(f, 4096);
  append_windowed(a, l,
                  read_windows(f, read_layer_count(f), window, [](std::uint32_t i) { return i % 2 == 0; }));
  return a;
}

/// Every sixth layer has full attention, the others a window; q and k have norms of one vector of D each.
Architecture read_gemma3_text(ConfigFields& f) {
  Architecture a = read_dimensions(f, true, 131072);
  Layer l = gemma_layer(f, a.hidden, 4);
  l.norms = 4;
  l.attention.qk_norm = NormKind::kRms;
  const std::uint32_t window = read_window(f, 4096);
  const std::uint32_t pattern = f.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  append_windowed(a, l, read_windows(f, read_layer_count(f), window, [&](std::uint32_t i) {
                    return (i + 1) % pattern != 0;
                  }));
  return a;
}

/// Multimodal: the decoder is described in text_config; the vision tower is not counted.
Architecture read_gemma3(ConfigFields& f) { return read_text_config(f, read_gemma3_text); }

}  // namespace trainhost::model
