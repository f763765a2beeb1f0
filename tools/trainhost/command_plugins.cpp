// trainhost plugins list | info: the plugins that were found, their status and their manifests. Everything in
// a manifest comes from a file of a third party: it is escaped before it is printed, so that it cannot
// control the terminal, and bounded in length.
#include <fmt/format.h>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using Json = JsonValue;

const char* status_name(plugin::Status s) {
  return s == plugin::Status::kOk ? "ok" : s == plugin::Status::kUnavailable ? "unavailable" : "rejected";
}

/// One object for `list` and `info`. Keys never change; new ones are appended. Strings are escaped by the
/// JSON writer.
Json to_json(const plugin::Candidate& c) {
  return {{"name", c.manifest.id.empty() ? c.file.stem().string() : c.manifest.id},
          {"kind", c.manifest.kind},
          {"version", c.manifest.version},
          {"file", c.file.string()},
          {"status", status_name(c.status)},
          {"reason", c.reason},
          {"families", c.manifest.families},
          {"frameworks", c.manifest.frameworks},
          {"stage", c.stage == "validation" ? "gate" : c.stage},  // the value of 1.0
          {"code", c.code},
          {"hint", c.hint},
          {"native_domain", c.native.domain},
          {"native_code", c.native.code},
          {"summary", c.manifest.summary},
          {"options", c.manifest.options},
          {"priority", c.manifest.priority},
          {"abi", c.manifest.abi},
          {"device", c.manifest.device},
          {"interfaces", c.manifest.interfaces},
          {"modes", c.manifest.modes},
          {"dtypes", c.manifest.dtypes},
          {"cpu", c.manifest.cpu},
          {"requires", c.manifest.libraries},
          {"warnings", c.warnings},
          {"notes", c.notes},
          {"remembered", c.from_cache}};
}

std::string printed(const Json& j) { return j.dump(2); }

/// An argument with a slash or ending in .so is a file if that file exists; any other argument is an id. An
/// id has neither, so the two cannot be confused.
bool is_file(const std::string& argument) {
  std::error_code failed;
  return (argument.find('/') != argument.npos || argument.ends_with(".so")) &&
         std::filesystem::exists(argument, failed);
}

std::string id_or_file_name(const plugin::Candidate& c) {
  return c.manifest.id.empty() ? c.file.filename().string() : c.manifest.id;
}

/// One line of `list -v`: path, status, stage and code, reason, hint, notes, warnings.
std::string status_line(const plugin::Candidate& c) {
  std::string line = fmt::format("  {}  {}", escaped(c.file.string(), 4096), status_name(c.status));
  if (!c.code.empty()) line += fmt::format(" {}/{}", c.stage, c.code);
  if (!c.reason.empty()) line += ": " + escaped(c.reason, 1000);
  if (!c.hint.empty()) line += " (" + escaped(c.hint, 1000) + ")";
  for (const std::string& n : c.notes) line += "; " + escaped(n, 1000);
  if (c.from_cache) line += " [cached]";
  for (const std::string& w : c.warnings) line += "; warning: " + escaped(w, 1000);
  return line;
}

/// "llama mistral qwen2 qwen3 and 26 more"; `info` prints them all.
std::string first_families(const std::vector<std::string>& families) {
  constexpr std::size_t kShown = 4;
  const std::size_t n = std::min(kShown, families.size());
  const std::string shown =
      fmt::format("{}", fmt::join(families.begin(), families.begin() + static_cast<std::ptrdiff_t>(n), " "));
  return families.size() == n ? shown : fmt::format("{} and {} more", shown, families.size() - n);
}

const plugin::Candidate& find_by_id_or_file(const plugin::Registry& registry, const std::string& name) {
  if (const plugin::Candidate* c = registry.find(name)) return *c;
  std::vector<std::string> names;
  // A rejected file may have no id; its name identifies it too.
  for (const plugin::Candidate& c : registry.candidates()) {
    if (c.file == name || c.file.filename() == name || c.file.stem() == name) return c;
    names.push_back(id_or_file_name(c));
  }
  throw usage_error("no plugin '" + escaped(name) + "'" + did_you_mean(name, names),
                    "trainhost plugins list");
}

