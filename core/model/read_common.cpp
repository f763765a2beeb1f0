// Shared parts of the readers: dimensions, heads, windows (family_readers.hpp). A field has up to three
// names: those of the LLaMA-like classes, of GPT-2 and of MPT.
#include "core/base/error.hpp"

#include <algorithm>
#include <cassert>
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

// The list of layers is O(layers) while it is read; the limit bounds the work on a wrong config.
constexpr std::uint32_t kMaxLayers = 1u << 12;  // published models have up to 126

std::string text_of(std::uint64_t n) { return std::to_string(n); }

}  // namespace

// The embedding has width H unless the reader of the family says otherwise (OPT).
Architecture read_dimensions(ConfigFields& f, bool tied, std::uint32_t positions) {
  Architecture a;
  a.vocab = f.size({"vocab_size"});
  a.hidden = a.embedding_width = f.size({"hidden_size", "n_embd", "d_model"});
  a.max_positions = f.size({"max_position_embeddings", "n_positions", "max_seq_len"}, positions);
  a.tied = f.flag({"tie_word_embeddings"}, tied);
  return a;
}

std::uint32_t read_layer_count(ConfigFields& f) {
  const FieldNames names = {"num_hidden_layers", "n_layer", "n_layers"};
  const std::uint32_t layers = f.size(names);
  if (layers > kMaxLayers)
    f.fail(f.name_in_use(names),
           "= " + text_of(layers) + " is too large: expected at most " + text_of(kMaxLayers));
  return layers;
}

Attention read_heads(ConfigFields& f, std::uint32_t hidden, HeadDefaults defaults) {
  Attention a;
  const FieldNames heads = {"num_attention_heads", "n_head", "n_heads"},
                   width = {"hidden_size", "n_embd", "d_model"};
  a.heads = f.size(heads);
  // As in transformers: null means one KV head per query head, absent means the default of the class.
  const bool per_query_head =
      !f.given("num_key_value_heads") && (f.present("num_key_value_heads") || !defaults.kv_heads);
  a.kv_heads = f.size({"num_key_value_heads"}, per_query_head ? a.heads : defaults.kv_heads);
  if (a.heads % a.kv_heads)
    f.fail("num_key_value_heads", "= " + text_of(a.kv_heads) + " does not divide " +
                                      std::string(f.name_in_use(heads)) + " = " + text_of(a.heads));
  const bool derived = !f.given("head_dim") && (f.present("head_dim") || !defaults.head_dim);
  if (derived && hidden % a.heads)
    f.fail(f.name_in_use(heads),
           "= " + text_of(a.heads) + " does not divide " + std::string(f.name_in_use(width)) + " = " +
               text_of(hidden),
           "set head_dim, or change one of the two");
  a.head_dim = f.size({"head_dim"}, derived ? hidden / a.heads : defaults.head_dim);
  assert(a.kv_heads > 0 && a.head_dim > 0);
  return a;
}

void set_qkv_bias(Attention& a, bool on) { a.q_bias = a.k_bias = a.v_bias = on; }
void set_all_biases(Attention& a, bool on) { a.q_bias = a.k_bias = a.v_bias = a.o_bias = on; }

Mlp read_gated_mlp(ConfigFields& f) { return {.width = f.size({"intermediate_size"})}; }

std::vector<std::uint32_t> read_windows(ConfigFields& f, std::uint32_t layers, std::uint32_t window,
                                        const std::function<bool(std::uint32_t)>& slides) {
  std::vector<std::uint32_t> out(layers, 0);
  // Newer versions of transformers write the type of every layer. It overrides the rule of the family, which
  // older configs rely on.
  const std::vector<std::string> types = f.texts("layer_types");
  if (!types.empty() && types.size() != layers)
    f.fail("layer_types",
           "has " + plural(types.size(), "entry") + ": expected num_hidden_layers = " + text_of(layers));
  for (std::uint32_t l = 0; l < layers; ++l) {
    if (!types.empty() && types[l] != "full_attention" && types[l] != "sliding_attention")
      f.fail("layer_types",
             "has \"" + escaped(types[l], 40) + "\": expected full_attention or sliding_attention");
    // `slides` is only asked without layer_types: rules differ per family, types do not.
    if (types.empty() ? slides(l) : types[l] == "sliding_attention") out[l] = window;
  }
  return out;
}

std::vector<std::string> read_layer_types(ConfigFields& f, std::string_view field, std::uint32_t layers,
                                          std::initializer_list<std::string_view> known,
                                          const std::function<std::string(std::uint32_t)>& otherwise) {
  std::vector<std::string> types = f.texts(field);
  if (types.empty())
    for (std::uint32_t i = 0; i < layers; ++i) types.push_back(otherwise(i));
  if (types.size() != layers)
    f.fail(field,
           "has " + plural(types.size(), "entry") + ": expected num_hidden_layers = " + text_of(layers));
  for (std::string& type : types) {
    if (type == "mamba") type = "linear_attention";
    if (type == "attention") type = "full_attention";
    if (std::ranges::find(known, type) != known.end()) continue;
    std::string expected;
    for (const std::string_view name : known) expected += (expected.empty() ? "" : ", ") + std::string(name);
    f.fail(field, "has \"" + escaped(type, 40) + "\": expected one of " + expected);
  }
  return types;
}

void note_towers(ConfigFields& f, Architecture& a) {
  if (f.given("vision_config"))
    a.notes.emplace_back("vision_config: the vision tower and its projection are not counted");
  if (f.given("audio_config"))
    a.notes.emplace_back("audio_config: the audio tower and its projection are not counted");
  for (const char* name : {"vision_config", "audio_config", "mm_tokens_per_image", "projector_hidden_act",
                           "multimodal_projector_bias", "spatial_merge_size", "vision_feature_layer",
                           "projection_hidden_size", "vision_soft_tokens_per_image"})
    f.mark_as_read(name);
}

Architecture read_text_config(ConfigFields& f, Reader reader) {
  if (!f.given("text_config"))
    f.fail("text_config", "is missing", "it describes the decoder of a multimodal model");
  Architecture a = reader(f.object("text_config"));
  a.tied = f.flag({"tie_word_embeddings"}, a.tied);
  note_towers(f, a);
  return a;
}

void append(Architecture& a, const Layer& l) {
  // Only the last run is compared: layers are appended in order, so runs of equal layers stay separate where
  // other layers lie between them. Estimates of pipeline stages need this order.
  if (a.layers.empty() || !(a.layers.back().layer == l)) a.layers.push_back({l, 0});
  ++a.layers.back().count;
}

void append_windowed(Architecture& a, Layer l, const std::vector<std::uint32_t>& windows) {
  for (std::uint32_t window : windows) {
    l.attention.window = window;
    append(a, l);
  }
}

void append_equal(Architecture& a, const Layer& l, std::uint32_t layers) {
  assert(a.layers.empty() && layers > 0);
  a.layers.push_back({l, layers});
}

// In transformers null means no window, and an absent field the default of the class.
std::uint32_t read_window(ConfigFields& f, std::uint32_t otherwise) {
  return f.size({"sliding_window"}, f.present("sliding_window") ? 0 : otherwise);
}

std::vector<std::uint32_t> read_qwen_windows(ConfigFields& f, std::uint32_t layers) {
  // Without use_sliding_window the class ignores sliding_window, which is in the configs all the same.
  const bool used = f.flag({"use_sliding_window"}, false);
  const std::uint32_t window = read_window(f, 4096), first = f.number({"max_window_layers"}, 28);
  return read_windows(f, layers, used ? window : 0, [&](std::uint32_t l) { return l >= first; });
}

}  // namespace trainhost::model
