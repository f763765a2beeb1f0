// trainhost plugins check: arguments to settings, results to text, JSON and JUnit XML. The checks are
// core/plugin_validator. Order of the outputs: each result when its check ends, then the summary, then the
// files; so an interrupted run shows what it had found.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/base/text.hpp"
#include "core/plugin_validator/check_pages.hpp"
#include "core/plugin_validator/report_output.hpp"
#include "core/plugin_validator/runner.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

namespace fs = std::filesystem;

// Plain files, not atomic ones: /dev/stdout and pipes must work as a target.
void write_text(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw run_error("cannot write " + escaped(file), "the directory must exist");
}

const plugin_validator::Check& find_check(const std::string& id) {
  if (const plugin_validator::Check* c = plugin_validator::find(id)) return *c;
  std::vector<std::string> ids;
  for (const plugin_validator::Check& c : plugin_validator::checks()) ids.push_back(c.id);
  throw usage_error("no check '" + escaped(id) + "'" + did_you_mean(id, ids),
                    "trainhost plugins check --list");
}

// Quiet: warnings about other plugins are not a part of this plugin's report.
std::unique_ptr<plugin::Registry> quiet_registry(const std::vector<std::string>& plugin_path) {
  CommonArguments a;
  a.plugin_path = plugin_path;
  a.quiet = true;
  return make_registry(a, nullptr);
}

/// The file to check: an existing file as typed, else the file of the plugin with that id.
fs::path plugin_file(const PluginsCheckArguments& a) {
  const std::string& name = a.plugin;
  std::error_code ignored;
  // Also a path that does not exist, so that the message is about the file and not about an id.
  const bool is_path = name.find('/') != std::string::npos || name.ends_with(".so");
  if (is_path || fs::exists(name, ignored)) {
    // A symbolic link without a target is a file to check: its absence is the finding of a check.
    if (!fs::exists(fs::symlink_status(name, ignored)))
      throw usage_error("no file " + escaped(name),
                        "give the path of a plugin, or an id that trainhost plugins list prints");
    const fs::path p = fs::absolute(name);
    return fs::exists(p, ignored) ? fs::canonical(p) : p;
  }
  const auto registry = quiet_registry(a.plugin_path);
  if (const plugin::Candidate* c = registry->find(name)) return c->file;
  std::vector<std::string> ids;
  for (const plugin::Candidate& c : registry->candidates())
    if (!c.manifest.id.empty()) ids.push_back(c.manifest.id);
  throw usage_error("no plugin '" + escaped(name) + "'" + did_you_mean(name, ids),
                    "give a file, or an id that trainhost plugins list prints");
}

/// Whether the file is no shared library at all, for example a text. False where it cannot be read.
bool is_other_file(const fs::path& file) {
  constexpr std::string_view kElfMagic(
      "\x7f"
      "ELF",
      4);
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  std::ifstream in(file, std::ios::binary);
  std::string begin(kElfMagic.size(), '\0');
  if (!in) return false;
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return !in.bad() && begin != kElfMagic;
}

/// The one error of such a file, in place of a list of checks that were skipped.
Error not_a_plugin(const PluginsCheckArguments& a) {
  return Error(Exit::kFalsified,
               fmt::format("'{}' is not a plugin: it is no shared library", escaped(a.plugin, 4096)),
               "give the .so file that the linker writes with -shared; trainhost plugins check --explain "
               "C-003 prints the rule");
}

/// Sets the estimator that others are compared with, if it is installed.
void find_references(const PluginsCheckArguments& a, plugin_validator::Settings& s) {
  const auto registry = quiet_registry(a.plugin_path);
  // Optional: the check that needs it is skipped without.
  if (const plugin::Candidate* c = registry->find("llama")) s.reference_estimator = c->file;
}

void write_pages(const std::string& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);  // a failure is reported by the first write
  for (const auto& [name, text] : plugin_validator::pages())
    write_text((fs::path(directory) / name).string(), text);
}

