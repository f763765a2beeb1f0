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

}  // namespace

Replanner::Replanner(Source source, plugin::Registry& registry, PlanRequest request, Resolved base, std::string decides)
    : source_(std::move(source)),
      registry_(registry),
      request_(std::move(request)),
      base_(std::move(base)),
      decides_(std::move(decides)) {}

report::Estimate Replanner::ask(config::RunConfig c, plugin::Registry& registry, bool other_device) {
  // What "auto" comes to where nothing less fits: one plan instead of a search, and it fits exactly where auto would.
  if (c.run.recompute == Recompute::kAuto || c.run.recompute == Recompute::kLayers) c.run.recompute = Recompute::kFull;
  if (other_device) c.budget.reset();
  pin_budgets(c, base_.budgets);
  PlanRequest request = request_;
  request.elsewhere = !c.device.empty();
  if (c.device != base_.config.device || c.backend != base_.config.backend) request.trainer = planned_trainer(c, registry);
  const Resolved r = resolve(c, registry, request);
  if (!decides_.empty() && registry.estimator(decides_).match(r.config.model, r.config.run) > 0)
    request.estimators = {decides_};
  else
    request.estimators = {"auto"};
  ++planned_;
  return estimate(r, registry, request, estimators_asked(r.config, registry, request).front(),
                  planned_profile(r, registry, request));
}

std::optional<report::Estimate> Replanner::plan(const Settings& settings, bool other_device) {
  try {
    config::RunConfig c = source_.load(settings);
    if (c.plugin_options == base_.config.plugin_options) return ask(std::move(c), registry_, other_device);
    const auto own = source_.open(c);
    return ask(std::move(c), *own, other_device);
  } catch (const Error&) {
    return std::nullopt;  // no run: the caller has others
  }
}

std::optional<report::Estimate> Replanner::plan(const config::RunConfig& c) {
  try {
    return ask(c, registry_, false);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trainhost::run
