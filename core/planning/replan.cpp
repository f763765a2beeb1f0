// See replan.hpp.
#include "core/planning/replan.hpp"

#include <algorithm>

#include "core/placement/least_arena.hpp"
#include "core/planning/budget.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"

namespace trainhost::planning {
namespace {

/// Every variation uses the free memory that was found for the base. A budget or device in the settings takes
/// precedence.
void pin_budgets(runfile::RunConfig& c, const Budgets& found) {
  if (!c.budget && c.device.empty() && found.compute.known) c.budget = found.compute.bytes;
  if (!c.host_budget && found.host.known) c.host_budget = found.host.bytes;
}

/// Mode "auto" of the cuda trainer tries about 30 combinations of mode and recomputation. One of them fits if
/// and only if the last one (everything streamed, every layer recomputed) fits, so only that one is planned.
constexpr const char *kModeSearchingTrainer = "cuda", *kLastMode = "streamed";

RunSpec without_budgets(RunSpec run) {
  run.device_budget = run.host_budget = 0;
  return run;
}

/// In a scope, estimators may omit what the caller does not read.
class InterestScope {
 public:
  InterestScope(plugin::Registry& registry, const plugin::Interest& interest) : registry_(registry) {
    registry_.set_interest(interest);
  }
  ~InterestScope() { registry_.set_interest({}); }
  InterestScope(const InterestScope&) = delete;
  InterestScope& operator=(const InterestScope&) = delete;

