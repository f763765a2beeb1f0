// See estimate_run.hpp. One estimate: an estimator or the trainer's own plan, plus the buffers of the host.
#include "core/planning/estimate_run.hpp"

#include <algorithm>

#include "core/data/dataset.hpp"
#include "core/model/adapters.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/planning/resolve_run.hpp"

namespace trainhost::planning {
namespace {

/// `profiled_by`: the trainer whose timing records are allocated too; null: none.
HostBuffers host_buffers_of(const runfile::RunConfig& c, plugin::Trainer* profiled_by) {
  HostBuffers b = plan_host_buffers(c.model, c.run, data::planned_held_bytes(open_options(c)));
  b.copy_bytes = state_copy_bytes(c);
  if (profiled_by) b.profile_bytes = profiled_by->profile_bytes(c.model, c.run).value_or(0);
  return b;
}

/// Removes what an approximation adds for the device's runtime: the trainer's own figure for it is taken from
/// the budget, and counting it twice would reject runs that fit.
void remove_runtime(MemoryReport& report) {
  const auto is_runtime = [&](const MemoryEntry& e) {
    return e.component == Component::kRuntime &&
           std::ranges::none_of(report.entries,
                                [&](const MemoryEntry& child) { return child.parent == e.id; });
  };
  std::vector<MemoryEntry> kept;
  for (const MemoryEntry& e : report.entries) {
    if (!is_runtime(e)) {
      kept.push_back(e);
      continue;
    }
    for (TierPeak& t : report.tiers)
      if (t.tier == e.tier) t.bytes -= std::min(t.bytes, e.at_peak());
  }
  report.entries = std::move(kept);
}

}  // namespace

bool can_train_adapters(const plugin::Registry& registry, const std::string& trainer, const RunSpec& run) {
  const plugin::Candidate* found = registry.find(trainer);
  const auto lists = [&](const char* name) {
    return std::ranges::find(found->manifest.modes, name) != found->manifest.modes.end();
  };
  return found && lists(run.mode == RunMode::kQlora ? "qlora" : "lora") &&
         (!run.memory.dora || lists("dora"));
}

plugin::Trainer* trainer_for(const runfile::RunConfig& c, plugin::Registry& registry,
                             const PlanRequest& request) {
  // A run that no program describes (several ranks, another framework) has no traits of a trainer.
  if (request.trainer.empty() || !c.framework.empty() || !trains_by_program(c.model, c.run)) return nullptr;
  if (trains_adapters(c.run) && !can_train_adapters(registry, request.trainer, c.run)) return nullptr;
  return &registry.trainer(request.trainer);
}

TrainerTraits traits_for(const runfile::RunConfig& c, plugin::Trainer* trainer) {
  if (trainer) return trainer->traits(c.model, c.run);
  // Without a trainer the plan is for some device: defaults of TrainerTraits.
  TrainerTraits device;
  device.tier = Tier::kDevice;
  return device;
}

TrainerTraits planned_traits(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request) {
  return traits_for(r.config, trainer_for(r.config, registry, request));
}

Estimate estimate_run(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request,
                      const std::string& id, const TrainerTraits& traits) {
  const runfile::RunConfig& c = r.config;
  // The position of the key is for the message if the estimator is not found; it is not there if the
  // estimator was named by an option.
  const Where named_at = request.estimators.empty() ? position_of_key(c, "memory.estimator") : Where{};
  MemoryReport report = with_error_context(
      c, [&] { return find_estimator(registry, id, named_at).estimate(c.model, c.run, &traits); });
  report.source = id;
  if (report.claim != Claim::kExact && traits.runtime_bytes > 0) remove_runtime(report);
  // Only an exact report is completed: an approximation would look more certain than it is.
  if (report.claim == Claim::kExact)
    add_host_buffers(report,
                     host_buffers_of(c, request.profiled ? &registry.trainer(request.trainer) : nullptr));
  return judge(std::move(report), r.budgets);
}

Estimate estimate_by_trainer(const ResolvedRun& r, plugin::Trainer& trainer, bool profiled) {
  const runfile::RunConfig& c = r.config;
  MemoryReport report = trainer.plan(c.model, c.run);
  add_host_buffers(report, host_buffers_of(c, profiled ? &trainer : nullptr));
  return judge(std::move(report), r.budgets);
}

}  // namespace trainhost::planning
