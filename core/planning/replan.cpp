// See replan.hpp.
#include "core/planning/replan.hpp"

#include "core/placement/least_arena.hpp"
#include "core/planning/choose_backend.hpp"

namespace trainhost::planning {
namespace {

/// What was found free at first is what every variation may take; a budget or a device that was named speaks
/// for itself.
void pin_budgets(runfile::RunConfig& c, const Budgets& found) {
  if (!c.budget && c.device.empty() && found.compute.known) c.budget = found.compute.bytes;
  if (!c.host_budget && found.host.known) c.host_budget = found.host.bytes;
}

/// "auto" searches through modes and layers, some 30 plans. It fits exactly where its last resort does
/// (everything streamed, every layer recomputed), which is one plan.
constexpr const char *kSearches = "cuda", *kLastResort = "streamed";

/// The estimator whose plans are those of step programs, placed: what fits no placement
/// (core/plan/least_arena) fits none of them.
constexpr const char* kPlaces = "llama";

/// The same of closed forms. No budget is in either: larger devices are held against a plan that is known.
constexpr const char* kClosedForms = "transformer";

RunSpec without_budgets(RunSpec run) {
  run.device_budget = run.host_budget = 0;
  return run;
}

bool leaves_mode_open(const runfile::RunConfig& c) {
  const auto table = c.plugin_options.find(kSearches);
  if (table == c.plugin_options.end()) return true;
  const auto mode = table->second.find("mode");
  return mode == table->second.end() || mode->second == "auto";
}

}  // namespace

Replanner::Replanner(Source source, plugin::Registry& registry, PlanRequest request, Resolved base,
                     std::string decides)
    : source_(std::move(source)),
      registry_(registry),
      request_(std::move(request)),
      base_(std::move(base)),
      decides_(std::move(decides)) {}

plugin::Registry& Replanner::registry_for(const runfile::RunConfig& c) {
  if (c.plugin_options == base_.config.plugin_options) return registry_;
  if (!other_ || other_options_ != c.plugin_options)
    other_ = source_.open(c), other_options_ = c.plugin_options;
  return *other_;
}

std::optional<report::Estimate> Replanner::ask(runfile::RunConfig c, bool other_device,
                                               bool only_if_it_fits) {
  // Likewise for layers: "auto" comes to this where nothing less fits.
  if (c.run.recompute == Recompute::kAuto || c.run.recompute == Recompute::kLayers)
    c.run.recompute = Recompute::kFull;
  if (other_device) c.budget.reset();
  pin_budgets(c, base_.budgets);
  PlanRequest request = request_;
  request.elsewhere = !c.device.empty();
  if (c.device != base_.config.device || c.backend != base_.config.backend)
    request.trainer = planned_trainer(c, registry_);
  if (request.trainer == kSearches && leaves_mode_open(c) && trains_by_program(c.model, c.run)) {
    c.plugin_options[kSearches]["mode"] = kLastResort;
    if (c.run.recompute == Recompute::kNone) c.run.recompute = Recompute::kFull;
  }
  plugin::Registry& registry = registry_for(c);
  const Resolved r = resolve(c, registry, request);
  const bool answers =
      !decides_.empty() && registry.estimator(decides_).match(r.config.model, r.config.run) > 0;
  request.estimators = {answers ? decides_ : "auto"};
  const std::string id = estimators_asked(r.config, registry, request).front();
  const TrainerTraits traits = planned_traits(r, registry, request);
  ++planned_;
  if (id != kPlaces && id != kClosedForms) return estimate(r, registry, request, id, traits);
  if (const Known* k = known(r, id, traits)) return judge(k->report, r.budgets);
  const bool none_would_do =
      id == kPlaces && only_if_it_fits && r.budgets.compute.known &&
      placement::least_arena(r.config.model, r.config.run, traits) > r.budgets.compute.bytes;
  if (none_would_do) return std::nullopt;
  report::Estimate e = estimate(r, registry, request, id, traits);
  known_.push_back({id, r.config.model, without_budgets(r.config.run), traits, e.report});
  return e;
}

const Replanner::Known* Replanner::known(const Resolved& r, const std::string& id,
                                         const TrainerTraits& traits) const {
  const RunSpec run = without_budgets(r.config.run);
  for (const Known& k : known_)
    if (k.run == run && k.estimator == id && k.traits == traits && k.model == r.config.model) return &k;
  return nullptr;
}

std::optional<report::Estimate> Replanner::plan(const Settings& settings, bool other_device) {
  try {
    return ask(source_.load(settings), other_device, true);
  } catch (const Error&) {
    return std::nullopt;  // no run: the caller has others
  }
}

std::optional<report::Estimate> Replanner::plan(const runfile::RunConfig& c) {
  try {
    return ask(c, false, false);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trainhost::planning
