// See options.hpp.
#include "tools/trainhost/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/base/text.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/dataset_options.hpp"
#include "core/process/host_info.hpp"
#include "core/training/batches.hpp"

namespace trainhost::cli {
namespace {

std::string& remembered() {
  static std::string line;
  return line;
}

/// A word as a shell reads it back: in quotes where a letter of it means something there.
std::string quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string out = "'";
  for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Once a command: sweeps and answers load the run again and again.
void say_if_empty(const runfile::RunConfig& c, const std::string& file) {
  static bool said = false;
  const auto of_file = [&](const auto& key) { return key.second.file == file; };
  const bool plugins = std::any_of(c.plugin_option_lines.begin(), c.plugin_option_lines.end(),
                                   [](const auto& o) { return o.second.first > 0; });
  if (said || plugins || c.run.mode != RunMode::kFull || !c.plugin_path.empty() ||
      std::any_of(c.given.begin(), c.given.end(), of_file))
    return;
  said = true;
  fmt::print(stderr, "trainhost: {} sets nothing: this is the built-in run\n", escaped(file));
}

}  // namespace

std::string whole_number(const std::string& text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec == std::errc{} && end == text.data() + text.size() && n >= least && n <= most) return {};
  return fmt::format("'{}' is no whole number from {} to {}", escaped(text, 60), least, most);
}

std::string command_line() { return remembered(); }

void remember_command_line(int argc, char** argv) {
  std::string line = "trainhost";  // however it was found
  for (int i = 1; i < argc; ++i) line += " " + quoted(argv[i]);
  remembered() = line;
}

void add_options(CLI::App& app, Options& o, unsigned uses) {
  if (uses & kRunFile) {
    app.add_option("RUN", o.run_file, "run file (TOML); the built-in run when left out")
        ->option_text("RUN.toml");
    app.add_option("--set", o.sets, "override one key of the run file, e.g. --set train.micro_batch=8")
        ->option_text("KEY=VALUE")
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false);
  }
  if (uses & kModel)
    app.add_option("--model", o.model, "a preset or a config.json in place of a run file")
        ->option_text("PRESET|config.json");
  if (uses & kBackend)
    app.add_option("--backend", o.backend, "auto, cpu, cuda or a plugin's name")->option_text("NAME");
  if (uses & kPlugins)
    app.add_option("--plugin-path", o.plugin_path, "directory with plugins, searched first (repeatable)")
        ->option_text("DIR")
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false);
  app.add_flag("--json", o.json, "machine-readable stdout; everything human goes to stderr");
  app.add_flag("-q,--quiet", o.quiet, "only errors");
  app.add_flag("-v,--verbose", o.verbose, "say more");
}

std::vector<runfile::Override> overrides(const Options& o) {
  std::vector<runfile::Override> out;
  for (const std::string& s : o.sets) {
    auto at = s.find('=');
    if (at == std::string::npos || at == 0)
      throw usage_error("--set takes KEY=VALUE, got '" + escaped(s) + "'",
                        "for example --set train.micro_batch=8", {"--set", 0, 0});
    out.push_back({s.substr(0, at), s.substr(at + 1)});
  }
  if (!o.backend.empty()) out.push_back({"train.backend", o.backend, "--backend"});
  return out;
}

runfile::RunConfig load_config(const Options& o, const std::vector<runfile::Override>& more,
                               const std::set<std::string>& open) {
  std::vector<runfile::Override> all = overrides(o);
  all.insert(all.end(), more.begin(), more.end());
  if (!o.model.empty() && !o.run_file.empty())
    throw usage_error("--model stands in for a run file: give one of them, not both");
  if (!o.model.empty()) return runfile::run_for_model(o.model, all, open);
  if (o.run_file.empty()) return runfile::load_run({}, all, open);
  runfile::RunConfig c = runfile::load_run(o.run_file, all, open);
  if (!o.quiet) say_if_empty(c, o.run_file);
  return c;
}

std::unique_ptr<plugin::Registry> make_registry(const Options& o, const runfile::RunConfig* c) {
  std::vector<std::filesystem::path> line(o.plugin_path.begin(), o.plugin_path.end());
  for (auto& p : line) {
    if (!std::filesystem::is_directory(p))
      throw usage_error("--plugin-path: '" + escaped(p.string()) + "' is no directory",
                        "give the folder that holds the plugins");
    p = std::filesystem::canonical(p);  // the user's own word, from here
  }
  plugin::HostOptions host;
  unsigned cpus = cpu_count();
  host.thread_budget = c && c->threads ? c->threads : cpus;
  if (c) host.plugin_options = c->plugin_options;
  bool quiet = o.quiet;
  int verbose = o.verbose;
  host.log = [quiet, verbose](int level, const std::string& where, const std::string& text) {
    if (quiet && level < 3) return;
    if (level >= 1 || verbose > 1) fmt::print(stderr, "{}: {}\n", where, text);
  };
  host.cancelled = [] { return false; };
  host.probe_program = "/proc/self/exe";
  host.cache_file = plugin::default_cache_file();
  const std::vector<std::filesystem::path> folders =
      plugin::search_path(line, c ? c->plugin_path : std::vector<std::filesystem::path>{});
  if (c) host.allow = c->plugin_allow;
  for (const auto& f : folders)
    if (f != plugin::program_folder()) host.allow_in.push_back(f);
  auto r = std::make_unique<plugin::Registry>(folders, std::move(host));
  r->scan();
  if (c) planning::check_plugin_options(*c, *r), planning::check_backend_order(*c, *r);
  return r;
}

planning::Source source_of(const Options& o, const std::vector<runfile::Override>& more) {
  const auto load = [o, more](const planning::Settings& settings) {
    std::vector<runfile::Override> all = more;
    all.insert(all.end(), settings.begin(), settings.end());
    runfile::RunConfig c = load_config(o, all);
    planning::adopt_vocabulary(c);
    return c;
  };
  return {load, [o](const runfile::RunConfig& c) { return make_registry(o, &c); }};
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) out.push_back(part);
  return out;
}

}  // namespace trainhost::cli
