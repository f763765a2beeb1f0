// See budget.hpp.
#include "core/run/budget.hpp"

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/run/process.hpp"

namespace trainhost::run {

Budget compute_budget(const config::RunConfig& c) {
  if (c.budget) return {*c.budget, "memory.budget"};
  if (!c.device.empty()) {
    if (const DevicePreset* d = find_device_preset(c.device)) return {d->memory_bytes, d->name};
    std::vector<std::string> names;
    for (const DevicePreset& d : device_presets()) names.push_back(d.name);
    throw usage_error("unknown device '" + escaped(c.device) + "'" + did_you_mean(c.device, names),
                      "trainhost devices lists them; memory.budget takes any size");
  }
  return {free_host_bytes(), "free memory"};
}

}  // namespace trainhost::run
