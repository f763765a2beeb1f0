// trainhost train: the main job.
#include "core/training/train.hpp"

#include "core/planning/dataset_options.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

class Train : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("train",
                               "plan a run, then train it (what trainhost does when no command is given)");
    add_options(*app_, o_, kRunFile | kBackend | kPlugins);
    app_->add_option("--steps", steps_, "updates to make; wins over train.steps")->option_text("N");
    app_->add_flag("--resume", resume_, "go on from the newest checkpoint of output.dir, with the same bits");
    app_->add_flag("--no-fallback", no_fallback_, "stop (exit 4) when the backend asked for cannot be used");
    app_->add_option("--profile", profile_,
                     "time every operation; write the first steps as a Chrome trace (ui.perfetto.dev)")
        ->option_text("FILE");
    app_->footer("Example:\n  trainhost train run.toml --backend=cuda --set train.micro_batch=8");
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    std::vector<runfile::Override> more;
    if (!steps_.empty()) more.push_back({"train.steps", steps_, "--steps"});
    runfile::RunConfig c = load_config(o_, more);
    planning::adopt_vocabulary(c);
    runfile::refuse_unsupported(c);
    auto registry = make_registry(o_, &c);
    training::TrainOptions t;
    t.resume = resume_;
    t.allow_fallback = !no_fallback_;
    t.json = o_.json;
    t.quiet = o_.quiet;
    t.verbosity = o_.verbose;
    if (app_->count("--profile") && profile_.empty())
      throw usage_error("--profile takes a file", "for example --profile trace.json");
    t.profile = profile_;
    return training::train(c, *registry, t);
  }

 private:
  CLI::App* app_ = nullptr;
  Options o_;
  std::string steps_, profile_;
  bool resume_ = false, no_fallback_ = false;
};

}  // namespace

std::unique_ptr<Command> train_command() { return std::make_unique<Train>(); }

}  // namespace trainhost::cli
