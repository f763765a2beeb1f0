// See completion_values.hpp. Plugins are those that `trainhost plugins list` would list; no code of theirs
// runs.
#include "tools/trainhost/completion_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/text.hpp"
#include "core/framework_files/file_kinds.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/runfile/schema.hpp"
#include "core/verify/contract_check.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using Paths = CompletionValues::Paths;
using Words = std::vector<CompletionWord>;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    out.emplace_back(text.substr(at, end - at));
    if (end == text.npos) return out;
    at = end + 1;
  }
}

std::vector<plugin::Manifest> manifests(const std::vector<std::string>& plugin_path) {
  CommonArguments a;
  a.plugin_path = plugin_path;
  a.quiet = true;
  const auto registry = make_registry(a, nullptr);
  std::vector<plugin::Manifest> out;
  for (const plugin::Candidate& c : registry->candidates())
    if (!c.manifest.id.empty()) out.push_back(c.manifest);
  return out;
}

/// Plugins of `kind`; "" = all.
Words plugin_words(const std::string& kind, const std::vector<std::string>& plugin_path) {
  Words out;
  for (const plugin::Manifest& m : manifests(plugin_path))
    if (kind.empty() || m.kind == kind) out.push_back({m.id, m.summary});
  return out;
}

Words model_words() {
  Words out;
  const auto add = [&](const ModelSpec& m) {
    out.push_back({m.name, fmt::format("{}, {} parameters", m.family,
                                       format_count(model::count(model::from_model(m)).total))});
  };
  for (const ModelSpec& m : model_presets()) add(m);
  for (const ModelSpec& m : model::planned_presets()) add(m);
  return out;
}

Words device_words() {
  Words out;
  for (const DevicePreset& d : device_presets())
    out.push_back({d.name, fmt::format("{}, {}", d.full_name, format_bytes(d.memory_bytes))});
  return out;
}

Words framework_words(const std::vector<std::string>& plugin_path) {
  std::set<std::string> names{"trainhost"};
  for (const plugin::Manifest& m : manifests(plugin_path))
    names.insert(m.frameworks.begin(), m.frameworks.end());
  Words out;
  for (const std::string& n : names) out.push_back({n, {}});
  return out;
}

Words without_meaning(const std::vector<std::string>& words) {
  Words out;
  for (const std::string& w : words) out.push_back({w, {}});
  return out;
}

void append(Words& to, Words words) {
  to.insert(to.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
}

/// `typed` up to its last comma: the values before the one that is completed.
std::string values_before(const std::string& typed) { return typed.substr(0, typed.rfind(',') + 1); }

/// All keys, and the options of installed plugins. `end` follows each.
Words key_words(const std::string& end, const std::vector<std::string>& plugin_path) {
  Words out;
  for (const runfile::Key& k : runfile::schema()) out.push_back({k.name + end, k.doc});
  for (const plugin::Manifest& m : manifests(plugin_path))
    for (const std::string& option : m.options)
      out.push_back({fmt::format("plugin.{}.{}{}", m.id, option, end), "option of a plugin"});
  return out;
}

bool lower_case(std::string_view word) {
  return !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-") == word.npos;
}

/// Options that override a key of the run file have its values.
struct OptionOfKey {
  std::string_view option, key;
};
constexpr OptionOfKey kOptionsOfKeys[] = {
    {"--backend", "train.backend"},
    {"--device", "memory.device"},
    {"--for", "plan.framework"},
    {"--estimator", "memory.estimator"},
    {"--chat-template", "data.chat_template"},
};

/// Ids of the checks of `verify` or `plugins check`, of which several are separated by commas.
CompletionValues check_ids(bool contracts, const std::string& typed) {
  CompletionValues out;
  out.prefix = values_before(typed);
  if (contracts)
    for (const verify::Check& c : verify::checks()) out.words.push_back({c.id, c.title});
  else
    for (const plugin_validator::Check& c : plugin_validator::checks()) out.words.push_back({c.id, c.title});
  return out;
}

}  // namespace

