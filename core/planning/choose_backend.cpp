// See choose_backend.hpp.
#include "core/planning/choose_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/planning/error_context.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::planning {
namespace {

/// An invalid option in [plugin.NAME] or a device without free memory must be reported, not hidden by another
/// backend.
bool allows_fallback(const std::string& status) {
  return status == "unavailable" || status == "unsupported" || status == "rejected";
}

/// Why a backend cannot be used, and what to do about it.
struct Reason {
  std::string text, hint;
};

/// The trainer `id`, or nullptr and the reason why it cannot be used.
/// probe() loads the engine's vendor library where there is one, so it is the first call that can fail for
/// reasons of the machine.
plugin::Trainer* usable_trainer(plugin::Registry& registry, const std::string& id, Reason& reason) {
  if (!registry.find(id)) {
    reason.text = fmt::format("no installed plugin provides the {} backend", id);
    return nullptr;
  }
  try {
    plugin::Trainer& t = registry.trainer(id);
    t.probe();
    return &t;
  } catch (const plugin::PluginError& e) {
    if (!allows_fallback(e.status())) throw;
    reason = {e.what(), e.hint()};
    return nullptr;
  }
}

/// A file of that name that is not a plugin, or whose manifest could not be read. Its manifest has no id, so
/// the file name is the only link to the name that the user wrote.
const plugin::Candidate* rejected_file(const plugin::Registry& registry, const std::string& name) {
  for (const plugin::Candidate& c : registry.candidates())
    if (c.status == plugin::Status::kRejected && c.manifest.id.empty() && c.file.stem() == name) return &c;
  return nullptr;
}

/// Throws where no plugin file provides a trainer of that name. "cuda" is always a known name.
void require_backend(const plugin::Registry& registry, const std::string& name, const Where& where) {
  if (name == "cuda" || registry.find(name)) return;
  std::vector<std::string> known = registry.ids("trainer");
  known.insert(known.end(), {"auto", "cuda"});
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  // A file that was rejected is a better explanation than "no plugin".
  if (const plugin::Candidate* rejected = rejected_file(registry, name))
    throw usage_error(fmt::format("backend '{}': the plugin {} cannot be used: {}", escaped(name),
                                  escaped(rejected->file.string()), rejected->reason),
                      rejected->hint.empty() ? fmt::format("available backends: {}", fmt::join(known, ", "))
                                             : rejected->hint,
                      where);
  throw usage_error(fmt::format("no plugin provides the backend '{}'", escaped(name)) +
                        runfile::suggest_backend(name, known),
                    fmt::format("available backends: {}; see trainhost plugins list", fmt::join(known, ", ")),
                    where);
}

/// The trainer for this device; "" where there is none. A processor is a preset whose memory is host memory.
/// A preset of a processor has one bandwidth, since host and compute memory are the same. A preset of another
/// vendor has no trainer here, so the plan is for a device in general.
std::string backend_for(const DevicePreset* device) {
  if (device && device->host_gbs == device->memory_gbs) return "cpu";
  return !device || device->vendor == "NVIDIA" ? "cuda" : "";
}

}  // namespace

/// Does not load plugins after the first usable one. The trace has a line per candidate that was tried, in
/// that order; the error message consists of the same reasons.
Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback,
                      const std::vector<std::string>& all, const Where& where) {
  Choice c;
  c.requested = requested;
  std::vector<std::string> order;  // backends to try
  const auto from = requested == "auto" ? all.begin() : std::find(all.begin(), all.end(), requested);
  if (from != all.end() && (requested == "auto" || allow_fallback))
    order.assign(from, all.end());
  else
    order = {requested};

  if (requested != "auto" && from == all.end()) require_backend(registry, requested, where);
  std::vector<std::string> reasons;
  for (const std::string& id : order) {
    Reason reason;
    if (plugin::Trainer* t = usable_trainer(registry, id, reason)) {
      c.trainer = t;
      c.id = id;
      c.trace += fmt::format("{}: used\n", id);
      return c;
    }
    reasons.push_back(fmt::format("{}: {}", id, reason.text));
    c.trace += reasons.back() + "\n";
    // The first reason is that of the backend that the user named; later ones concern its fallbacks.
    if (requested != "auto" && c.fallback_reason.empty())
      c.fallback_reason = reason.text, c.fallback_hint = reason.hint;
  }
  std::string why;
  for (const std::string& reason : reasons) why += (why.empty() ? "" : "; ") + reason;
  const char* other = order.size() > 1 || allow_fallback ? "see trainhost plugins list -v"
                                                         : "omit --no-fallback to try other backends";
  throw Error(Exit::kNoBackend, fmt::format("backend '{}' cannot be used: {}", requested, why),
              c.fallback_hint.empty() ? other : c.fallback_hint + "; or " + other);
}

bool is_for_gpu_of_budget(const runfile::RunConfig& c) {
  const auto budget = c.given.find("memory.budget");
  return c.device.empty() && c.framework.empty() && c.backend == "auto" && budget != c.given.end() &&
         budget->second.file.starts_with("--");
}

