// Declares `plugins` and its commands.
#include "tools/trainhost/shared_options.hpp"

namespace trainhost::cli {
namespace {

void add_plugins_check(Parser& p, CLI::App& plugins) {
  auto [app, a] = p.add<PluginsCheckArguments>(
      plugins, "check", "Check that a plugin conforms to the interface.",
      "Exit code: 0 all checks passed, 5 a check failed, 2 no such plugin or option.\n"
      "Example:\n  trainhost plugins check ./acme-mamba.so --level 5 --junit check.xml");
  add_text(*app, "FILE.so|ID", a->plugin, kNoType, "Check the plugin in this file or with this id.");
  // The range is validated in command_plugins_check.cpp, where --fuzz raises the level.
  app->add_option("--level", a->level, "Run the checks of levels 1 to N, at most 10 [5].")->option_text("N");
  add_text(*app, "--only", a->only, "ID,...", "Run only these checks or levels, e.g. E-014,C-020,3.");
  add_text(*app, "--skip", a->skip, "ID,...", "Skip these checks or levels.");
  // --json has an optional value here, unlike the flag of the other commands.
  app->add_option_function<std::string>(
         "--json", [a = a](const std::string& file) { a->json = file; },
         "Write the report as JSON to FILE [standard output].")
      ->option_text("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
  add_text(*app, "--junit", a->junit, "FILE", "Write the report as JUnit XML to FILE.");
  app->add_option("--deadline", a->deadline_s, "Fail a check that takes longer [10].")
      ->option_text("SECONDS");
  app->add_option("--seed", a->seed, "Use this random seed for generated cases [1].")->option_text("N");
  app->add_option(
         "--fuzz", a->fuzz_s,
         "Generate random cases in each check of level 9 for this many seconds; raises --level to 9.")
      ->option_text("SECONDS");
  add_text(*app, "--explain", a->explain, "ID", "Print what a check tests and how to fix a failure.");
  add_text(*app, "--pages", a->pages, "DIR", "Write one page of documentation per check to DIR.");
  add_plugin_path(*app, a->plugin_path);
  app->add_flag("--list", a->list, "List every check.");
  app->add_flag("-q,--quiet", a->quiet, "Print failed checks only.");
  app->add_flag("-v,--verbose", a->verbose, "Print passed and skipped checks too.");
  // Without help and group: the worker is not listed. It must be a command, because its process is started as
  // this program.
  p.add<PluginsCheckWorkerArguments>(plugins, "check-worker", "", "").first->group("");
}

}  // namespace

void add_plugins(Parser& p) {
  CLI::App* plugins = p.root.add_subcommand("plugins", "List, inspect, create and check plugins.");
  plugins->require_subcommand(0, 1);
  plugins->allow_extras();
  plugins->footer("Example:\n  trainhost plugins list");
  // `trainhost plugins` alone lists the plugins.
  p.results.emplace_back(plugins, []() -> Arguments { return PluginsListArguments{}; });
  auto [list, l] =
      p.add<PluginsListArguments>(*plugins, "list", "List every plugin file with its status and the reason.",
                                  "Example:\n  trainhost plugins list -v");
  add_common(*list, l->common, kPlugins);
  auto [info, i] = p.add<PluginsInfoArguments>(*plugins, "info",
                                               "Print the manifest of one plugin without running its code.",
                                               "Example:\n  trainhost plugins info cpu");
  add_common(*info, i->common, kPlugins);
  add_text(*info, "NAME", i->plugin, "(required)", "Describe the plugin with this id or in this file.")
      ->required();
  auto [create, n] =
      p.add<PluginsNewArguments>(*plugins, "new", "Create a plugin project: source, build, tests and CI.",
                                 "Example:\n  trainhost plugins new acme-conv --kind=estimator --lang=rust");
  add_text(*create, "NAME", n->name, "(required)", "Give the plugin this id: a-z, 0-9, - and _.")->required();
  // plugin_template validates the values; the error for a missing one lists them.
  add_text(*create, "--kind", n->kind, "estimator|trainer",
           "Create an estimator (predicts the memory of a run) or a trainer (runs it) (required).");
  add_text(*create, "--lang", n->language, "c|c++|rust", "Write the project in this language (required).");
  add_text(*create, "--family", n->family, "FAMILY",
           "Support this model_type of config.json; estimators only [NAME].");
  add_text(*create, "--dir", n->directory, "DIR", "Write to this folder, which is new or empty [NAME].");
  add_plugins_check(p, *plugins);
}

}  // namespace trainhost::cli
