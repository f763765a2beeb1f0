// Chooses the trainer of a run. `auto` and the backends in plugins.order (default: cuda, cpu) fall back to
// the next one with a reason; any other backend must be usable, or the run stops.
#pragma once
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct Choice {
  plugin::Trainer* trainer = nullptr;
  std::string id;               // "cpu"
  std::string requested;        // as requested: "auto", "cuda", ...
  std::string fallback_reason;  // why the requested backend is not used; "" if it is, or for "auto"
  std::string fallback_hint;    // what to do about it; "" if the plugin says nothing
  std::string trace;            // one line per candidate with its outcome, for -v
};

/// `auto` tries all of `order`; a name in `order` tries it and those after it, unless `allow_fallback` is
/// false. Only a missing, unavailable, unsupported or rejected plugin leads to the next one; any other
/// failure (out of memory, an invalid option, a plugin's own bug) is thrown. Throws Error(kNoBackend) where
/// none is usable, Error(kUsage) with `where` for a name that no plugin file provides.
Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback,
                      const std::vector<std::string>& order = {"cuda", "cpu"}, const Where& where = {});

/// A budget on the command line, without device and backend, asks whether the run fits a GPU of that size.
bool is_for_gpu_of_budget(const runfile::RunConfig& c);
/// The plan is for a device that is named, of a size that is given, or for another framework; this machine is
/// not looked at.
bool is_for_another_machine(const runfile::RunConfig& c);

/// Id of the trainer to plan for: the cuda backend for an NVIDIA device and for a GPU of a given budget, the
/// cpu backend for a processor, none for a device of another vendor and for another framework; otherwise the
/// backend that training would choose. "" = none is installed. Throws Error(kUsage) with position and nearest
/// name for a backend that no plugin file provides.
std::string planned_trainer(const runfile::RunConfig& c, plugin::Registry& registry);

/// Compares every [plugin.NAME] table of the run file with the manifests. Throws usage_error with position
/// and nearest name for an unknown plugin or option. [plugin.cuda] is accepted on machines without that
/// plugin.
void validate_plugin_options(const runfile::RunConfig& c, const plugin::Registry& registry);

/// Throws usage_error for a name in plugins.order that no plugin has and that resembles a known one. Any
/// other unknown name may be a backend of other machines: it is skipped, and the trace lists it.
void validate_backend_order(const runfile::RunConfig& c, const plugin::Registry& registry);

/// Everything in the run file that names no installed plugin, or no option of one: what the two functions
/// above throw, unknown names in train.backend and among the estimators. No plugin is loaded.
std::vector<Error> plugin_name_errors(const runfile::RunConfig& c, const plugin::Registry& registry);

}  // namespace trainhost::planning
