// The three entry points (file, text, model alone): Settings to RunConfig. This file finds the model and
// decides the order; set_tables() converts the tables of the run file.
#include "core/runfile/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_rules.hpp"
#include "core/runfile/combinations.hpp"
#include "core/runfile/model_fields.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/set_tables.hpp"
#include "core/runfile/settings.hpp"
#include "core/runfile/toml_guard.hpp"
#include "core/runfile/toml_read.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

/// Presets that can be trained, then those that can only be planned; both are accepted by model.preset.
std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const ModelSpec& m : model_presets()) names.push_back(m.name);
  for (const ModelSpec& m : model::planned_presets()) names.push_back(m.name);
  return names;
}

const ModelSpec* find_preset(const std::string& name) {
  const ModelSpec* m = find_model_preset(name);
  return m ? m : model::find_planned_preset(name);
}

const ModelSpec& require_preset(const std::string& name, const Where& where) {
  if (const ModelSpec* m = find_preset(name)) return *m;
  throw usage_error(fmt::format("model.preset = \"{}\": unknown model{}", escaped(name, 80),
                                did_you_mean(name, preset_names())),
                    "`trainhost models` lists the built-in models", where);
}

ModelSpec model_from_config_file(const std::string& text, const fs::path& base, const Where& where) {
  fs::path path = resolve_path(text, base);
  std::error_code ec;
  if (fs::is_directory(path, ec)) path /= "config.json";
  require_file(path, "model.config", where);
  return read_model_config(path);
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
  return model_from_inline(fields, s.file());
}

/// Exactly one of config, preset and inline fields; combinations.cpp has rejected mixtures. model_is_builtin
/// is true only if nothing was given: the built-in model then adapts its vocabulary to a tokenizer.
void set_model(const Settings& s, const fs::path& base, RunConfig& c) {
  const auto fields = inline_fields(s);
  c.model_is_builtin = false;
  if (s.given("model.config")) {
    c.model = model_from_config_file(s.text("model.config"), base, s.where("model.config"));
    const fs::path config = resolve_path(s.text("model.config"), base);
    std::error_code ec;
    c.model_folder = fs::is_directory(config, ec) ? config : config.parent_path();
  } else if (s.given("model.preset")) {
    c.model = require_preset(s.text("model.preset"), s.where("model.preset"));
  } else if (!fields.empty()) {
    c.model = model_from_fields(s, fields);
  } else {
    c.model = builtin_model(), c.model_is_builtin = true;
  }
  if (s.given("model.weights"))
    c.weights = weights_file(resolve_path(s.text("model.weights"), base), s.where("model.weights"));
}

/// Gives keys that decide the memory of a run, and that were not given, the values with which people train.
/// The defaults of the run file are those of the built-in run, which is much smaller. Returns the keys.
/// Adapters are trained in bf16; FSDP shards weights, gradients and optimizer state; a run that is only named
/// by its model (`usual`) has one sequence of 2,048 tokens, or of as many as the model is designed for.
std::vector<std::string> assume_usual_run(Settings& s, bool usual, std::uint64_t max_positions) {
  constexpr std::uint64_t kUsualTokens = 2048;
  const auto integer = [](std::uint64_t v) {
    Value value;
    value.kind = Value::Kind::kInteger;
    value.integer = static_cast<std::int64_t>(v);
    value.number = static_cast<double>(v);
    return value;
  };
  std::vector<std::string> assumed;
  const auto assume = [&](const char* key, Value v) {
    if (!s.given(key)) s.set(key, std::move(v)), assumed.push_back(key);
  };
  if (usual || s.table_given("lora")) assume("train.precision", text_value("bf16"));
  const std::string framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if ((framework == "fsdp2" || framework == "torchtitan" || framework == "torchtune" ||
       framework == "litgpt") &&
      s.integer("parallel.data") > 1) {
    assume("parallel.zero", integer(3));  // what its data-parallel ranks are for
    if (framework == "litgpt") assume("train.recompute", text_value("full"));
  }
  if (!usual) return assumed;
  assume("data.seq_len", integer(max_positions ? std::min(kUsualTokens, max_positions) : kUsualTokens));
  assume("train.micro_batch", integer(1));
  return assumed;
}

