// See choose_backend.hpp.
#include "core/planning/choose_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/planning/key_positions.hpp"

namespace trainhost::planning {
namespace {

/// A wrong word in [plugin.NAME] is the user's to mend, and a device that is full would be as full next time:
/// neither is a reason to take another backend in silence.
bool moves_on(const std::string& status) {
  return status == "unavailable" || status == "unsupported" || status == "rejected";
}

/// The trainer `id` if it can be used here; otherwise nullptr and the reason.
plugin::Trainer* usable(plugin::Registry& registry, const std::string& id, std::string& reason) {
  if (!registry.find(id)) {
    reason = fmt::format("no plugin file provides the {} backend here", id);
    return nullptr;
  }
  try {
    plugin::Trainer& t = registry.trainer(id);
    t.probe();
    return &t;
  } catch (const plugin::PluginError& e) {
    if (!moves_on(e.status())) throw;
    reason = e.what();
    return nullptr;
  }
}

/// A file of that name which is no plugin, or whose manifest could not be read.
const plugin::Candidate* refused_file(const plugin::Registry& registry, const std::string& name) {
  for (const plugin::Candidate& c : registry.candidates())
    if (c.status == plugin::Status::kRejected && c.manifest.id.empty() && c.file.stem() == name) return &c;
  return nullptr;
}

/// Throws where no file provides a trainer of that name; [plugin.cuda] and its name are known everywhere.
void require_backend(const plugin::Registry& registry, const std::string& name, const Where& place) {
  if (name == "cuda" || registry.find(name)) return;
  std::vector<std::string> known = registry.ids("trainer");
  known.insert(known.end(), {"auto", "cuda"});
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  if (const plugin::Candidate* no = refused_file(registry, name))
    throw usage_error(fmt::format("the backend '{}': the plugin {} cannot be used: {}", escaped(name),
                                  escaped(no->file.string()), no->reason),
                      no->hint.empty() ? fmt::format("backends here: {}", fmt::join(known, ", ")) : no->hint,
                      place);
  throw usage_error(
      fmt::format("no plugin provides the backend '{}'", escaped(name)) + did_you_mean(name, known),
      fmt::format("backends here: {}; see trainhost plugins list", fmt::join(known, ", ")), place);
}

/// Which trainer is made for the device; "" for none of these. A processor's memory is the host's: no link
/// between.
std::string backend_for(const DevicePreset* device) {
  if (device && device->host_gbs == device->memory_gbs) return "cpu";
  return !device || device->vendor == "NVIDIA" ? "cuda" : "";
}

}  // namespace

Choice choose_backend(plugin::Registry& registry, const std::string& requested, bool allow_fallback,
                      const std::vector<std::string>& all, const Where& place) {
  Choice c;
  c.requested = requested;
  std::vector<std::string> order;
  const auto from = requested == "auto" ? all.begin() : std::find(all.begin(), all.end(), requested);
  if (from != all.end() && (requested == "auto" || allow_fallback))
    order.assign(from, all.end());
  else
    order = {requested};

  if (requested != "auto" && from == all.end()) require_backend(registry, requested, place);
  for (const std::string& id : order) {
    std::string reason;
    if (plugin::Trainer* t = usable(registry, id, reason)) {
      c.trainer = t;
      c.id = id;
      c.trace += fmt::format("{}: used\n", id);
      return c;
    }
    c.trace += fmt::format("{}: {}\n", id, reason);
    if (requested != "auto" && c.fallback_reason.empty()) c.fallback_reason = reason;
  }
  std::string why = c.trace.substr(0, c.trace.find_last_not_of('\n') + 1);
  std::replace(why.begin(), why.end(), '\n', ';');
  throw Error(Exit::kNoBackend, fmt::format("the backend '{}' cannot be used: {}", requested, why),
              order.size() > 1 || allow_fallback ? "see trainhost plugins list -v"
                                                 : "without --no-fallback another backend would be tried");
}

std::string planned_trainer(const runfile::RunConfig& c, plugin::Registry& registry) {
  const Where place = place_of(c, "train.backend");
  std::string wanted = c.backend;
  if (c.device.empty() && wanted != "cuda")
    return choose_backend(registry, wanted, true, c.backend_order, place).id;
  if (wanted == "auto")
    wanted = backend_for(find_device_preset(c.device));
  else if (std::ranges::find(c.backend_order, wanted) == c.backend_order.end())
    require_backend(registry, wanted, place);
  return registry.find(wanted) ? wanted : "";
}

void check_backend_order(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<std::string> known = registry.ids("trainer");
  for (const char* own : {"cpu", "cuda"})
    if (std::find(known.begin(), known.end(), own) == known.end()) known.push_back(own);
  for (const std::string& id : c.backend_order) {
    if (registry.find(id) || std::find(known.begin(), known.end(), id) != known.end()) continue;
    std::vector<std::string> left =
        known;  // a name that stands in the list itself is not what another there was meant to be
    std::erase_if(left, [&](const std::string& k) {
      return std::find(c.backend_order.begin(), c.backend_order.end(), k) != c.backend_order.end();
    });
    if (const std::string meant = did_you_mean(id, left); !meant.empty())
      throw usage_error(
          fmt::format("plugins.order: no plugin provides the backend '{}'", escaped(id)) + meant,
          fmt::format("backends here: {}", fmt::join(known, ", ")), c.backend_order_at);
  }
}

void check_plugin_options(const runfile::RunConfig& c, const plugin::Registry& registry) {
  std::vector<std::string> names = {"cuda"};
  for (const plugin::Candidate& k : registry.candidates())
    if (!k.manifest.id.empty()) names.push_back(k.manifest.id);
  for (const auto& [name, table] : c.plugin_options) {
    const plugin::Candidate* found = registry.find(name);
    for (const auto& [key, value] : table) {
      Where where;
      if (auto at = c.plugin_option_lines.find(name + "." + key); at != c.plugin_option_lines.end())
        where = {c.file.string(), at->second.first, at->second.second};
      if (!found) {
        if (name == "cuda") continue;
        throw usage_error(fmt::format("[plugin.{}]: no plugin of that name is here", escaped(name)) +
                              did_you_mean(name, names),
                          "see trainhost plugins list", where);
      }
      const std::vector<std::string>& known = found->manifest.options;
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw usage_error(fmt::format("plugin.{}.{}: the plugin has no such option", name, escaped(key)) +
                              did_you_mean(key, known),
                          known.empty() ? "it has none" : fmt::format("it has: {}", fmt::join(known, ", ")),
                          where);
    }
  }
}

}  // namespace trainhost::planning
