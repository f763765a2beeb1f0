// Plans variations of one run: the same run with some settings changed. Used to verify suggested changes and
// to find limits. A variation is loaded the way --set would load it, so the printed settings are the planned
// ones.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/planning/plan_result.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

using Settings = std::vector<runfile::Override>;

/// The user's run file, model and command line, from which variations are loaded.
struct RunSource {
  /// The run with `settings` applied last. Throws usage_error where that is not a valid run.
  std::function<runfile::RunConfig(const Settings&)> load;
  /// A scanned registry; needed where a variation has other plugin options.
  std::function<std::unique_ptr<plugin::Registry>(const runfile::RunConfig&)> open;
};

class Replanner {
 public:
  /// `base`: the run as planned. Its budgets hold for all variations, so that free memory is read once.
  /// `decides`: id of the estimator that judged the base; "" = choose the best match for each variation.
  Replanner(RunSource source, plugin::Registry& registry, PlanRequest request, ResolvedRun base,
            std::string decides);

  /// Plans the base with `settings` applied. nullopt: not a valid run, no estimator plans it, or a lower
  /// bound shows that it cannot fit. `other_device`: the settings name a device; its memory replaces
  /// memory.budget and the free memory of this machine. `verdict_only`: the bytes of a plan that does not fit
  /// may be any beyond the budget. Adapters that the estimator of a framework does not describe are planned
  /// by the closed form, and fit only with its upper bounds.
  std::optional<Estimate> plan(const Settings& settings, bool other_device = false, bool verdict_only = true);
  /// True if the estimator has refused these settings, or a part of them, as not described: what it does not
  /// describe, it does not describe with further changes either, unless these recompute or add data ranks.
  /// plan() then asks no estimator of the framework.
  bool is_refused(const Settings& settings) const;
  /// Plans a run that differs from the base in numbers only; no settings are parsed.
  std::optional<Estimate> plan(const runfile::RunConfig& c);

  /// `bytes`: weights, gradients and optimizer state of the base at its peak, in the compute tier. A
  /// variation of another batch, sequence or recomputation needs at least as much and is not planned where
  /// they exceed its budget.
  void set_states(std::uint64_t bytes) { states_ = bytes; }

  /// The digest of the estimate of the base; 0: none.
  void set_digest(std::uint64_t digest) { digest_ = digest; }

  const ResolvedRun& base() const { return base_; }
  /// Whether the closed form has planned a variation of a run that another estimator judged.
  bool is_stand_in(const Estimate& e) const;
  std::uint64_t planned() const { return planned_; }  // number of estimates requested

 private:
  /// A memory report that does not depend on a budget, with everything that it does depend on.
  struct CachedReport {
    std::string estimator;
    ModelSpec model;
    RunSpec run;  // budgets set to 0
    TrainerTraits traits;
    MemoryReport report;
  };
  /// An answer of plan(): combinations of changes ask again for what was asked in another order.
  struct PlannedSettings {
    Settings settings;  // sorted by key
    bool other_device, verdict_only;
    std::optional<Estimate> estimate;
  };
  /// What the caller needs to know of a plan that does not fit.
  enum class Wanted : std::uint8_t { kAll, kPeak, kVerdict };
  std::optional<Estimate> plan_settings(const Settings& settings, bool other_device, bool verdict_only);
  std::optional<Estimate> plan_variation(runfile::RunConfig c, bool other_device, Wanted wanted);
  std::optional<Estimate> plan_by(const std::string& decides, runfile::RunConfig c, bool other_device,
                                  Wanted wanted);
  const CachedReport* find_cached(const ResolvedRun& r, const std::string& id,
                                  const TrainerTraits& traits) const;
  std::optional<Estimate> plan_of_adapters(const Settings& settings);
  bool has_states_of_base(const runfile::RunConfig& c) const;
  std::optional<Estimate> plan_of_trainer(const ResolvedRun& r, plugin::Registry& registry,
                                          const PlanRequest& request);
  plugin::Registry& registry_for(const runfile::RunConfig& c);

  RunSource source_;
  plugin::Registry& registry_;
  PlanRequest request_;
  ResolvedRun base_;
  std::string decides_;
  bool closed_form_stands_in_;  // the estimator of the framework has refused the base, so decides_ answered
  std::uint64_t planned_ = 0, states_ = 0, digest_ = 0;
  std::optional<bool> trainer_agrees_;  // its plan of the base is that of the estimator
  std::vector<CachedReport> cache_;
  std::vector<PlannedSettings> planned_settings_;
  std::vector<Settings> refused_;
  /// For variations with other plugin options; these alternate, and a registry loads its plugins once.
  std::map<decltype(runfile::RunConfig::plugin_options), std::unique_ptr<plugin::Registry>> others_;
};

}  // namespace trainhost::planning
