// See command_plugins_check.hpp.
#include "tools/trainhost/command_plugins_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/base/text.hpp"
#include "core/plugin_validator/check_pages.hpp"
#include "core/plugin_validator/report_output.hpp"
#include "core/plugin_validator/runner.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/plugin_validator/worker.hpp"

namespace trainhost::cli {
namespace {

namespace fs = std::filesystem;

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush())
    throw run_error("cannot write " + escaped(file), "give a file in a directory that is there");
}

const plugin_validator::Check& known(const std::string& id) {
  if (const plugin_validator::Check* c = plugin_validator::find(id)) return *c;
  std::vector<std::string> ids;
  for (const plugin_validator::Check& c : plugin_validator::checks()) ids.push_back(c.id);
  throw usage_error("there is no check '" + escaped(id) + "'" + did_you_mean(id, ids),
                    "trainhost plugins check --list");
}

}  // namespace

void PluginsCheck::add(CLI::App& plugins) {
  check_ = plugins.add_subcommand("check", "does a plugin keep the promises of the interface?");
  check_->add_option("FILE", name_, "the plugin's file, or its id")->option_text("FILE.so|ID");
  check_->add_option("--level", level_, "checks up to this level, 1 to 10 (5)")->option_text("N");
  check_->add_option("--only", only_, "these checks or levels alone: E-014,C-020,3")->option_text("ID,...");
  check_->add_option("--skip", skip_, "all but these checks or levels")->option_text("ID,...");
  check_->add_option("--json", json_file_, "the report as JSON, to a file or, without one, to stdout")
      ->option_text("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
  check_->add_option("--junit", junit_, "the report as JUnit XML")->option_text("FILE");
  check_->add_option("--deadline", deadline_, "seconds that one check may take (10)")->option_text("SECONDS");
  check_->add_option("--seed", seed_, "of everything that is random (1)")->option_text("N");
  check_
      ->add_option("--fuzz", fuzz_, "seconds that each check of level 9 draws cases for; raises --level to 9")
      ->option_text("SECONDS");
  check_->add_option("--explain", explain_, "what a check is for, and how to mend what breaks it")
      ->option_text("ID");
  check_->add_option("--pages", pages_, "writes a page of documentation for each check")->option_text("DIR");
  check_->add_option("--plugin-path", plugin_path_, "directory with plugins, searched first (repeatable)")
      ->option_text("DIR")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  check_->add_flag("--list", list_, "every check there is");
  check_->add_flag("-q,--quiet", quiet_, "only what is broken");
  check_->add_flag("-v,--verbose", verbose_, "what passed and what was skipped too");
  check_->footer(
      "Exit code: 0 all kept, 5 a promise broken, 2 no such plugin or option.\n"
      "Example:\n  trainhost plugins check ./acme-mamba.so --level 5 --junit check.xml");
  worker_ = plugins.add_subcommand("check-worker", "")->group("");
  for (CLI::App* a : {check_, worker_}) a->allow_extras();
}

/// An existing file as it is named, else the file of the plugin with that id.
fs::path PluginsCheck::file() const {
  std::error_code ignored;
  const bool a_path = name_.find('/') != std::string::npos || name_.ends_with(".so");
  if (a_path || fs::exists(name_, ignored)) {
    if (!fs::exists(fs::symlink_status(name_, ignored)))
      throw usage_error("there is no file " + escaped(name_),
                        "give the path of a plugin, or an id of trainhost plugins list");
    const fs::path p = fs::absolute(name_);
    return fs::exists(p, ignored) ? fs::canonical(p) : p;
  }
  Options o;
  o.plugin_path = plugin_path_, o.quiet = true;
  const auto registry = make_registry(o, nullptr);
  if (const plugin::Candidate* c = registry->find(name_)) return c->file;
  std::vector<std::string> ids;
  for (const plugin::Candidate& c : registry->candidates())
    if (!c.manifest.id.empty()) ids.push_back(c.manifest.id);
  throw usage_error("no plugin '" + escaped(name_) + "'" + did_you_mean(name_, ids),
                    "give a file, or an id of trainhost plugins list");
}

/// The plugins that others are compared with, where they stand beside this program.
void PluginsCheck::find_references(plugin_validator::Settings& s) const {
  Options o;
  o.plugin_path = plugin_path_, o.quiet = true;
  const auto registry = make_registry(o, nullptr);
  if (const plugin::Candidate* c = registry->find("cpu")) s.reference_trainer = c->file;
  if (const plugin::Candidate* c = registry->find("llama")) s.reference_estimator = c->file;
}

Exit PluginsCheck::write_pages() const {
  std::error_code failed;
  fs::create_directories(pages_, failed);
  for (const auto& [name, text] : plugin_validator::pages()) write((fs::path(pages_) / name).string(), text);
  return Exit::kDone;
}

Exit PluginsCheck::run() {
  if (worker_->parsed()) plugin_validator::run_worker();
  if (list_) return fmt::print("{}", plugin_validator::list_text()), Exit::kDone;
  if (!explain_.empty()) return fmt::print("{}", plugin_validator::explain(known(explain_))), Exit::kDone;
  if (!pages_.empty()) return write_pages();
  if (name_.empty())
    throw usage_error("plugins check needs a plugin's file or id",
                      "trainhost plugins check --list shows what is checked");
  if (level_ < 1 || level_ > plugin_validator::kLevels)
    throw usage_error(
        fmt::format("--level {}: there is no such level; 1 to {} exist", level_, plugin_validator::kLevels));
  if (!(deadline_ >= 0.05 && deadline_ <= 3600))
    throw usage_error(fmt::format("--deadline {:g}: 0.05 to 3600 seconds were expected", deadline_));
  plugin_validator::Settings s;
  s.file = file();
  s.level = level_, s.only = split_commas(only_), s.skip = split_commas(skip_);
  s.deadline = deadline_, s.seed = seed_;
  if (check_->count("--fuzz") > 0) {
    if (!(fuzz_ >= 0.1 && fuzz_ <= 1e6))
      throw usage_error(fmt::format("--fuzz {:g}: 0.1 to 1000000 seconds were expected", fuzz_));
    s.fuzz_seconds = fuzz_, s.level = std::max(s.level, 9);
  }
  if (s.level >= 6 || !s.only.empty()) find_references(s);
  const bool json = check_->count("--json") > 0,
             json_on_stdout = json && (json_file_.empty() || json_file_ == "-");
  std::FILE* people = json_on_stdout ? stderr : stdout;
  const plugin_validator::Report r = plugin_validator::run_checks(s, [&](const plugin_validator::Result& x) {
    fmt::print(people, "{}", plugin_validator::line_of(x, verbose_ > 0));
    std::fflush(people);
  });
  if (!quiet_) fmt::print(people, "{}", plugin_validator::summary_of(r));
  if (json_on_stdout) fmt::print("{}", plugin_validator::json_of(r));
  if (json && !json_on_stdout) write(json_file_, plugin_validator::json_of(r));
  if (!junit_.empty()) write(junit_, plugin_validator::junit_of(r));
  return r.kept() ? Exit::kDone : Exit::kFalsified;
}

}  // namespace trainhost::cli
