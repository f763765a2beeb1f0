// Gemma 1 to 3: heads of their own width, a tied head; from the second on norms before and behind attention
// and MLP, four a layer, and layers that slide between layers that see everything.
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

Layer gemma_layer(Fields& f, std::uint32_t hidden, std::uint32_t kv_heads) {
  Layer l{.attention = heads_of(f, hidden, {.kv_heads = kv_heads, .head_dim = 256}), .mlp = gated_mlp(f)};
  bias_all(l.attention, f.flag({"attention_bias"}, false));
  return l;
}

}  // namespace

Architecture read_gemma(Fields& f) {
  Architecture a = base(f, true, 8192);
  append_equal(a, gemma_layer(f, a.hidden, 16), layers_of(f));
  return a;
}

/// Even layers slide. Some files say the window twice.
Architecture read_gemma2(Fields& f) {
  Architecture a = base(f, true, 8192);
  Layer l = gemma_layer(f, a.hidden, 4);
  l.norms = 4;
  f.understood("sliding_window_size");
  const std::uint32_t window = window_of(f, 4096);
  append_windowed(a, l, windows_of(f, layers_of(f), window, [](std::uint32_t i) { return i % 2 == 0; }));
  return a;
}

/// Every sixth layer sees everything, the others slide; q and k have norms, one vector of D each.
Architecture read_gemma3_text(Fields& f) {
  Architecture a = base(f, true, 131072);
  Layer l = gemma_layer(f, a.hidden, 4);
  l.norms = 4;
  l.attention.qk_norm = NormKind::kRms;
  const std::uint32_t window = window_of(f, 4096);
  const std::uint32_t pattern = f.size({"sliding_window_pattern", "_sliding_window_pattern"}, 6);
  append_windowed(
      a, l, windows_of(f, layers_of(f), window, [&](std::uint32_t i) { return (i + 1) % pattern != 0; }));
  return a;
}

/// Text and images: the decoder is in an object of its own, the vision tower is no decoder.
Architecture read_gemma3(Fields& f) {
  if (!f.given("text_config")) f.fail("text_config", "is missing", "it describes the decoder of a gemma3");
  Architecture a = read_gemma3_text(f.object("text_config"));
  for (const char* name :
       {"vision_config", "mm_tokens_per_image", "boi_token_index", "eoi_token_index", "image_token_index"})
    f.understood(name);
  if (f.given("vision_config"))
    a.notes.push_back(
        "vision_config: the vision tower and its projection are left out: the decoder alone is counted");
  return a;
}

}  // namespace trainhost::model
