// The ways in: from the fields of a family that we train, from a config.json of any known family, and the
// outline that lists and messages show. The families themselves are in families.cpp and the read_*.cpp files.
#include "core/model/architecture.hpp"

#include <algorithm>
#include <optional>

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

std::string family_of(Fields& f) {
  const std::string named = f.text({"model_type"}, "");
  const std::vector<std::string> classes =
      named.empty() ? f.texts("architectures") : std::vector<std::string>{};
  const std::string family = classes.empty() ? named : family_of_class(classes.front());
  if (family.empty()) f.fail("model_type", "is missing", "\"model_type\": \"llama\" names the family");
  return family;
}

void name_what_is_not_understood(Fields& f, Architecture& a) {
  if (f.given("quantization_config")) {
    f.understood("quantization_config");
    a.notes.push_back(
        "quantization_config: the weights of the file are quantized (" +
        escaped(f.object("quantization_config").text({"quant_method"}, "by a method it does not name"), 40) +
        "); every weight is planned in the number types of the run");
  }
  for (const std::string& field : f.unread())
    if (!field.starts_with("quantization_config."))
      a.notes.push_back("the config field " + field +
                        " is not understood: what it adds to the model is not counted");
}

/// The notes on the config that fields came from. A text that is none has nothing to add to them.
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

Error unknown_family(std::string_view family) {
  const std::vector<std::string> known(known_families().begin(), known_families().end());
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  return usage_error(
      "the model family '" + escaped(family, 60) + "' has no estimator here" + did_you_mean(family, known),
      "`trainhost plugins new NAME --kind=estimator` begins one, sdk/README.md says how; known are " + list);
}

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
  Fields f(json);
  const std::string family = family_of(f);
  const Family* known = find(family);
  if (!known) throw unknown_family(family);
  Architecture a = known->read(f);
  a.family = family, a.name = name;
  name_what_is_not_understood(f, a);
  static_cast<void>(count(a));  // sizes that leave 63 bits are refused here, once
  return a;
}

/// Who looks for a run that fits asks about one model a hundred times: the latest is remembered, once a
/// thread.
Architecture from_config(std::string_view json, std::string_view name) {
  struct Latest {
    std::string json, name;
    Architecture is;
  };
  thread_local std::optional<Latest> latest;
  if (!latest || latest->json != json || latest->name != name)
    latest = Latest{std::string(json), std::string(name), read_config(json, name)};
  return latest->is;
}

Architecture from_model(const ModelSpec& m) {
  if (trainable_family(m.family)) {
    Architecture a = from_fields(m);
    a.notes = notes_of(m.config_json);
    return a;
  }
  if (!known_family(m.family)) throw unknown_family(m.family);
  if (m.config_json.empty())
    throw usage_error("the model family '" + m.family +
                      "' is described by its config.json, and this model has none");
  return from_config(m.config_json, m.name);
}

}  // namespace trainhost::model