 private:
  plugin::Registry& registry_;
};

bool leaves_mode_open(const runfile::RunConfig& c) {
  const auto table = c.plugin_options.find(kModeSearchingTrainer);
  if (table == c.plugin_options.end()) return true;
  const auto mode = table->second.find("mode");
  return mode == table->second.end() || mode->second == "auto";
}

}  // namespace

Replanner::Replanner(RunSource source, plugin::Registry& registry, PlanRequest request, ResolvedRun base,
                     std::string decides)
    : source_(std::move(source)),
      registry_(registry),
      request_(std::move(request)),
      base_(std::move(base)),
      decides_(std::move(decides)),
      closed_form_stands_in_(request_.estimators.empty() && base_.config.estimators.front() == "auto" &&
                             !base_.config.framework.empty() && decides_ == kClosedFormEstimator) {}

plugin::Registry& Replanner::registry_for(const runfile::RunConfig& c) {
  if (c.plugin_options == base_.config.plugin_options) return registry_;
  std::unique_ptr<plugin::Registry>& other = others_[c.plugin_options];
  if (!other) other = source_.open(c);
  return *other;
}

bool Replanner::has_states_of_base(const runfile::RunConfig& c) const {
  RunSpec run = without_budgets(c.run);
  const RunSpec base = without_budgets(base_.config.run);
  run.micro_batch = base.micro_batch, run.seq_len = base.seq_len, run.accumulate = base.accumulate;
  run.recompute = base.recompute, run.recompute_layers = base.recompute_layers;
  run.memory.recompute_every = base.memory.recompute_every;
  // The device of a plan is among the options where it decides the states (products in 8 bits).
  return run == base && c.model == base_.config.model && c.plugin_options == base_.config.plugin_options;
}

/// The plan of a trainer that chooses a mode: it places the run to choose, and keeps the placement of its
/// choice. Only where its plan of the base is that of the estimator, as digests tell. nullopt: the estimator
/// is asked.
std::optional<Estimate> Replanner::plan_of_trainer(const ResolvedRun& r, plugin::Registry& registry,
                                                   const PlanRequest& request) {
  if (digest_ == 0 || request.trainer != kModeSearchingTrainer || request_.trainer != request.trainer ||
      !leaves_mode_open(r.config))
    return std::nullopt;
  try {
    if (!trainer_agrees_) {
      plugin::Trainer* const of_base = trainer_for(base_.config, registry_, request_);
      trainer_agrees_ = of_base && of_base->plan(base_.config.model, base_.config.run).digest == digest_;
    }
    plugin::Trainer* const trainer = *trainer_agrees_ ? trainer_for(r.config, registry, request) : nullptr;
    if (!trainer) return std::nullopt;
    Estimate e = estimate_by_trainer(r, *trainer, request.profiled);
    e.report.source = kProgramEstimator;
    return e;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Applies three shortcuts, each of which answers the same question with fewer plans: automatic recomputation
/// is planned as full, automatic mode as its last mode, and a lower bound replaces a placement that cannot
/// fit.
std::optional<Estimate> Replanner::plan_by(const std::string& decides, runfile::RunConfig c,
                                           bool other_device, Wanted wanted) {
  const bool only_if_it_fits = wanted != Wanted::kAll;
  // "auto" fits if and only if full recomputation fits.
  if (c.run.recompute == Recompute::kAuto || c.run.recompute == Recompute::kLayers)
    c.run.recompute = Recompute::kFull;
  if (other_device) c.budget.reset();
  pin_budgets(c, base_.budgets);
  // The settings may name a device or a backend; the trainer is then chosen again.
  PlanRequest request = request_;
  request.elsewhere = request_.elsewhere || !c.device.empty();
  if (c.device != base_.config.device || c.backend != base_.config.backend)
    request.trainer = planned_trainer(c, registry_);
  if (request.trainer == kModeSearchingTrainer && leaves_mode_open(c) && trains_by_program(c.model, c.run)) {
    c.plugin_options[kModeSearchingTrainer]["mode"] = kLastMode;
    if (c.run.recompute == Recompute::kNone) c.run.recompute = Recompute::kFull;
  }
  plugin::Registry& registry = registry_for(c);
  const ResolvedRun r = resolve_run(c, registry, request);
  if (only_if_it_fits && r.budgets.compute.known && states_ > r.budgets.compute.bytes &&
      has_states_of_base(r.config))
    return std::nullopt;
  const bool decides_this =
      !decides.empty() && registry.estimator(decides).match(r.config.model, r.config.run) > 0;
  request.estimators = {decides_this ? decides : "auto"};
  const std::string id = choose_estimators(r.config, registry, request).ids.front();
  const TrainerTraits traits = planned_traits(r, registry, request);
  // A change is listed with its bytes; upper bounds decide with plan.safe alone.
  const InterestScope scope(registry, {only_if_it_fits && r.budgets.compute.known, wanted == Wanted::kVerdict,
                                       wanted == Wanted::kAll || r.budgets.safe});
  // Counted before the cache is asked: this is the number of estimates requested.
  ++planned_;
  // Reports of these two do not depend on a budget, so they are cached and judged again for another device.
  if (id != kProgramEstimator && id != kClosedFormEstimator)
    return estimate_run(r, registry, request, id, traits);
  if (const CachedReport* k = find_cached(r, id, traits)) return judge(k->report, r.budgets);
  const bool cannot_fit =
      id == kProgramEstimator && only_if_it_fits && r.budgets.compute.known &&
      placement::least_arena(r.config.model, r.config.run, traits) > r.budgets.compute.bytes;
  if (cannot_fit) return std::nullopt;
  std::optional<Estimate> of_trainer;
  if (id == kProgramEstimator) of_trainer = plan_of_trainer(r, registry, request);
  Estimate e = of_trainer ? *std::move(of_trainer) : estimate_run(r, registry, request, id, traits);
  cache_.push_back({id, r.config.model, without_budgets(r.config.run), traits, e.report});
  return e;
}

/// As make_plan() does it: the estimator of the framework may describe the variation although it has refused
/// the base, and the closed form answers where it does not.
std::optional<Estimate> Replanner::plan_variation(runfile::RunConfig c, bool other_device, Wanted wanted) {
  if (!closed_form_stands_in_) return plan_by(decides_, std::move(c), other_device, wanted);
  try {
    return plan_by("", c, other_device, wanted);
  } catch (const plugin::PluginError& e) {
    if (e.status() != "unsupported") throw;
    return plan_by(decides_, std::move(c), other_device, wanted);
  }
}

const Replanner::CachedReport* Replanner::find_cached(const ResolvedRun& r, const std::string& id,
                                                      const TrainerTraits& traits) const {
  // Linear search: a command plans a few dozen variations.
  const RunSpec run = without_budgets(r.config.run);
  for (const CachedReport& k : cache_)
    if (k.run == run && k.estimator == id && k.traits == traits && k.model == r.config.model) return &k;
  return nullptr;
}

bool Replanner::is_stand_in(const Estimate& e) const {
  return !base_.config.framework.empty() && e.report.source == kClosedFormEstimator &&
         decides_ != kClosedFormEstimator;
}

bool Replanner::is_refused(const Settings& settings) const {
  const auto sets = [](const Settings& all, const runfile::Override& o) {
    return std::ranges::any_of(
        all, [&](const runfile::Override& s) { return s.key == o.key && s.value == o.value; });
  };
  return std::ranges::any_of(refused_, [&](const Settings& refused) {
    // Some offload is described with recomputation only, and some recomputation with sharding only.
    return std::ranges::all_of(refused, [&](const auto& o) { return sets(settings, o); }) &&
           std::ranges::none_of(settings, [&](const auto& o) {
             return (o.key == "train.recompute" || o.key == "parallel.data") && !sets(refused, o);
           });
  });
}

/// The closed form counts less than some frameworks keep, so its upper bounds must fit too.
std::optional<Estimate> Replanner::plan_of_adapters(const Settings& settings) {
  const bool adapters =
      std::ranges::any_of(settings, [](const auto& o) { return o.key.starts_with("lora."); });
  const bool may_stand_in = request_.estimators.empty() && base_.config.estimators.front() == "auto" &&
                            !base_.config.framework.empty() && registry_.find(kClosedFormEstimator);
  if (!adapters || !may_stand_in) return std::nullopt;
  try {
    std::optional<Estimate> e = plan_by(kClosedFormEstimator, source_.load(settings), false, Wanted::kAll);
    if (!e || !e->fits || e->report.source != kClosedFormEstimator) return std::nullopt;
    MemoryReport bounds = e->report;
    raise_to_upper_bounds(bounds);
    if (!judge(std::move(bounds), base_.budgets).fits) return std::nullopt;
    return e;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Estimate> Replanner::plan(const Settings& settings, bool other_device, bool verdict_only) {
  if (is_refused(settings)) return other_device ? std::nullopt : plan_of_adapters(settings);
  Settings sorted = settings;
  std::ranges::stable_sort(sorted, {}, &runfile::Override::key);
  const auto is_equal = [](const runfile::Override& a, const runfile::Override& b) {
    return a.key == b.key && a.value == b.value;
  };
  for (const PlannedSettings& p : planned_settings_) {
    // Where only the verdict was asked for, the bytes of a plan that does not fit may be any.
    const bool tells_bytes = !p.verdict_only || verdict_only || !p.estimate || p.estimate->fits;
    if (p.other_device == other_device && tells_bytes && std::ranges::equal(p.settings, sorted, is_equal))
      return p.estimate;
  }
  planned_settings_.push_back(
      {std::move(sorted), other_device, verdict_only, plan_settings(settings, other_device, verdict_only)});
  return planned_settings_.back().estimate;
}

std::optional<Estimate> Replanner::plan_settings(const Settings& settings, bool other_device,
                                                 bool verdict_only) {
  try {
    return plan_variation(source_.load(settings), other_device,
                          verdict_only ? Wanted::kVerdict : Wanted::kPeak);
  } catch (const plugin::PluginError& e) {
    if (e.status() != "unsupported") return std::nullopt;
    refused_.push_back(settings);
    return other_device ? std::nullopt : plan_of_adapters(settings);
  } catch (const Error&) {
    return std::nullopt;  // not a valid run: the caller tries others
  }
}

std::optional<Estimate> Replanner::plan(const runfile::RunConfig& c) {
  try {
    return plan_variation(c, false, Wanted::kAll);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trainhost::planning
