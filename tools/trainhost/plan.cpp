// trainhost plan: will it fit. Reads no data and asks no device.
#include "core/run/plan.hpp"

#include <fmt/format.h>

#include <sstream>

#include "core/model/presets.hpp"
#include "core/report/terminal.hpp"
#include "core/run/backend.hpp"
#include "core/run/batches.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) out.push_back(part);
  return out;
}

class Plan : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("plan", "the memory of a run, to the byte, and whether it fits");
    add_options(*app_, o_, kRunFile | kModel | kBackend | kPlugins);
    app_->add_option("--estimator", estimators_, "auto, all, or names with commas")->option_text("auto|all|NAME,NAME");
    app_->add_option("--device", device_, "plan for this device (trainhost devices lists them)")->option_text("NAME");
    app_->add_option("--budget", budget_, "memory of the compute tier, e.g. 24GiB")->option_text("SIZE");
    app_->footer("Example:\n  trainhost plan --model=llama-3-8b --device=h100-80gb --set data.seq_len=4096");
  }
  CLI::App* app() const override { return app_; }

  Exit run() override {
    std::vector<config::Override> more;
    if (!device_.empty()) more.push_back({"memory.device", device_});
    if (!budget_.empty()) more.push_back({"memory.budget", budget_});
    config::RunConfig c = load_config(o_, more);
    run::adopt_vocabulary(c);
    auto registry = make_registry(o_, &c);
    run::PlanRequest request;
    request.estimators = split_commas(estimators_);
    request.trainer = trainer_for(c, *registry);
    request.elsewhere = !c.device.empty();
    report::PlanView v = run::make_plan(run::resolve(c, *registry, request), *registry, request);
    if (o_.json)
      fmt::print("{}\n", report::plan_json(v));
    else if (!o_.quiet)
      fmt::print("{}", report::memory_table(v, report::terminal_of(1)));
    return v.estimates.front().fits ? Exit::kDone : Exit::kDoesNotFit;
  }

 private:
  /// A device of NVIDIA is planned for the cuda backend, one of another vendor for none of these; without a device, the
  /// backend that train would choose.
  std::string trainer_for(const config::RunConfig& c, plugin::Registry& registry) const {
    bool device = !c.device.empty();
    std::string wanted = c.backend;
    if (wanted == "auto" && device) {
      const DevicePreset* preset = find_device_preset(c.device);
      if (preset && preset->vendor != "NVIDIA") return "";
      wanted = "cuda";
    }
    if (device || wanted == "cuda") return registry.find(wanted) ? wanted : "";
    return run::choose_backend(registry, wanted, true).id;
  }

  CLI::App* app_ = nullptr;
  Options o_;
  std::string estimators_, device_, budget_;
};

}  // namespace

std::unique_ptr<Command> plan_command() { return std::make_unique<Plan>(); }

}  // namespace trainhost::cli
