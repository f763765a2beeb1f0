// trainhost search: the best layouts of a model on N devices. Reads no data and asks no device.
#include "core/run/search.hpp"

#include <fmt/format.h>

#include "core/checkpoint/store.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

class Search : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("search", "the best layouts that fit a number of devices, ranked");
    add_options(*app_, o_, kRunFile | kModel);
    app_->add_option("--device", device_, "the kind of device (trainhost devices lists them)")->option_text("NAME");
    app_->add_option("--devices", request_.devices, "how many; as many ranks as the run file has when left out")
        ->option_text("N")->check(CLI::Range(1u, 1048576u));
    app_->add_option("--global-batch", request_.global_batch, "sequences of one update, over all devices")
        ->option_text("N")->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
    app_->add_option("--budget", budget_, "memory of a device, e.g. 24GiB")->option_text("SIZE");
    app_->add_option("--top", request_.top, "how many to list")->option_text("K")->check(CLI::Range(1, 10000))->default_val(10);
    app_->add_option("--threads", request_.threads, "threads of the search; 0 = every core")->option_text("N")->check(CLI::Range(0, 1024));
    app_->add_flag("--every", request_.every, "look at every layout, also where it cannot be an answer");
    app_->add_option("--csv", csv_, "write the lists here as CSV")->option_text("FILE");
    app_->add_option("--html", html_, "write a page that stands alone here")->option_text("FILE");
    app_->footer("A key given with --set stays as it is; the other keys of a layout are searched.\n"
                 "Example:\n  trainhost search --model=llama-3-8b --device=h100-80gb --devices=64 --global-batch=512 --set train.precision=bf16");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    std::vector<config::Override> more;
    if (!device_.empty()) more.push_back({"memory.device", device_});
    if (!budget_.empty()) more.push_back({"memory.budget", budget_});
    for (const config::Override& o : overrides(o_)) request_.fixed.insert(o.key);
    const report::SearchView v = run::search_layouts(load_config(o_, more), request_);
    write(csv_, [&] { return report::search_csv(v); });
    write(html_, [&] { return report::search_html(v); });
    if (o_.json)
      fmt::print("{}\n", report::search_json(v));
    else if (!o_.quiet)
      fmt::print("{}", report::search_table(v, report::terminal_of(1)));
    return v.best.empty() ? Exit::kDoesNotFit : Exit::kDone;
  }

 private:
  template <class Text>
  static void write(const std::string& file, Text&& text) {
    if (!file.empty()) checkpoint::write_file_atomically(std::filesystem::absolute(file), text());
  }

  CLI::App* app_ = nullptr;
  Options o_;
  run::SearchRequest request_;
  std::string device_, budget_, csv_, html_;
};

}  // namespace

std::unique_ptr<Command> search_command() { return std::make_unique<Search>(); }

}  // namespace trainhost::cli
