// Entry points: Architecture from a ModelSpec or from a config.json, notes about unknown config fields, and
// the error for unknown families. The families are in families.cpp and read_*.cpp. The architecture is data
// only; estimators compute memory and FLOPs from it.
#include "core/model/architecture.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/family_readers.hpp"

namespace trainhost::model {
namespace {

const Family* find(std::string_view family) {
  const auto all = families();
  const auto at = std::ranges::lower_bound(all, family, {}, &Family::name);
  return at != all.end() && at->name == family ? &*at : nullptr;
}

// model_type decides. The class in `architectures` is a fallback for configs written by other software.
std::string family_of(ConfigFields& f) {
  const std::string named = f.text({"model_type"}, "");
  const std::vector<std::string> classes =
      named.empty() ? f.texts("architectures") : std::vector<std::string>{};
  const std::string family = classes.empty() ? named : family_of_class(classes.front());
  if (family.empty()) f.fail("model_type", "is missing", "\"model_type\": \"llama\" names the family");
  return family;
}

// A note, not an error: most unknown fields add nothing, and a plan of a new variant is better than none.
// Must follow the family's reader, which marks the fields that it read.
void add_notes_on_unknown_fields(ConfigFields& f, Architecture& a) {
  if (f.given("quantization_config")) {
    f.mark_as_read("quantization_config");
    a.notes.push_back(
        "quantization_config: the weights of the file are quantized (" +
        escaped(f.object("quantization_config").text({"quant_method"}, "quant_method is missing"), 40) +
        "); the plan uses the number types of the run");
  }
  for (const std::string& field : f.unread_fields())
    if (!field.starts_with("quantization_config."))
      a.notes.push_back("the config field " + field + " is unknown: parameters that it adds are not counted");
}

/// Notes on the config of a ModelSpec; none if the text is not a valid config. A trainable model was already
/// read from its fields, so an error in the rest of the config must not stop the plan.
std::vector<std::string> notes_of(const std::string& json) {
  if (json.empty()) return {};
  try {
    return from_config(json, "").notes;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::span<const std::string_view> known_families() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> out;
    for (const Family& f : families()) out.push_back(f.name);
    return out;
  }();
  return names;
}

bool known_family(std::string_view family) { return find(family) != nullptr; }

/// What no layer of an architecture has, for families that many people train or ask for.
static std::string_view missing_part(std::string_view family) {
  constexpr std::string_view kSideBySide =
                                 "layers that compute attention and a state space model side by side",
                             kNoDecoder = "an encoder", kRecurrent = "layers without attention",
                             kIndexer = "attention to tokens that an indexer selects (DSA)",
                             kShared = "weights that several layers share";
  constexpr std::pair<std::string_view, std::string_view> kMissing[] = {
      {"falcon_h1", kSideBySide},
      {"hymba", kSideBySide},
      {"mamba", kRecurrent},
      {"mamba2", kRecurrent},
      {"falcon_mamba", kRecurrent},
      {"rwkv", kRecurrent},
      {"rwkv7", kRecurrent},
      {"xlstm", kRecurrent},
      {"zamba", kShared},
      {"zamba2", kShared},
      {"deepseek_v32", kIndexer},
      {"glm_moe_dsa", kIndexer},
      {"deepseek_v4", kIndexer},
      {"longcat_flash", "layers with two attentions and experts that compute nothing"},
      {"gemma3n", "residual streams of several parts (AltUp, LAuReL)"},
      {"gemma3n_text", "residual streams of several parts (AltUp, LAuReL)"},
      {"bert", kNoDecoder},
      {"roberta", kNoDecoder},
      {"modernbert", kNoDecoder},
      {"deberta_v2", kNoDecoder},
      {"xlm_roberta", kNoDecoder},
      {"t5", "an encoder beside the decoder"},
      {"mt5", "an encoder beside the decoder"},
      {"bart", "an encoder beside the decoder"},
      {"whisper", "an encoder beside the decoder"}};
  for (const auto& [name, what] : kMissing)
    if (name == family) return what;
  return "";
}

/// How to plan a family that differs from a described one in a part of little memory; "" without one.
static std::string nearest_family(std::string_view family) {
  // The indexer of transformers 5 (wq_b, wk, k_norm, weights_proj) runs without gradients. Of DeepSeek-V3.2
  // it has 851,524,864 of 671,877,929,216 parameters, of GLM-5 731,008,512 of 743,911,199,232.
  if (family == "deepseek_v32" || family == "glm_moe_dsa")
    return "to plan it without its indexer, 0.1 % of the weights, set \"model_type\": \"deepseek_v3\" in a "
           "copy of the "
           "file; or ";
  return "";
}

Error unknown_family(std::string_view family) {
  if (const std::string_view what = missing_part(family); !what.empty())
    return usage_error(
        "the model family '" + std::string(family) + "' is not described: it has " + std::string(what),
        nearest_family(family) +
            "`trainhost plugins new NAME --kind=estimator` creates an estimator for it, see sdk/README.md");
  const std::vector<std::string> known(known_families().begin(), known_families().end());
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  return usage_error(
      "the model family '" + escaped(family, 60) + "' is unknown" + did_you_mean(family, known),
      "`trainhost plugins new NAME --kind=estimator` creates an estimator for it, see sdk/README.md; "
      "known: " +
          list);
}

// "LlamaForCausalLM", "GPT2LMHeadModel": the part before "For" or "LMHead" is the family without underscores.
std::string family_of_class(std::string_view name) {
  std::string lower;
  for (char c : name.substr(0, std::min(name.find("For"), name.find("LMHead"))))
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (std::string_view family : known_families()) {
    std::string plain(family);
    std::erase(plain, '_');
    if (plain == lower) return std::string(family);
  }
  return lower;
}

static Architecture read_config(std::string_view json, std::string_view name) {
  ConfigFields f(json);
  const std::string family = family_of(f);
  const Family* known = find(family);
  if (!known) throw unknown_family(family);
  Architecture a = known->read(f);
  a.family = family, a.name = name;
  add_notes_on_unknown_fields(f, a);
  static_cast<void>(count(a));  // throws if a size exceeds 63 bits
  return a;
}

/// Caches the latest result, because a search asks for the same model many times. Not per thread: glibc ends
/// the process if it has no memory to register the destructor of a thread-local variable.
Architecture from_config(std::string_view json, std::string_view name) {
  struct Latest {
    std::string json, name;
    Architecture architecture;
  };
  static std::mutex lock;
  static std::shared_ptr<const Latest> latest;
  std::shared_ptr<const Latest> known;
  {
    const std::lock_guard guard(lock);
    known = latest;
  }
  if (!known || known->json != json || known->name != name) {
    known =
        std::make_shared<const Latest>(Latest{std::string(json), std::string(name), read_config(json, name)});
    const std::lock_guard guard(lock);
    latest = known;
  }
  return known->architecture;
}

// The fields of a trainable model are what the engine trains; its config.json may differ from them.
Architecture from_model(const ModelSpec& m) {
  if (trainable_family(m.family)) {
    Architecture a = from_fields(m);
    a.notes = notes_of(m.config_json);
    return a;
  }
  if (!known_family(m.family)) throw unknown_family(m.family);
  if (m.config_json.empty())
    throw usage_error("the model family '" + m.family + "' needs a config.json, and this model has none");
  return from_config(m.config_json, m.name);
}

}  // namespace trainhost::model
