// See budget.hpp. Order of sources: memory.budget, memory.device, then what is free on this machine. A budget
// that is not known limits nothing, and the report says so.
#include "core/planning/budget.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/process/host_info.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::planning {
namespace {

Budget preset_budget(const std::string& device) {
  if (const DevicePreset* d = find_device_preset(device)) return {d->memory_bytes, d->name, true};
  throw usage_error("unknown device '" + escaped(device) + "'" + runfile::suggest_device(device),
                    "see trainhost devices, or set memory.budget to a size");
}

Budget free_memory(const char* source) {
  const std::optional<std::uint64_t> free = free_host_bytes();
  return free ? Budget{*free, source, true} : Budget{0, "not known: /proc/meminfo cannot be read", false};
}

Budget compute_budget(const runfile::RunConfig& c, Tier tier, plugin::Trainer* trainer) {
  if (c.budget) return {*c.budget, "memory.budget", true};
  if (!c.device.empty()) return preset_budget(c.device);
  if (!c.framework.empty()) return {0, "not known", false};
  // Without a trainer on a device, or on the CPU, the run uses this machine's memory.
  if (tier == Tier::kHost || !trainer) return free_memory("free memory");
  if (auto d = trainer->device_memory()) return {d->free_bytes, "free memory of " + d->name, true};
  return {0, fmt::format("not known: the {} backend finds no device here", trainer->id()), false};
}

std::string describe_excess(std::uint64_t needed, const Budget& b, const char* what) {
  if (!b.known || needed <= b.bytes) return {};
  return fmt::format("the run needs {}{}, but {} is {}: {} ({} bytes) short", format_bytes(needed), what,
                     b.source, format_bytes(b.bytes), format_bytes(needed - b.bytes),
                     format_count(needed - b.bytes));
}

}  // namespace

Budgets find_budgets(const runfile::RunConfig& c, const TrainerTraits& traits, plugin::Trainer* trainer,
                     bool elsewhere) {
  Budgets b;
  b.tier = traits.tier;
  b.safe = c.safe;
  b.compute = compute_budget(c, traits.tier, trainer);
  // On the CPU one budget covers everything.
  if (traits.tier == Tier::kHost) return b;
  // memory.budget is not reduced: it is the user's limit for the plan alone.
  if (!c.budget && b.compute.known && traits.runtime_bytes) {
    // The runtime (context, libraries) takes device memory that no plan contains.
    b.compute.bytes -= std::min(b.compute.bytes, traits.runtime_bytes);
    b.compute.source += ", less " + format_bytes(traits.runtime_bytes) + " for its runtime";
  }
  // `elsewhere`: the run will be on another machine, whose host memory is not known.
  if (c.host_budget)
    b.host = {*c.host_budget, "memory.host_budget", true};
  else if (trainer && !elsewhere)
    b.host = free_memory("free host memory");
  return b;
}

/// Replaces an estimate by its upper bounds, and says by how much they exceed it in the memory that is
/// judged: that of the device, without what is in host memory.
static void be_safe(MemoryReport& r, Tier tier) {
  if (r.claim != Claim::kApproximation) return;
  const auto bytes = [&] { return tier == Tier::kHost ? r.total_bytes() : r.tier_bytes(tier); };
  const std::uint64_t before = bytes();
  raise_to_upper_bounds(r);
  const std::uint64_t margin = bytes() - before;
  r.notes.insert(r.notes.begin(),
                 margin == 0 ? "--safe changes nothing: this estimator states no margin."
                             : fmt::format("Upper bounds (--safe): the estimate is {}, and its margin {}.",
                                           format_bytes(before), format_bytes(margin)));
}

Estimate judge(MemoryReport r, const Budgets& b) {
  if (b.safe) be_safe(r, b.tier);
  Estimate e;
  e.report = std::move(r);
  e.total_bytes = e.report.total_bytes();
  // On the CPU all memory of the run is in the compute tier; on a device, only device memory is.
  e.compute_bytes = b.tier == Tier::kHost ? e.total_bytes : e.report.tier_bytes(b.tier);
  if (b.tier != Tier::kHost) {
    e.host_bytes = e.report.tier_bytes(Tier::kPinned) + e.report.tier_bytes(Tier::kHost);
    e.disk_bytes = e.report.tier_bytes(Tier::kDisk);
  }
  // A limit that is not known excludes nothing; PlanResult::verdict() says which ones are not known.
  e.fits = (!b.compute.known || e.compute_bytes <= b.compute.bytes) &&
           (!b.host.known || e.host_bytes <= b.host.bytes);
  return e;
}

std::string why_it_does_not_fit(const Estimate& e, const Budgets& b, bool smallest) {
  std::string out =
      describe_excess(e.compute_bytes, b.compute, smallest ? " with every layer recomputed" : "");
  // Both sentences if both are short.
  const std::string host = describe_excess(e.host_bytes, b.host, " of host memory");
  return out + (out.empty() || host.empty() ? "" : "; ") + host;
}

}  // namespace trainhost::planning
