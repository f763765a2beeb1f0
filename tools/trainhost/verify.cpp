// trainhost verify: the falsification tests of the contracts, against real trainers. Exit 5 when one is falsified.
#include "core/verify/verify.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/run/batches.hpp"
#include "core/verify/builtin_run.hpp"
#include "core/verify/plugins.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

class Verify : public Command {
 public:
  void add(CLI::App& root) override {
    app_ =
        root.add_subcommand("verify", "try to falsify the contracts against a real trainer (cuda when none is named)");
    add_options(*app_, o_, kRunFile | kBackend | kPlugins);
    app_->add_option("--only", only_, "these checks alone, with commas")->option_text("ID,ID");
    app_->footer(
        "Example:\n  trainhost verify --backend=cpu --only GPU-002,GPU-007\n"
        "Without a run file a model of a tenth of a million weights is trained; train.steps limits every check.\n"
        "A run file that names [plugin.cuda] mode is judged in that mode alone.");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    const std::vector<const verify::Check*> checks = verify::select(only_);
    const config::RunConfig c = load();
    verify::PluginSubjects subjects(c, backend_of(c),
                                    [&](const config::RunConfig& in_mode) { return make_registry(o_, &in_mode); });
    verify::Context context(c, subjects);
    const char* small =
        std::getenv("TRAINHOST_VERIFY_SMALL");  // where a 350M model would take hours: emulations, tests
    context.small = small && std::string(small) == "1";
    context.plugin_path.assign(o_.plugin_path.begin(), o_.plugin_path.end());
    for (auto& p : context.plugin_path) p = std::filesystem::absolute(p);
    context.plugin_path.insert(context.plugin_path.end(), c.plugin_path.begin(), c.plugin_path.end());
    if (o_.verbose) context.say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
    const std::vector<verify::Result> results = verify::run_checks(context, checks);
    print(results);
    return verify::exit_of(results);
  }

 private:
  config::RunConfig load() const {
    config::RunConfig c = o_.run_file.empty() ? config::parse_run(verify::builtin_run_toml(), "",
                                                                  std::filesystem::current_path(), overrides(o_))
                                              : load_config(o_);
    run::adopt_vocabulary(c);
    // Which precisions a trainer can do is its own answer here; the rest is refused as train refuses it.
    config::RunConfig any_precision = c;
    any_precision.precision = "fp32";
    config::refuse_unsupported(any_precision);
    return c;
  }

  /// The backend that is named; verify without a name is about cuda, whatever "auto" would train with.
  static std::string backend_of(const config::RunConfig& c) { return c.backend == "auto" ? "cuda" : c.backend; }

  void print(const std::vector<verify::Result>& results) const {
    if (o_.json) fmt::print("{}\n", verify::results_json(results));
    if (!o_.quiet) {
      const std::string table = verify::results_table(results, report::terminal_of(o_.json ? 2 : 1));
      fmt::print(o_.json ? stderr : stdout, "{}", table);
    }
  }

  CLI::App* app_ = nullptr;
  Options o_;
  std::string only_;
};

}  // namespace

std::unique_ptr<Command> verify_command() { return std::make_unique<Verify>(); }

}  // namespace trainhost::cli