bool is_for_another_machine(const runfile::RunConfig& c) {
  return !c.device.empty() || !c.framework.empty() || is_for_gpu_of_budget(c);
}

/// A plan may be for a machine that is not this one: with memory.device, or with --budget alone, no backend
/// is probed, and "cuda" is planned without a GPU.
std::string planned_trainer(const runfile::RunConfig& c, plugin::Registry& registry) {
  const Where where = position_of_key(c, "train.backend");
  if (!c.framework.empty()) return "";
  if (is_for_gpu_of_budget(c)) return registry.find("cuda") ? "cuda" : "";
  std::string wanted = c.backend;
  if (c.device.empty() && wanted != "cuda")
    return choose_backend(registry, wanted, true, c.backend_order, where).id;
  if (wanted == "auto")
    wanted = backend_for(find_device_preset(c.device));
  else if (std::ranges::find(c.backend_order, wanted) == c.backend_order.end())
    require_backend(registry, wanted, where);
  return registry.find(wanted) ? wanted : "";
}

namespace {

/// The run file is shared between machines, so an unknown name alone is no error. A name close to a known one
/// most likely is a typing mistake.
std::vector<Error> backend_order_errors(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<Error> out;
  std::vector<std::string> known = registry.ids("trainer");
  for (const char* shipped : {"cpu", "cuda"})
    if (std::find(known.begin(), known.end(), shipped) == known.end()) known.push_back(shipped);
  for (const std::string& id : c.backend_order) {
    if (registry.find(id) || std::find(known.begin(), known.end(), id) != known.end()) continue;
    std::vector<std::string> unlisted = known;  // do not suggest a name that is already in the list
    std::erase_if(unlisted, [&](const std::string& k) {
      return std::find(c.backend_order.begin(), c.backend_order.end(), k) != c.backend_order.end();
    });
    if (const std::string meant = runfile::suggest_backend(id, unlisted); !meant.empty())
      out.push_back(
          usage_error(fmt::format("plugins.order: no plugin provides the backend '{}'", escaped(id)) + meant,
                      fmt::format("available backends: {}", fmt::join(known, ", ")), c.backend_order_at));
  }
  return out;
}

/// Options are checked before any plugin is loaded. An option of the right plugin but with a wrong value is
/// the plugin's to reject.
std::vector<Error> plugin_option_errors(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<Error> out;
  std::vector<std::string> names = {"cuda"};
  for (const plugin::Candidate& k : registry.candidates())
    if (!k.manifest.id.empty()) names.push_back(k.manifest.id);
  for (const auto& [name, table] : c.plugin_options) {
    if (name == plugin::kFrameworkOptions) continue;  // keys of the schema, checked there
    const plugin::Candidate* found = registry.find(name);
    for (const auto& [key, value] : table) {
      Where where;
      if (auto at = c.plugin_option_lines.find(name + "." + key); at != c.plugin_option_lines.end())
        where = {c.file.string(), at->second.first, at->second.second};
      if (!found) {
        if (name == "cuda") continue;
        out.push_back(
            usage_error(fmt::format("[plugin.{}]: no plugin of that name is installed", escaped(name)) +
                            did_you_mean(name, names),
                        "see trainhost plugins list", where));
        break;
      }
      const std::vector<std::string>& known = found->manifest.options;
      if (std::find(known.begin(), known.end(), key) == known.end())
        out.push_back(usage_error(
            fmt::format("plugin.{}.{}: the plugin has no such option", name, escaped(key)) +
                did_you_mean(key, known),
            known.empty() ? "it has no options" : fmt::format("its options: {}", fmt::join(known, ", ")),
            where));
    }
  }
  return out;
}

std::vector<Error> estimator_name_errors(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<Error> out;
  const std::vector<std::string> known = registry.ids("estimator");
  for (const std::string& id : c.estimators)
    if (id != "auto" && id != "all" && !registry.find(id) && !rejected_file(registry, id))
      out.push_back(usage_error(
          fmt::format("{}: no plugin provides the estimator '{}'", c.estimator_rule, escaped(id, 80)) +
              did_you_mean(id, known),
          fmt::format("installed estimators: {}", fmt::join(known, ", ")),
          position_of_key(c, "memory.estimator")));
  return out;
}

void throw_first(const std::vector<Error>& errors) {
  if (!errors.empty()) throw errors.front();
}

}  // namespace

void validate_backend_order(const runfile::RunConfig& c, const plugin::Registry& registry) {
  throw_first(backend_order_errors(c, registry));
}

void validate_plugin_options(const runfile::RunConfig& c, const plugin::Registry& registry) {
  throw_first(plugin_option_errors(c, registry));
}

std::vector<Error> plugin_name_errors(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<Error> out = plugin_option_errors(c, registry);
  for (const auto& more : {backend_order_errors(c, registry), estimator_name_errors(c, registry)})
    out.insert(out.end(), more.begin(), more.end());
  try {
    if (c.backend != "auto" && std::ranges::find(c.backend_order, c.backend) == c.backend_order.end())
      require_backend(registry, c.backend, position_of_key(c, "train.backend"));
  } catch (const Error& e) {
    out.push_back(e);
  }
  return out;
}

}  // namespace trainhost::planning