/// Throws usage_error for values out of range.
plugin_validator::Settings settings_of(const PluginsCheckArguments& a) {
  // Checked here and not by the parser, because the ranges belong to the validator.
  if (a.level < 1 || a.level > plugin_validator::kLevels)
    throw usage_error(
        fmt::format("--level {} is not a level from 1 to {}", a.level, plugin_validator::kLevels));
  // Written positively, so that NaN is refused.
  if (!(a.deadline_s >= 0.05 && a.deadline_s <= 3600))
    throw usage_error(fmt::format("--deadline {:g} is not from 0.05 to 3600 seconds", a.deadline_s));
  plugin_validator::Settings s;
  s.file = plugin_file(a);
  s.level = a.level;
  s.only = split_commas(a.only);
  s.skip = split_commas(a.skip);
  s.deadline = a.deadline_s;
  s.seed = a.seed;
  if (a.fuzz_s) {
    if (!(*a.fuzz_s >= 0.1 && *a.fuzz_s <= 1e6))
      throw usage_error(fmt::format("--fuzz {:g} is not from 0.1 to 1000000 seconds", *a.fuzz_s));
    s.fuzz_seconds = *a.fuzz_s;
    // Random cases are generated in level 9 only.
    s.level = std::max(s.level, 9);
  }
  // Finding references scans the plugin path, which levels below 6 do not need.
  if (s.level >= 6 || !s.only.empty()) find_references(a, s);
  return s;
}

}  // namespace

// The worker reads its task from standard input (core/plugin_validator).
Exit run(const PluginsCheckWorkerArguments&) {
  plugin_validator::run_worker();
  return Exit::kDone;
}

Exit run(const PluginsCheckArguments& a) {
  // These three need no plugin.
  if (a.list) return fmt::print("{}", plugin_validator::list_text()), Exit::kDone;
  if (!a.explain.empty())
    return fmt::print("{}", plugin_validator::explain(find_check(a.explain))), Exit::kDone;
  if (!a.pages.empty()) return write_pages(a.pages), Exit::kDone;
  if (a.plugin.empty())
    throw usage_error("trainhost plugins check needs the file or id of a plugin",
                      "trainhost plugins check --list lists the checks");
  const plugin_validator::Settings s = settings_of(a);
  const bool json_on_stdout = a.json && (a.json->empty() || *a.json == "-");
  // stdout must be one JSON document, so text for people goes to stderr.
  std::FILE* text_output = json_on_stdout ? stderr : stdout;
  // Its lines are kept until it is known whether the check of the file format was among those to run.
  const bool other_file = !a.verbose && is_other_file(s.file);
  std::string lines;
  bool not_elf = false;
  const plugin_validator::Report r = plugin_validator::run_checks(s, [&](const plugin_validator::Result& x) {
    if (other_file) {
      lines += plugin_validator::line_of(x, a.verbose);
      not_elf = not_elf || (x.check->id == std::string_view("C-003") &&
                            x.verdict.outcome == plugin_validator::Outcome::kFail);
      return;
    }
    fmt::print(text_output, "{}", plugin_validator::line_of(x, a.verbose));
    // Each line at once: a check may take seconds, and the next one may end the process.
    std::fflush(text_output);
  });
  if (!not_elf) fmt::print(text_output, "{}", lines);
  if (!a.quiet && !not_elf) fmt::print(text_output, "{}", plugin_validator::summary_of(r));
  if (json_on_stdout) fmt::print("{}", plugin_validator::json_of(r));
  if (a.json && !json_on_stdout) write_text(*a.json, plugin_validator::json_of(r));
  if (!a.junit.empty()) write_text(a.junit, plugin_validator::junit_of(r));
  if (not_elf) throw not_a_plugin(a);
  return r.all_passed() ? Exit::kDone : Exit::kFalsified;
}

}  // namespace trainhost::cli
