// See model_settings.hpp. Paths are relative to the folder of the run file.
#include "core/runfile/model_settings.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/model_fields.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/usual_run.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

/// Whether the step of another framework is planned, which trainers here never execute.
bool is_of_framework(const Settings& s) {
  return s.given("plan.framework") && s.text("plan.framework") != "trainhost";
}

ModelSpec model_from_config_file(const Settings& s, const fs::path& base) {
  std::string text = s.text("model.config");
  if (is_config_text(text)) {
    // Files of other frameworks describe models without the vocabulary, which the tokenizer decides.
    if (s.given("model.vocab_size"))
      text.insert(1, fmt::format("\"vocab_size\": {}, ", s.integer("model.vocab_size")));
    ModelSpec m = parse_model_config(text, "model.config", is_of_framework(s));
    // Of a file of another framework, whose name says more.
    if (const Where& where = s.where("model.config"); where.line)
      m.name = fs::path(where.file).stem().string();
    return m;
  }
  fs::path path = resolve_path(text, base);
  std::error_code ec;
  if (fs::is_directory(path, ec)) path /= "config.json";
  require_file(path, "model.config", s.where("model.config"));
  return read_model_config(path, is_of_framework(s));
}

/// Fields of a sub-table (rope_scaling.factor) need their group as a table, as a config.json has it, so that
/// the rules of both are the same.
ModelSpec model_from_fields(const Settings& s, const std::vector<std::string>& names) {
  ModelFields fields;
  for (const std::string& name : names) {
    fields[name] = s.values().at("model." + name);
    if (const auto dot = name.find('.'); dot != name.npos) {
      Value& group = fields[name.substr(0, dot)];
      group.kind = Value::Kind::kTable;
      group.where = fields[name].where;
    }
  }
  return model_from_inline(fields, s);
}

/// Throws if `text` is the name of a preset and of no folder: presets have dimensions only.
void reject_preset_as_folder(const std::string& text, const fs::path& folder, const Where& where) {
  const std::string preset = canonical_name("model.preset", text);
  std::error_code ec;
  if (!find_preset(preset) || fs::exists(folder, ec)) return;
  const bool trained = find_model_preset(preset) != nullptr;
  throw usage_error(
      fmt::format("'{}' is a preset, which has no weights to train further, and no folder here",
                  escaped(text)),
      fmt::format(
          "give the folder of the model as Hugging Face has it (config.json, *.safetensors, tokenizer); "
          "`trainhost plan --model={0} --lora` plans its memory{1}",
          preset,
          trained ? fmt::format(", `trainhost train --model={} --set data.train=FILE` trains it from "
                                "random weights",
                                preset)
                  : ""),
      where);
}

/// The folder of a model in Hugging Face layout: config.json and weights. Without weights the run can be
/// planned and its data read; require_weights() refuses to train it.
void set_model_folder(const Settings& s, const fs::path& base, RunConfig& c) {
  const Where where = s.where("model.path");
  const std::string text = s.text("model.path");
  c.model_folder = resolve_path(text, base);
  reject_preset_as_folder(text, c.model_folder, where);
  std::error_code ec;
  require_folder(c.model_folder, "model.path", where,
                 is_hub_name(text, base)
                     ? fmt::format("for a model of the Hugging Face Hub: hf download {} --local-dir {}",
                                   escaped(text), escaped(text.substr(text.find('/') + 1)))
                     : "");
  if (!fs::is_regular_file(c.model_folder / "config.json", ec))
    throw usage_error(
        fmt::format("model.path: '{}' contains no config.json", escaped(c.model_folder.string(), 400)),
        hint_on_folder_without_config(c.model_folder), where);
  c.model = read_model_config(c.model_folder / "config.json", is_of_framework(s));
  c.weights = weights_beside(c.model_folder);
}

}  // namespace

void adopt_model_of_adapter(Settings& s, const fs::path& base) {
  if (!s.given("model.adapter") || s.given("model.path") || s.given("model.config") ||
      s.given("model.preset") || s.given("model.weights") || !inline_fields(s).empty())
    return;
  const Where where = s.where("model.adapter");
  const fs::path folder = resolve_path(s.text("model.adapter"), base);
  require_folder(folder, "model.adapter", where);
  const std::string model = read_adapter_config(folder / "adapter_config.json").base;
  std::error_code ec;
  if (model.empty() || !fs::is_directory(model, ec))
    throw usage_error(model.empty()
                          ? "model.adapter: the adapter does not name its model"
                          : fmt::format("model.adapter: the adapter is of the model \"{}\", which is "
                                        "no folder here",
                                        escaped(model, 4096)),
                      "set model.path to the folder of that model", where);
  s.set("model.path", text_value(fs::absolute(model).string(), where));
}

void set_model(const Settings& s, const fs::path& base, RunConfig& c) {
  const auto fields = inline_fields(s);
  c.model_is_builtin = false;
  if (s.given("model.path")) {
    set_model_folder(s, base, c);
  } else if (s.given("model.config")) {
    c.model = model_from_config_file(s, base);
    if (const std::string text = s.text("model.config"); !is_config_text(text)) {
      const fs::path config = resolve_path(text, base);
      std::error_code ec;
      c.model_folder = fs::is_directory(config, ec) ? config : config.parent_path();
    }
  } else if (s.given("model.preset")) {
    c.model = *find_preset(s.text("model.preset"));
  } else if (!fields.empty()) {
    c.model = model_from_fields(s, fields);
  } else {
    c.model = builtin_model(), c.model_is_builtin = true;
  }
  if (s.given("model.weights"))
    c.weights = weights_file(resolve_path(s.text("model.weights"), base), s.where("model.weights"));
}

}  // namespace trainhost::runfile
