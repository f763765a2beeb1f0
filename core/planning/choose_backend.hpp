// Which trainer runs. `auto` and the names of the run's order (cuda, cpu) fall back along it with a reason;
// any other name must work or the run stops.
#pragma once
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

struct Choice {
  plugin::Trainer* trainer = nullptr;
  std::string id;               // "cpu"
  std::string requested;        // as asked: "auto", "cuda", ...
  std::string fallback_reason;  // why it is not the one asked for; "" when it is, or when auto simply chose
  std::string trace;            // for -v: each candidate and what became of it
};

/// `auto` walks `order`; one of its names walks it from there on, unless fallback is off. Only what is not
/// there, unavailable, unsupported or refused by the host moves on: any other failure (out of memory, a wrong
/// option, a plugin's own bug) is the user's to see. Throws Error(kNoBackend) when fallback is off or nothing
/// is left, Error(kUsage) for a name that no file provides, with `place`.
Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback,
                      const std::vector<std::string>& order = {"cuda", "cpu"}, const Where& place = {});

/// The trainer that a plan is for: a device of NVIDIA is planned for the cuda backend, a processor for the
/// cpu backend, another vendor's device for none of these; without a device, the backend that train would
/// choose. "" = none is installed for it. Throws Error(kUsage) for a backend that no file provides, with its
/// place and the nearest name.
std::string planned_trainer(const runfile::RunConfig& c, plugin::Registry& registry);

/// Holds every [plugin.NAME] table of the run file against the manifests: a table of a plugin that is not
/// here, or a key that a manifest does not list, throws usage_error with its place and the nearest name.
/// [plugin.cuda] may stand in a run file on machines without that plugin.
void check_plugin_options(const runfile::RunConfig& c, const plugin::Registry& registry);

/// Throws usage_error for a name of plugins.order that no plugin has and that is almost another's. A name
/// like none may be a backend that other machines have: it is passed over, and the trace says so.
void check_backend_order(const runfile::RunConfig& c, const plugin::Registry& registry);

}  // namespace trainhost::planning
