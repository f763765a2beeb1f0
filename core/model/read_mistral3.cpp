// Readers of Mistral's newer families: Ministral and Ministral 3 (text), and Mistral 3 (Mistral Small 3.1 and
// later, Ministral 3 with vision), whose decoder is in text_config and has the shape of Mistral, of Ministral
// 3 or of Mistral 4.
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

Architecture read_windowed(ConfigFields& f, std::uint32_t head_dim, std::uint32_t positions,
                           std::uint32_t window) {
  Architecture a = read_dimensions(f, false, positions);
  const Layer l{.attention = read_heads(f, a.hidden, {.kv_heads = 8, .head_dim = head_dim}),
                .mlp = read_gated_mlp(f)};
  const std::uint32_t keys = read_window(f, window);
  append_windowed(a, l, read_windows(f, read_layer_count(f), keys, [](std::uint32_t) { return true; }));
  return a;
}

}  // namespace

Architecture read_ministral(ConfigFields& f) { return read_windowed(f, 0, 131072, 4096); }

Architecture read_ministral3(ConfigFields& f) { return read_windowed(f, 128, 262144, 0); }

/// A text_config without model_type is one of Mistral, and without head_dim has heads of 128.
Architecture read_mistral3(ConfigFields& f) {
  return read_text_config(f, [](ConfigFields& text) {
    const std::string type = text.text({"model_type"}, "mistral");
    if (type == "mistral4") return read_mistral4(text);
    if (type != "mistral" && type != "ministral3")
      text.fail("model_type", "= \"" + escaped(type, 40) + "\": expected mistral, ministral3 or mistral4");
    return read_windowed(text, 128, 131072, 0);
  });
}

}  // namespace trainhost::model
