// Words of the command line that several commands share, and the way from them to a run configuration and a
// registry.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/planning/replan.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::cli {

struct Options {
  std::string run_file;                  // RUN.toml; "" = the built-in run
  std::vector<std::string> sets;         // --set KEY=VALUE
  std::vector<std::string> plugin_path;  // --plugin-path DIR
  std::string model, backend;            // --model, --backend
  bool json = false, quiet = false;
  int verbose = 0;
};

enum Uses : unsigned { kRunFile = 1, kModel = 2, kBackend = 4, kPlugins = 8 };

/// Adds the shared options that the command uses, with their help.
void add_options(CLI::App& app, Options& o, unsigned uses);

/// What --set and --backend override; a --set without '=' throws usage_error.
std::vector<runfile::Override> overrides(const Options& o);

/// The run configuration these words mean; --backend wins over the run file.
runfile::RunConfig load_config(const Options& o, const std::vector<runfile::Override>& more = {},
                               const std::set<std::string>& open = {});

/// A scanned registry for that run. `c` may be null (no run file involved).
std::unique_ptr<plugin::Registry> make_registry(const Options& o, const runfile::RunConfig* c);

/// The words this process was started with, quoted for a shell where they need it: what a page says made it.
std::string command_line();
void remember_command_line(int argc, char** argv);  // once, by main

/// The run that these words mean, and variations of it: `more` first, then what is varied, the last one
/// winning.
planning::Source source_of(const Options& o, const std::vector<runfile::Override>& more);

/// "a,b" as {"a", "b"}; empty parts are left out.
std::vector<std::string> split_commas(const std::string& text);

/// For CLI::Option::check: "" where `text` is a whole number in these limits, else one sentence.
std::string whole_number(const std::string& text, std::uint64_t least, std::uint64_t most);
inline auto whole(std::uint64_t least, std::uint64_t most) {
  return [=](const std::string& text) { return whole_number(text, least, most); };
}

/// One command: adds itself to the application; run() is called when its words were given.
struct Command {
  virtual ~Command() = default;
  virtual void add(CLI::App& root) = 0;
  virtual CLI::App* app() const = 0;
  virtual Exit run() = 0;
};
std::unique_ptr<Command> train_command();
std::unique_ptr<Command> plan_command();
std::unique_ptr<Command> sweep_command();
std::unique_ptr<Command> plugins_command();
std::unique_ptr<Command> models_command();
std::unique_ptr<Command> devices_command();
std::unique_ptr<Command> init_command();
std::unique_ptr<Command> data_command();
std::unique_ptr<Command> generate_command();
std::unique_ptr<Command> verify_command();
std::unique_ptr<Command> search_command();

}  // namespace trainhost::cli
