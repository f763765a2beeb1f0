// See replan.hpp.
#include "core/run/replan.hpp"

#include "core/run/backend.hpp"

namespace trainhost::run {
namespace {

/// What was found free at first is what every variation may take; a budget or a device that was named speaks for itself.
void pin_budgets(config::RunConfig& c, const Budgets& found) {
  if (!c.budget && c.device.empty() && found.compute.known) c.budget = found.compute.bytes;
  if (!c.host_budget && found.host.known) c.host_budget = found.host.bytes;
}

/// "auto" searches through modes and layers, some 30 plans. It fits exactly where its last resort does (everything streamed,
/// every layer recomputed), which is one plan.
constexpr const char *kSearches = "cuda", *kLastResort = "streamed";

bool leaves_mode_open(const config::RunConfig& c) {
  const auto table = c.plugin_options.find(kSearches);
  if (table == c.plugin_options.end()) return true;
  const auto mode = table->second.find("mode");
  return mode == table->second.end() || mode->second == "auto";
}

}  // namespace

Replanner::Replanner(Source source, plugin::Registry& registry, PlanRequest request, Resolved base, std::string decides)
    : source_(std::move(source)),
      registry_(registry),
      request_(std::move(request)),
      base_(std::move(base)),
      decides_(std::move(decides)) {}

plugin::Registry& Replanner::registry_for(const config::RunConfig& c) {
  if (c.plugin_options == base_.config.plugin_options) return registry_;
  if (!other_ || other_options_ != c.plugin_options) other_ = source_.open(c), other_options_ = c.plugin_options;
  return *other_;
}

report::Estimate Replanner::ask(config::RunConfig c, bool other_device) {
  // Likewise for layers: "auto" comes to this where nothing less fits.
  if (c.run.recompute == Recompute::kAuto || c.run.recompute == Recompute::kLayers) c.run.recompute = Recompute::kFull;
  if (other_device) c.budget.reset();
  pin_budgets(c, base_.budgets);
  PlanRequest request = request_;
  request.elsewhere = !c.device.empty();
  if (c.device != base_.config.device || c.backend != base_.config.backend) request.trainer = planned_trainer(c, registry_);
  if (request.trainer == kSearches && leaves_mode_open(c) && trains_by_program(c.model, c.run)) {
    c.plugin_options[kSearches]["mode"] = kLastResort;
    if (c.run.recompute == Recompute::kNone) c.run.recompute = Recompute::kFull;
  }
  plugin::Registry& registry = registry_for(c);
  const Resolved r = resolve(c, registry, request);
  const bool answers = !decides_.empty() && registry.estimator(decides_).match(r.config.model, r.config.run) > 0;
  request.estimators = {answers ? decides_ : "auto"};
  ++planned_;
  return estimate(r, registry, request, estimators_asked(r.config, registry, request).front(),
                  planned_profile(r, registry, request));
}

std::optional<report::Estimate> Replanner::plan(const Settings& settings, bool other_device) {
  try {
    return ask(source_.load(settings), other_device);
  } catch (const Error&) {
    return std::nullopt;  // no run: the caller has others
  }
}

std::optional<report::Estimate> Replanner::plan(const config::RunConfig& c) {
  try {
    return ask(c, false);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trainhost::run
