// trainhost search: the best layouts of a model on N devices. Reads no data and asks no device.
#include "core/planning/dataset_options.hpp"
#include "core/planning/search_run.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "core/checkpoint/output_file.hpp"
#include "core/report/terminal.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

constexpr const char *kCsv = "--csv layouts.csv", *kHtml = "--html search.html";

class Search : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("search", "the best layouts that fit a number of devices, ranked");
    add_options(*app_, o_, kRunFile | kModel);
    app_->add_option("--device", device_, "the kind of device (trainhost devices lists them)")
        ->option_text("NAME");
    app_->add_option("--devices", request_.devices,
                     "how many; as many ranks as the run file has when left out")
        ->option_text("N")
        ->check(whole(1, 1048576));
    app_->add_option("--global-batch", request_.global_batch, "sequences of one update, over all devices")
        ->option_text("N")
        ->check(whole(1, std::uint64_t{1} << 40));
    app_->add_option("--budget", budget_, "memory of a device, e.g. 24GiB")->option_text("SIZE");
    app_->add_option("--top", request_.top, "how many to list")
        ->option_text("K")
        ->check(whole(1, 10000))
        ->default_val(10);
    app_->add_option("--threads", request_.threads, "threads of the search; 0 = every core")
        ->option_text("N")
        ->check(whole(0, 1024));
    app_->add_flag("--every", request_.every, "look at every layout, also where it cannot be an answer");
    app_->add_option("--csv", csv_, "write the lists here as CSV")->option_text("FILE");
    app_->add_option("--html", html_, "write a page that stands alone here")->option_text("FILE");
    app_->footer(
        "A key given with --set stays as it is; the other keys of a layout are searched.\n"
        "Example:\n  trainhost search --model=llama-3-8b --device=h100-80gb --devices=64 --global-batch=512 "
        "--set train.precision=bf16");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    std::vector<runfile::Override> more;
    if (!device_.empty()) more.push_back({"memory.device", device_, "--device"});
    if (!budget_.empty()) more.push_back({"memory.budget", budget_, "--budget"});
    for (const runfile::Override& o : overrides(o_)) request_.fixed.insert(o.key);
    if (!csv_.empty()) checkpoint::require_place_for("--csv", csv_, kCsv);
    if (!html_.empty()) checkpoint::require_place_for("--html", html_, kHtml);
    runfile::RunConfig c = load_config(o_, more, open());
    planning::adopt_vocabulary(c);
    report::SearchView v = planning::search_layouts(c, request_);
    v.command = command_line();
    if (!csv_.empty()) checkpoint::write_output("--csv", csv_, report::search_csv(v), kCsv);
    if (!html_.empty()) checkpoint::write_output("--html", html_, report::search_html(v), kHtml);
    if (o_.json)
      fmt::print("{}\n", report::search_json(v));
    else if (!o_.quiet)
      fmt::print("{}", report::search_table(v, report::terminal_of(1)));
    return v.best.empty() ? Exit::kDoesNotFit : Exit::kDone;
  }

 private:
  /// A run's rules hold for a run; what a search is asked leaves keys open. `--set parallel.expert=8` alone
  /// has no data ranks to share the experts among yet: those are what is searched. Where the run itself says
  /// how many devices there are, it is read as a run.
  std::set<std::string> open() const {
    std::set<std::string> keys;
    if (!request_.devices) return keys;
    for (const char* key : planning::kSearchedKeys)
      if (!request_.fixed.count(key)) keys.insert(key);
    return keys;
  }

  CLI::App* app_ = nullptr;
  Options o_;
  planning::SearchRequest request_;
  std::string device_, budget_, csv_, html_;
};

}  // namespace

std::unique_ptr<Command> search_command() { return std::make_unique<Search>(); }

}  // namespace trainhost::cli
