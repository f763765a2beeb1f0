// The entry points of run_config.hpp: a run from a file, from text, from a model alone, and the check of a
// file, which reports all errors.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "core/base/text.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/python_script.hpp"
#include "core/runfile/resolve_settings.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"
#include "core/runfile/toml_guard.hpp"
#include "core/runfile/toml_read.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {

namespace {

/// The option that a name or a file other than a run file belongs to: a hint, or "".
std::string option_for(const fs::path& file) {
  const std::string name = escaped(file.string(), 200), extension = file.extension().string();
  std::error_code ec;
  if (!fs::exists(file, ec)) {
    const std::string preset = planned_model(file.string());
    return find_preset(preset) ? fmt::format("--model={} plans this model", preset) : "";
  }
  if (fs::is_directory(file, ec))
    return fs::exists(file / "config.json", ec) ? fmt::format("--model={}/config.json plans this model", name)
                                                : "";
  const auto is = [&](std::initializer_list<const char*> all) {
    return std::find(all.begin(), all.end(), extension) != all.end();
  };
  if (is({".txt", ".md", ".jsonl", ".ndjson", ".csv", ".tsv", ".bin"}))
    return fmt::format("a run file is TOML; --set data.train={} trains on this file", name);
  if (is({".yaml", ".yml", ".sh", ".args"}))
    return fmt::format("a run file is TOML; `trainhost plan --from {}` plans the job of another framework",
                       name);
  if (is({".json"}))
    return fmt::format(
        "a run file is TOML; --model={0} plans a config.json, `trainhost plan --from {0}` the "
        "job of another framework",
        name);
  return "";
}

std::string read_run_file(const fs::path& path, const fs::path& file) {
  return read_configuration(path, file.string(), kMaxTomlBytes, "run file", {});
}

}  // namespace

/// An empty file name is the built-in run. Paths in the file are relative to its folder, not to the current
/// one.
RunConfig load_run(const fs::path& file, const std::vector<Override>& overrides,
                   const std::set<std::string>& open) {
  if (file.empty()) return parse_run("", "", fs::current_path(), overrides, open);
  const fs::path path = fs::absolute(file).lexically_normal();
  std::vector<Entry> entries;
  try {
    entries = read_toml(read_run_file(path, file), file.string());
  } catch (const Error& e) {
    const std::string hint = option_for(file);
    throw hint.empty() ? e : Error(e.code(), e.what(), hint, e.where());
  }
  return resolve_settings(Settings(file.string(), entries, overrides), path, path.parent_path(), open);
}

RunConfig parse_run(const std::string& toml, const std::string& name, const fs::path& base,
                    const std::vector<Override>& overrides, const std::set<std::string>& open) {
  return resolve_settings(Settings(name, read_toml(toml, name), overrides), {}, base, open);
}

/// A name that is both a preset and a file is the preset; "./NAME" names the file.
static void set_model(Settings& s, const std::string& preset_or_path) {
  const Where where{"--model"};
  // The usual case: a plan loads dozens of variations of the run.
  if (find_preset(preset_or_path)) return s.set("model.preset", text_value(preset_or_path, where));
  const fs::path path = resolve_path(preset_or_path, fs::current_path());
  std::error_code ec;
  const bool is_path = preset_or_path.ends_with(".json") || preset_or_path.find('/') != preset_or_path.npos;
  if (const std::string preset = canonical_name("model.preset", preset_or_path);
      find_preset(preset) && !fs::exists(path, ec))
    s.set("model.preset", text_value(preset, where));
  else if (is_hub_name(preset_or_path, fs::current_path()))
    throw usage_error(
        fmt::format("'{}' is neither a built-in model nor a file here{}", escaped(preset_or_path, 80),
                    suggest_model(preset_or_path)),
        fmt::format(
            "`hf download {0} config.json --local-dir {1}` fetches its sizes for --model={1}/config.json",
            escaped(preset_or_path, 80), escaped(preset_or_path.substr(preset_or_path.find('/') + 1), 80)),
        where);
  else if (fs::exists(path, ec) || (is_path && matching_models(preset_or_path).empty()))
    s.set("model.config", text_value(path.string(), where));
  else
    throw usage_error(fmt::format("'{}' is neither a built-in model nor a config.json{}",
                                  escaped(preset_or_path, 80), suggest_model(preset_or_path)),
                      "`trainhost models` lists the built-in models", where);
}

RunConfig run_for_model(const std::string& preset_or_path, const std::vector<Override>& overrides,
                        const std::set<std::string>& open) {
  Settings s("", {}, overrides);
  set_model(s, preset_or_path);
  return resolve_settings(std::move(s), {}, fs::current_path(), open, true);
}

namespace {

bool before(const Where& a, const Where& b) {
  return std::pair(a.line, a.column) < std::pair(b.line, b.column);
}

/// The key whose value is at the position of an error: the last one that begins before it.
std::string key_at(const Where& where, const std::vector<Entry>& entries,
                   const std::vector<Override>& overrides) {
  for (const Override& o : overrides)
    if (where.file == o.option || where.file == "--set " + o.key) return o.key;
  if (where.line == 0 || entries.empty() || entries[0].key_where.file != where.file) return "";
  std::string key;
  for (const Entry& e : entries)
    if (!before(where, e.key_where)) key = e.key;
  return key;
}

/// Sets the keys that the errors do not name yet, and sorts them.
void complete_errors(std::vector<RunFileError>& errors, const std::vector<Entry>& entries,
                     const std::vector<Override>& overrides) {
  for (RunFileError& e : errors)
    if (e.key.empty()) e.key = key_at(e.error.where(), entries, overrides);
  sort_errors(errors);
}

}  // namespace

void sort_errors(std::vector<RunFileError>& errors) {
  std::stable_sort(errors.begin(), errors.end(), [](const RunFileError& a, const RunFileError& b) {
    const Where &x = a.error.where(), &y = b.error.where();
    if ((x.line == 0) != (y.line == 0)) return y.line == 0;
    return x.file == y.file && before(x, y);
  });
}

CheckedRun check_run(const std::string& toml, const std::string& name, const fs::path& file,
                     const fs::path& base, const std::vector<Override>& overrides) {
  CheckedRun out;
  std::vector<Entry> entries;
  try {
    entries = read_toml(toml, name, &out.errors);
  } catch (const Error& e) {  // no TOML: the parser stops at the first error
    out.errors.push_back({e});
    return out;
  }
  out.run = resolve_settings(Settings(name, entries, overrides, &out.errors), file, base, {});
  complete_errors(out.errors, entries, overrides);
  return out;
}

CheckedRun check_run_for_model(const std::string& preset_or_path, const std::vector<Override>& overrides) {
  CheckedRun out;
  Settings s("", {}, overrides, &out.errors);
  try {
    set_model(s, preset_or_path);
  } catch (const Error& e) {  // the rules need the model
    out.errors.push_back({e});
    complete_errors(out.errors, {}, overrides);
    return out;
  }
  out.run = resolve_settings(std::move(s), {}, fs::current_path(), {}, true);
  complete_errors(out.errors, {}, overrides);
  return out;
}

CheckedRun check_run(const fs::path& file, const std::vector<Override>& overrides) {
  if (file.empty()) return check_run("", "", {}, fs::current_path(), overrides);
  const fs::path path = fs::absolute(file).lexically_normal();
  try {
    return check_run(read_run_file(path, file), file.string(), path, path.parent_path(), overrides);
  } catch (const Error& e) {
    return {{{e}}, {}};
  }
}

}  // namespace trainhost::runfile
