// trainhost plan: will it fit. Reads no data and asks no device.
#include "core/planning/dataset_options.hpp"
#include "core/planning/make_plan.hpp"

#include <fmt/format.h>

#include "core/checkpoint/output_file.hpp"
#include "core/planning/advice.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/report/terminal.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

constexpr const char *kHtml = "--html plan.html", *kCsv = "--csv plan.csv";

class Plan : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("plan", "the memory of a run, to the byte, and whether it fits");
    add_options(*app_, o_, kRunFile | kModel | kBackend | kPlugins);
    app_->add_option("--estimator", estimators_, "auto, all, or names with commas")
        ->option_text("auto|all|NAME,NAME");
    app_->add_option("--device", device_, "plan for this device (trainhost devices lists them)")
        ->option_text("NAME");
    app_->add_option("--budget", budget_, "memory of the compute tier, e.g. 24GiB")->option_text("SIZE");
    app_->add_flag("--explain", explain_, "every part with its formula, the numbers filled in");
    app_->add_option("--html", html_, "write a page that stands alone: charts, timeline, derivation")
        ->option_text("FILE");
    app_->add_option("--csv", csv_, "write every part as a line of CSV")->option_text("FILE");
    app_->add_flag("--limits", limits_,
                   "also the largest micro-batch, the longest sequence and the fewest devices");
    app_->footer("Example:\n  trainhost plan --model=llama-3-8b --device=h100-80gb --set data.seq_len=4096");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    if (!html_.empty()) checkpoint::require_place_for("--html", html_, kHtml);
    if (!csv_.empty()) checkpoint::require_place_for("--csv", csv_, kCsv);
    std::vector<runfile::Override> more;
    if (!device_.empty()) more.push_back({"memory.device", device_, "--device"});
    if (!budget_.empty()) more.push_back({"memory.budget", budget_, "--budget"});
    runfile::RunConfig c = load_config(o_, more);
    planning::adopt_vocabulary(c);
    auto registry = make_registry(o_, &c);
    planning::PlanRequest request;
    request.estimators = split_commas(estimators_);
    request.trainer = planning::planned_trainer(c, *registry);
    request.elsewhere = !c.device.empty();
    const planning::Resolved resolved = planning::resolve(c, *registry, request);
    if (o_.verbose) fmt::print(stderr, "{}", planning::estimator_trace(resolved.config, *registry));
    report::PlanView v = planning::make_plan(resolved, *registry, request);
    answer(v, resolved, *registry, request, more);
    v.command = command_line();
    if (!html_.empty()) checkpoint::write_output("--html", html_, report::plan_html(v), kHtml);
    if (!csv_.empty()) checkpoint::write_output("--csv", csv_, report::plan_csv(v), kCsv);
    const report::Terminal terminal = report::terminal_of(1);
    if (o_.json)
      fmt::print("{}\n", report::plan_json(v));
    else if (!o_.quiet)
      fmt::print("{}{}", report::memory_table(v, terminal),
                 explain_ ? report::explain_table(v, terminal) : "");
    return v.estimates.front().fits ? Exit::kDone : Exit::kDoesNotFit;
  }

 private:
  /// What to change and how far it goes. Limits are some thirty plans more, so they are made on request
  /// and for the page; the timeline where it is read.
  void answer(report::PlanView& v, const planning::Resolved& resolved, plugin::Registry& registry,
              const planning::PlanRequest& request, const std::vector<runfile::Override>& more) const {
    planning::Replanner replan(source_of(o_, more), registry, request, resolved,
                               v.estimates.front().report.source);
    planning::add_answers(v, replan, planning::planned_profile(resolved, registry, request),
                          {limits_ || !html_.empty(), o_.json || !html_.empty()});
  }

  CLI::App* app_ = nullptr;
  Options o_;
  std::string estimators_, device_, budget_, html_, csv_;
  bool limits_ = false, explain_ = false;
};

}  // namespace

std::unique_ptr<Command> plan_command() { return std::make_unique<Plan>(); }

}  // namespace trainhost::cli