/// Adds a row unless the manifest has no value for it.
void add_optional_row(report::Table& t, const char* name, const std::vector<std::string>& values) {
  const std::string text = fmt::format("{}", fmt::join(values, " "));
  if (!text.empty()) t.row({name, escaped(text, 1000)});
}

/// `if_ok`: appended to the status ok.
/// json ignores if_ok: the field "status" has a fixed set of values.
void print_manifest(const plugin::Candidate& c, bool json, const char* if_ok = "") {
  if (json) return fmt::print(result_stream(), "{}\n", printed(to_json(c)));
  report::Table t("nl");
  add_optional_row(t, "name", {c.manifest.id});
  add_optional_row(t, "kind", {c.manifest.kind});
  add_optional_row(t, "version", {c.manifest.version});
  add_optional_row(t, "summary", {c.manifest.summary});
  add_optional_row(t, "families", c.manifest.families);
  add_optional_row(t, "frameworks", c.manifest.frameworks);
  add_optional_row(t, "options", c.manifest.options);
  if (c.manifest.kind == "estimator") t.row({"priority", std::to_string(c.manifest.priority)});
  add_optional_row(t, "abi", {c.manifest.abi});
  add_optional_row(t, "device", {c.manifest.device});
  add_optional_row(t, "interfaces", c.manifest.interfaces);
  add_optional_row(t, "modes", c.manifest.modes);
  add_optional_row(t, "dtypes", c.manifest.dtypes);
  add_optional_row(t, "cpu", c.manifest.cpu);
  add_optional_row(t, "requires", c.manifest.libraries);
  t.row({"file", escaped(c.file.string())});
  t.row({"status", status_name(c.status) + (c.code.empty() ? "" : fmt::format(" {}/{}", c.stage, c.code)) +
                       std::string(c.status == plugin::Status::kOk ? if_ok : "")});
  if (!c.reason.empty()) t.row({"reason", escaped(c.reason)});
  if (!c.hint.empty()) t.row({"hint", escaped(c.hint)});
  fmt::print("{}", t.str({.width = report::output_width()}));
}

}  // namespace

Exit run(const PluginsListArguments& a) {
  const auto registry = make_registry(a.common, nullptr);
  // Candidates are otherwise probed when they are first used; a list must give the final status of each.
  registry->probe_all();
  if (a.common.json) {
    Json all = Json::array();
    for (const plugin::Candidate& c : registry->candidates()) all.push_back(to_json(c));
    fmt::print(result_stream(), "{}\n", printed({{"plugins", std::move(all)}}));
    return Exit::kDone;
  }
  report::Table table("nnnnl");
  table.row({"name", "kind", "version", "status", "families, or reason"});
  table.rule();
  for (const plugin::Candidate& c : registry->candidates())
    table.row({escaped(id_or_file_name(c)), c.manifest.kind, escaped(c.manifest.version),
               status_name(c.status),
               c.reason.empty() ? escaped(first_families(c.manifest.families)) : escaped(c.reason)});
  fmt::print("{}", table.str({.width = report::output_width(), .drop = {2, 1}}));
  if (a.common.verbosity)
    for (const plugin::Candidate& c : registry->candidates())
      fmt::print("{}\n", report::wrapped(status_line(c), report::output_width(), "    "));
  return Exit::kDone;
}

Exit run(const PluginsInfoArguments& a) {
  // A file is read but not loaded, and the plugin path is not scanned: users examine files they do not trust
  // yet.
  if (is_file(a.plugin)) {
    print_manifest(plugin::inspect_file(std::filesystem::canonical(a.plugin)), a.common.json,
                   " (the file and its manifest are valid; it was not loaded)");
  } else {
    const auto registry = make_registry(a.common, nullptr);
    print_manifest(find_by_id_or_file(*registry, a.plugin), a.common.json);
  }
  return Exit::kDone;
}

}  // namespace trainhost::cli