CompletionValues values_of_key(std::string_view key, const std::string& typed,
                               const std::vector<std::string>& plugin_path) {
  CompletionValues out;
  const runfile::Key* k = runfile::find_key(key);
  if (!k) return out;
  if (key == "train.backend" || key == "plugins.order") {
    out.words = plugin_words("trainer", plugin_path);
    out.words.insert(out.words.begin(), {"auto", "the first available of plugins.order"});
  } else if (key == "parallel.communicator") {
    out.words = plugin_words("communicator", plugin_path);
    out.words.insert(out.words.begin(), {"auto", {}});
  } else if (key == "memory.estimator") {
    out.prefix = values_before(typed);
    out.words = plugin_words("estimator", plugin_path);
    if (out.prefix.empty())
      out.words.insert(out.words.begin(), {{"auto", "by the model's architecture"}, {"all", {}}});
  } else if (key == "memory.device") {
    out.words = device_words();
  } else if (key == "model.preset") {
    out.words = model_words();
  } else if (key == "plan.framework") {
    out.words = framework_words(plugin_path);
  } else if (k->type == runfile::Type::kChoice) {
    out.words = without_meaning(split(k->choices, '|'));
  } else if (k->type == runfile::Type::kBool) {
    out.words = without_meaning({"true", "false"});
  } else if (k->type == runfile::Type::kPath || k->type == runfile::Type::kPaths) {
    out.paths = Paths::kFiles;
  } else if (key == "data.tokenizer") {
    out.words = without_meaning({"bytes", "auto"});
    out.paths = Paths::kFiles;
  }
  return out;
}

CompletionValues values_of_setting(const std::string& typed, const std::vector<std::string>& plugin_path) {
  const auto equals = typed.find('=');
  if (equals == typed.npos) return {key_words("=", plugin_path), Paths::kNone, {}};
  CompletionValues out = values_of_key(typed.substr(0, equals), typed.substr(equals + 1), plugin_path);
  out.prefix.insert(0, typed, 0, equals + 1);
  return out;
}

CompletionValues values_of_argument(std::string_view command, std::string_view name, std::string_view shown,
                                    const std::string& typed, const std::vector<std::string>& plugin_path) {
  for (const auto& [option, key] : kOptionsOfKeys)
    if (name == option) return values_of_key(key, typed, plugin_path);
  if (name == "--set") return values_of_setting(typed, plugin_path);
  if (name == "--over")
    return {typed.find('=') == typed.npos ? key_words("=", plugin_path) : Words{}, Paths::kNone, {}};
  if (name == "--only" || name == "--skip" || name == "--explain")
    return check_ids(command == "verify", typed);
  CompletionValues out;
  if (name == "--family") {
    for (const auto& family : model::known_families()) out.words.push_back({std::string(family), {}});
    return out;
  }
  if (name == "--resume") return {{{"auto", "start or resume"}}, Paths::kNone, {}};
  if (command == "plugins info" && name == "NAME") {
    out.words = plugin_words("", plugin_path);
    out.paths = Paths::kFiles;
    return out;
  }
  if (name == "--from") {
    const auto colon = typed.find(':');
    if (colon != typed.npos) return {{}, Paths::kFiles, typed.substr(0, colon + 1)};
    for (const framework_files::Kind& kind : framework_files::kinds())
      out.words.push_back({fmt::format("{}:", kind.name), {}});
  }
  for (const std::string& piece : split(shown, '|')) {
    if (lower_case(piece))
      out.words.push_back({piece, {}});
    else if (piece == "PRESET")
      append(out.words, model_words());
    else if (piece == "ID")
      append(out.words, plugin_words("", plugin_path));
    else if (piece == "DIR" || piece == "MODEL" || piece == "ADAPTER")
      out.paths = std::max(out.paths, Paths::kFolders);
    else if (piece.starts_with("FILE") || piece.starts_with("[FILE") || piece == "DATA" ||
             piece == "RUN.toml" || piece == "config.json")
      out.paths = Paths::kFiles;
  }
  return out;
}

}  // namespace trainhost::cli
