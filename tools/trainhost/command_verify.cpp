// trainhost verify: the falsification tests of the contracts, against real trainers. Exit 5 when one is
// falsified.
#include "core/verify/verify.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/planning/dataset_options.hpp"
#include "core/training/batches.hpp"
#include "core/verify/builtin_run.hpp"
#include "core/verify/real_trainers.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

class Verify : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("verify", "try to falsify the contracts against real trainers");
    add_options(*app_, o_, kRunFile | kBackend | kPlugins);
    app_->add_option("--only", only_, "these checks alone, with commas")->option_text("ID,ID");
    app_->footer(
        "Example:\n  trainhost verify --backend=cpu --only MEM-002,GPU-007\n"
        "Checks: MEM-001 to MEM-005 and MEM-EXACT-001 (memory), GPU-001 to GPU-008 (what trainers compute). "
        "With no backend\n"
        "named, the first are asked of the cpu trainer and the second of cuda. MEM-002 brings the row "
        "MEM-002/run, the run's\n"
        "own recompute policy, which is only reported.\n"
        "Without a run file a model of a tenth of a million weights is trained; train.steps limits every "
        "check.\n"
        "A run file that names [plugin.cuda] mode is judged in that mode alone.");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    const std::vector<const verify::Check*> checks = verify::select(only_);
    const runfile::RunConfig c = load();
    // One family of checks after the other: each has its own subjects, and only one may hold plugins at a
    // time.
    std::vector<verify::Result> results;
    for (const bool memory : {true, false}) {
      std::vector<const verify::Check*> family;
      for (const verify::Check* check : checks)
        if (check->id.starts_with("MEM") == memory) family.push_back(check);
      if (family.empty()) continue;
      for (verify::Result& r : judge(c, memory, family)) results.push_back(std::move(r));
    }
    print(results);
    return verify::exit_of(results);
  }

 private:
  std::vector<verify::Result> judge(const runfile::RunConfig& c, bool memory,
                                    const std::vector<const verify::Check*>& checks) const {
    verify::PluginSubjects subjects(c, backend_of(c, memory), [&](const runfile::RunConfig& in_mode) {
      return make_registry(o_, &in_mode);
    });
    verify::Context context(c, subjects);
    const char* small =
        std::getenv("TRAINHOST_VERIFY_SMALL");  // where a 350M model would take hours: emulations, tests
    context.small = small && std::string(small) == "1";
    context.plugin_path.assign(o_.plugin_path.begin(), o_.plugin_path.end());
    for (auto& p : context.plugin_path) p = std::filesystem::absolute(p);
    context.plugin_path.insert(context.plugin_path.end(), c.plugin_path.begin(), c.plugin_path.end());
    if (o_.verbose) context.say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
    return verify::run_checks(context, checks);
  }

  runfile::RunConfig load() const {
    runfile::RunConfig c = o_.run_file.empty()
                               ? runfile::parse_run(verify::builtin_run_toml(), "",
                                                    std::filesystem::current_path(), overrides(o_))
                               : load_config(o_);
    planning::adopt_vocabulary(c);
    // Which precisions a trainer can do is its own answer here; the rest is refused as train refuses it.
    runfile::RunConfig any_precision = c;
    any_precision.precision = "fp32";
    runfile::refuse_unsupported(any_precision);
    return c;
  }

  /// The backend that is named. Without a name the memory contracts are about the cpu trainer, which every
  /// machine has, and the rest is about cuda, whatever "auto" would train with.
  static std::string backend_of(const runfile::RunConfig& c, bool memory) {
    return c.backend != "auto" ? c.backend : memory ? "cpu" : "cuda";
  }

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