/// `usual`: a run that is only named by its model.
/// Order: rules for several keys, model, then one table after the other. The model comes first, because rules
/// about layers need it; find_conflict() comes last, because it reads the complete RunSpec.
RunConfig resolve(Settings s, const fs::path& file, const fs::path& base, const std::set<std::string>& open,
                  bool usual = false) {
  validate_combinations(s);
  RunConfig c;
  c.file = file;
  set_model(s, base, c);
  c.assumed = assume_usual_run(s, usual, c.model.max_positions);
  if (!c.assumed.empty()) validate_combinations(s);  // for the assumed values
  validate_against_layers(s, c.model.layers, open);
  set_tables(s, base, c);
  if (const std::optional<Conflict> conflict = find_conflict(c.run, open))
    throw usage_error(conflict->sentence, conflict->hint, s.where(conflict->key));
  for (const auto& [key, v] : s.values()) c.given[key] = v.where;
  for (const std::string& key : c.assumed) c.given.erase(key);
  if (!c.estimator_rule_at.file.empty()) c.given["memory.estimator"] = c.estimator_rule_at;
  c.resolved = resolved_text(s, base);
  return c;
}

}  // namespace

RunConfig parse_run(const std::string& toml, const std::string& name, const fs::path& base,
                    const std::vector<Override>& overrides, const std::set<std::string>& open) {
  return resolve(Settings(name, read_toml(toml, name), overrides), {}, base, open);
}

/// An empty file name is the built-in run. Paths in the file are relative to its folder, not to the current
/// one.
RunConfig load_run(const fs::path& file, const std::vector<Override>& overrides,
                   const std::set<std::string>& open) {
  if (file.empty()) return parse_run("", "", fs::current_path(), overrides, open);
  const fs::path path = fs::absolute(file).lexically_normal();
  const std::string text = read_text_file(path, kMaxTomlBytes, "run file", {});
  return resolve(Settings(file.string(), read_toml(text, file.string()), overrides), path, path.parent_path(),
                 open);
}

/// A name that is both a preset and a file is the preset; "./NAME" names the file.
RunConfig run_for_model(const std::string& preset_or_path, const std::vector<Override>& overrides,
                        const std::set<std::string>& open) {
  Settings s("", {}, overrides);
  const fs::path path = resolve_path(preset_or_path, fs::current_path());
  const Where where{"--model"};
  std::error_code ec;
  const bool is_path = preset_or_path.ends_with(".json") || preset_or_path.find('/') != preset_or_path.npos;
  if (find_preset(preset_or_path))
    s.set("model.preset", text_value(preset_or_path, where));
  else if (is_path || fs::exists(path, ec))
    s.set("model.config", text_value(path.string(), where));
  else
    throw usage_error(fmt::format("'{}' is neither a built-in model nor a config.json{}",
                                  escaped(preset_or_path, 80), did_you_mean(preset_or_path, preset_names())),
                      "`trainhost models` lists the built-in models", where);
  return resolve(std::move(s), {}, fs::current_path(), open, true);
}

double lr_at(const OptimizerConfig& o, std::uint64_t t, std::uint64_t steps) {
  if (t < o.warmup_steps) return o.lr * static_cast<double>(t + 1) / static_cast<double>(o.warmup_steps);
  if (o.schedule == Schedule::kConstant) return o.lr;
  // A run that ends during warm-up has no decay; 1 avoids a division by zero.
  const std::uint64_t decay_steps = steps > o.warmup_steps ? steps - o.warmup_steps : 1;
  assert(t >= o.warmup_steps);
  const double progress =
      std::min(1.0, static_cast<double>(t - o.warmup_steps) / static_cast<double>(decay_steps));
  const double decay =
      o.schedule == Schedule::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return o.min_lr + (o.lr - o.min_lr) * decay;
}

}  // namespace trainhost::runfile
