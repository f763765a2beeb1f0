// See memory_snapshot.hpp. Offsets and lifetimes are those of the plan; nothing is estimated here.
#include "core/planning/memory_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/planning/plan_result.hpp"

namespace trainhost::planning {
namespace {

/// The operations of a step: one micro-batch, then the update.
struct StepRange {
  step::Section micro, update;
  explicit StepRange(const step::Program& p)
      : micro(p.section(step::SectionKind::kMicro)), update(p.section(step::SectionKind::kUpdate)) {}
  bool contains(std::uint32_t op) const {
    return (op >= micro.begin && op < micro.end) || (op >= update.begin && op < update.end);
  }
};

/// Where the compute tier is the host, its own buffers (batches, staging) are in the plan too; the arena
/// comes first.
void add_host_buffers(const Estimate& e, std::uint64_t arena_bytes, MemorySnapshot& s) {
  std::uint64_t at = arena_bytes;
  for (const MemoryEntry& n : e.report.entries) {
    if (!n.name.starts_with("host.") || n.at_peak() == 0 || at + n.at_peak() > e.compute_bytes) continue;
    s.events.push_back({true, static_cast<std::uint32_t>(s.buffers.size()), "", kLoad});
    s.buffers.push_back({n.name, n.component, at, n.at_peak(), true});
    at += n.at_peak();
  }
  s.total_bytes = std::max(at, arena_bytes);
}

MemorySnapshot snapshot_of(const step::Program& p, const placement::MemoryPlan& plan, const Estimate& e) {
  MemorySnapshot s;
  const StepRange range(p);
  std::vector<std::vector<step::BufferId>> first(p.ops.size()), last(p.ops.size());
  std::vector<std::uint32_t> index(p.buffers.size());
  const auto add = [&](step::BufferId b, bool kept) {
    index[b] = static_cast<std::uint32_t>(s.buffers.size());
    s.buffers.push_back({p[b].name(), p[b].component, plan.offset[b], p[b].bytes(), kept});
  };
  for (step::BufferId b = 0; b < p.buffers.size(); ++b) {
    const placement::Lifetime& l = plan.lifetime[b];
    if (p[b].storage == step::Storage::kExternal || p[b].tier != p.traits.tier || !l.used() ||
        p[b].bytes() == 0)
      continue;
    if (p[b].persistent && p[b].component != Component::kGradients) {
      add(b, true);
      s.events.push_back({true, index[b], "", kLoad});
    } else if (range.contains(l.first)) {
      first[l.first].push_back(b);
      last[l.last].push_back(b);
    }
  }
  add_host_buffers(e, plan.arena_bytes, s);
  for (std::uint32_t op = 0; op < p.ops.size(); ++op) {
    if (!range.contains(op)) continue;
    const std::string label = first[op].empty() && last[op].empty() ? "" : step::op_label(p, p.ops[op]);
    for (const step::BufferId b : first[op]) {
      add(b, false);
      s.events.push_back({true, index[b], label, p.ops[op].phase});
    }
    for (const step::BufferId b : last[op]) s.events.push_back({false, index[b], label, p.ops[op].phase});
  }
  return s;
}

}  // namespace

MemorySnapshot memory_snapshot(const runfile::RunConfig& c, const TrainerTraits& traits, const Estimate& e,
                               const char* option) {
  const bool trains = c.run.mode != RunMode::kInference;
  if (trains && c.framework.empty() && e.report.digest != 0 && trainable_family(c.model.family)) {
    const step::Program p = step::build_program(c.model, c.run, traits);
    const placement::MemoryPlan plan = placement::place(p);
    if (plan.digest == e.report.digest) return snapshot_of(p, plan, e);
  }
  throw usage_error(
      fmt::format("{}: the estimator {} has no list of allocations of this run", option, e.report.source),
      "runs that trainhost trains itself have one: without plan.framework, and with a family and a "
      "layout that its trainers know");
}

}  // namespace trainhost::planning
