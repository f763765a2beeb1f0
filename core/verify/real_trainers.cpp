// See real_trainers.hpp. Which backend, whether it can be used here and which modes it has is found out once,
// when verify begins; why not becomes the detail of every skipped check.
#include "core/verify/real_trainers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/planning/choose_backend.hpp"
#include "core/planning/make_plan.hpp"

namespace trainhost::verify {
namespace {

constexpr const char* kModes[] = {"resident", "hybrid", "streamed"};

/// The mode that the run file names; "" when it leaves the choice open.
std::string named_mode(const runfile::RunConfig& c, const std::string& backend) {
  const auto table = c.plugin_options.find(backend);
  if (table == c.plugin_options.end()) return "";
  const auto mode = table->second.find("mode");
  return mode == table->second.end() || mode->second == "auto" ? "" : mode->second;
}

}  // namespace

PluginSubjects::PluginSubjects(runfile::RunConfig c, const std::string& backend, Open open)
    : c_(std::move(c)), backend_(backend), open_(std::move(open)) {
  registry_ = open_(c_);
  try {
    const planning::Choice choice = planning::choose_backend(*registry_, backend, true);
    absent_ = choice.fallback_reason;
  } catch (const Error& e) {
    if (e.code() != Exit::kNoBackend) throw;
    absent_ = e.what();
  }
  if (absent_.empty()) look();
}

void PluginSubjects::look() {
  const std::vector<std::string>& options = registry_->find(backend_)->manifest.options;
  has_mode_option_ = std::find(options.begin(), options.end(), "mode") != options.end();
  if (!has_mode_option_) {
    modes_ = {""};
  } else if (const std::string named = named_mode(c_, backend_); !named.empty()) {
    modes_ = {named};
  } else {
    modes_.assign(std::begin(kModes), std::end(kModes));
  }
  try {
    on_device_ = judged(modes_.front()).traits(c_.model, c_.run).tier == Tier::kDevice || has_mode_option_;
  } catch (const plugin::PluginError&) {
    on_device_ = has_mode_option_;  // a run that it cannot do: each check will hear the reason itself
  }
}

bool PluginSubjects::offers(const std::string& mode) {
  return mode.empty() ? !has_mode_option_ : has_mode_option_;
}

void PluginSubjects::enter(const std::string& mode) {
  if (mode.empty() || mode == mode_) return;
  registry_.reset();  // its plugins stop before the next one starts them
  runfile::RunConfig c = c_;
  c.plugin_options[backend_]["mode"] = mode;
  registry_ = open_(c);
  mode_ = mode;
}

plugin::Trainer& PluginSubjects::judged(const std::string& mode) {
  enter(mode);
  return registry_->trainer(backend_);
}

plugin::Trainer& PluginSubjects::reference() {
  if (!registry_->find("cpu"))
    throw NotJudged("no plugin file provides the cpu trainer, which is what it is compared with");
  return registry_->trainer("cpu");
}

RunSpec PluginSubjects::resolved(const std::string& mode, const runfile::RunConfig& c) {
  enter(mode);
  planning::PlanRequest request;
  request.trainer = backend_;
  return planning::resolve(c, *registry_, request).config.run;
}

}  // namespace trainhost::verify
