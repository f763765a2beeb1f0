// trainhost sweep: memory against one key of the run file. Reads no data and asks no device.
#include "core/planning/sweep.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

constexpr const char *kHtml = "--html sweep.html", *kCsv = "--csv sweep.csv";

class Sweep : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("sweep", "memory against one run-file key, and where what overtakes what");
    add_options(*app_, o_, kRunFile | kModel | kBackend | kPlugins);
    app_->add_option("--over", over_,
                     "a key and its values: 512..16384 doubles, 512..4096+512 adds, 1..81*3 multiplies, "
                     "a,b,c is a list")
        ->option_text("KEY=VALUES");
    app_->add_option("--estimator", estimators_, "auto, all, or names with commas")
        ->option_text("auto|all|NAME,NAME");
    app_->add_option("--device", device_, "plan for this device (trainhost devices lists them)")
        ->option_text("NAME");
    app_->add_option("--budget", budget_, "memory of the compute tier, e.g. 24GiB")->option_text("SIZE");
    app_->add_option("--csv", csv_, "write the points here as CSV")->option_text("FILE");
    app_->add_option("--html", html_, "write a page that stands alone here")->option_text("FILE");
    app_->footer(
        "Example:\n  trainhost sweep --model=llama-3-8b --over data.seq_len=512..16384 --device=h100-80gb");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    if (over_.empty())
      throw usage_error("trainhost sweep needs --over KEY=VALUES",
                        "for example --over data.seq_len=512..16384");
    if (!html_.empty()) checkpoint::require_place_for("--html", html_, kHtml);
    if (!csv_.empty()) checkpoint::require_place_for("--csv", csv_, kCsv);
    const planning::Axis axis = planning::parse_axis(over_);
    for (const runfile::Override& o : overrides(o_))
      if (o.key == axis.key)
        throw usage_error(fmt::format("{} is given and swept over", axis.key), "leave one of them out",
                          {"--over"});
    std::vector<runfile::Override> more;
    if (!device_.empty()) more.push_back({"memory.device", device_, "--device"});
    if (!budget_.empty()) more.push_back({"memory.budget", budget_, "--budget"});
    planning::PlanRequest request;
    request.estimators = split_commas(estimators_);
    report::SweepView v = planning::sweep(source_of(o_, more), axis, request);
    v.command = command_line();
    if (!csv_.empty()) checkpoint::write_output("--csv", csv_, report::sweep_csv(v), kCsv);
    if (!html_.empty()) checkpoint::write_output("--html", html_, report::sweep_html(v), kHtml);
    if (o_.json)
      fmt::print("{}\n", report::sweep_json(v));
    else if (!o_.quiet)
      fmt::print("{}", report::sweep_table(v, report::terminal_of(1)));
    return Exit::kDone;
  }

 private:
  CLI::App* app_ = nullptr;
  Options o_;
  std::string over_, estimators_, device_, budget_, csv_, html_;
};

}  // namespace

std::unique_ptr<Command> sweep_command() { return std::make_unique<Sweep>(); }

}  // namespace trainhost::cli
