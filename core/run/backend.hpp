// Which trainer runs. `auto` and `cuda` fall back to the CPU with a reason; any other name must work or the run stops.
#pragma once
#include <string>

#include "core/config/run_config.hpp"
#include "core/plugin/registry.hpp"

namespace trainhost::run {

struct Choice {
  plugin::Trainer* trainer = nullptr;
  std::string id;               // "cpu"
  std::string requested;        // as asked: "auto", "cuda", ...
  std::string fallback_reason;  // why it is not the one asked for; "" when it is, or when auto simply chose
  std::string trace;            // for -v: each candidate and what became of it
};

/// Throws Error(kNoBackend) when fallback is off or nothing is left, Error(kUsage) for a name that no file provides.
Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback);

/// The trainer that a plan is for: a device of NVIDIA is planned for the cuda backend, one of another vendor for none of
/// these; without a device, the backend that train would choose. "" = none is installed for it.
std::string planned_trainer(const config::RunConfig& c, plugin::Registry& registry);

/// Holds every [plugin.NAME] table of the run file against the manifests: a table of a plugin that is not here, or a key
/// that a manifest does not list, throws usage_error with its place and the nearest name. [plugin.cuda] may stand in a
/// run file on machines without that plugin.
void check_plugin_options(const config::RunConfig& c, const plugin::Registry& registry);

}  // namespace trainhost::run
