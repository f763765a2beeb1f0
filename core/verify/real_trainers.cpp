// See real_trainers.hpp. The constructor finds out whether the backend is usable and which modes it has. The
// reason why it is not usable becomes the detail of every skipped check.
#include "core/verify/real_trainers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/planning/choose_backend.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::verify {
namespace {

constexpr const char* kModes[] = {"resident", "hybrid", "streamed"};

/// The mode that the run file sets; "" for none or "auto".
std::string mode_of_run_file(const runfile::RunConfig& c, const std::string& backend) {
  const auto table = c.plugin_options.find(backend);
  if (table == c.plugin_options.end()) return "";
  const auto mode = table->second.find("mode");
  return mode == table->second.end() || mode->second == "auto" ? "" : mode->second;
}

}  // namespace

RealTrainers::RealTrainers(runfile::RunConfig c, const std::string& backend, Open open)
    : c_(std::move(c)), backend_(backend), open_(std::move(open)) {
  // A first registry without a mode, to look at the manifest.
  registry_ = open_(c_);
  try {
    const planning::Choice choice = planning::choose_backend(*registry_, backend, true);
    unavailable_reason_ = choice.fallback_reason;
  } catch (const Error& e) {
    // Only "no backend" is a reason to skip; a wrong run file or plugin path is an error.
    if (e.code() != Exit::kNoBackend) throw;
    unavailable_reason_ = e.what();
  }
  if (unavailable_reason_.empty()) find_modes();
}

void RealTrainers::find_modes() {
  const std::vector<std::string>& options = registry_->find(backend_)->manifest.options;
  has_mode_option_ = std::find(options.begin(), options.end(), "mode") != options.end();
  if (!has_mode_option_) {
    modes_ = {""};
  } else if (const std::string mode = mode_of_run_file(c_, backend_); !mode.empty()) {
    // The user chose one mode, and only that is tested.
    modes_ = {mode};
  } else {
    modes_.assign(std::begin(kModes), std::end(kModes));
  }
  try {
    // A trainer with modes moves data between host and device, whatever tier it plans in.
    on_device_ = trainer(modes_.front()).traits(c_.model, c_.run).tier == Tier::kDevice || has_mode_option_;
  } catch (const plugin::PluginError&) {
    on_device_ = has_mode_option_;  // it rejects this run: each check will report the reason
  }
}

bool RealTrainers::has_mode(const std::string& mode) {
  return mode.empty() ? !has_mode_option_ : has_mode_option_;
}

void RealTrainers::switch_to_mode(const std::string& mode) {
  if (mode.empty() || mode == mode_) return;
  registry_.reset();  // stops its plugins before the next registry starts them
  runfile::RunConfig c = c_;
  // The mode is an option of the plugin, read when it is loaded: hence a new registry.
  c.plugin_options[backend_]["mode"] = mode;
  registry_ = open_(c);
  mode_ = mode;
}

plugin::Trainer& RealTrainers::trainer(const std::string& mode) {
  switch_to_mode(mode);
  return registry_->trainer(backend_);
}

plugin::Trainer& RealTrainers::reference_trainer() {
  if (!registry_->find("cpu"))
    throw CheckSkipped("no plugin file provides the cpu trainer, which is the reference");
  return registry_->trainer("cpu");
}

RunSpec RealTrainers::resolve_run(const std::string& mode, const runfile::RunConfig& c) {
  switch_to_mode(mode);
  planning::PlanRequest request;
  request.trainer = backend_;
  return planning::resolve_run(c, *registry_, request).config.run;
}

}  // namespace trainhost::verify
