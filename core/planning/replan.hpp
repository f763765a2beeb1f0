// The same run with some settings changed, planned again by whoever decided: what answers and sweeps are
// proved with. A variation is made as the command line would make it (--set), so what is printed is what was
// planned. Prints nothing.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/planning/make_plan.hpp"
#include "core/plugin/registry.hpp"
#include "core/report/plan_view.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

using Settings = std::vector<runfile::Override>;

/// Where variations come from: the user's run file, model and words, with these settings behind them all.
struct Source {
  std::function<runfile::RunConfig(const Settings&)>
      load;  // throws usage_error where the settings make no run
  std::function<std::unique_ptr<plugin::Registry>(const runfile::RunConfig&)>
      open;  // scanned; for other plugin options
};

class Replanner {
 public:
  /// `base` is the run as it was planned: its budgets hold for every variation, so that memory that comes and
  /// goes changes no answer. `decides`: the estimator that judged it ("" = whichever knows a variation best).
  Replanner(Source source, plugin::Registry& registry, PlanRequest request, Resolved base,
            std::string decides);

  /// With settings on top, for who asks whether it fits. nullopt: they make no run, nobody can plan it, or no
  /// placement of it fits, which is known without one. `other_device`: the settings name a device, whose
  /// memory stands in for memory.budget and what is free here.
  std::optional<report::Estimate> plan(const Settings& settings, bool other_device = false);
  /// Of a run that differs from the base in numbers alone: no settings are parsed.
  std::optional<report::Estimate> plan(const runfile::RunConfig& c);

  const Resolved& base() const { return base_; }
  std::uint64_t planned() const { return planned_; }  // how often an estimator was asked

 private:
  struct Known {
    std::string estimator;
    ModelSpec model;
    RunSpec run;  // without budgets
    TrainerTraits traits;
    MemoryReport report;
  };
  std::optional<report::Estimate> ask(runfile::RunConfig c, bool other_device, bool only_if_it_fits);
  const Known* known(const Resolved& r, const std::string& id, const TrainerTraits& traits) const;
  plugin::Registry& registry_for(const runfile::RunConfig& c);

  Source source_;
  plugin::Registry& registry_;
  PlanRequest request_;
  Resolved base_;
  std::string decides_;
  std::uint64_t planned_ = 0;
  std::vector<Known> known_;                 // plans that no budget is in
  std::unique_ptr<plugin::Registry> other_;  // for plugin options that are not the base's
  decltype(runfile::RunConfig::plugin_options) other_options_;
};

}  // namespace trainhost::planning
