// See live_timeline.hpp.
#include "core/planning/live_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/placement/live_bytes.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::planning {
namespace {

using report::Estimate;
using report::Moment;
using Parts = std::map<Component, std::uint64_t>;

Moment moment(std::string name, const Parts& parts) {
  Moment m{std::move(name), 0, {}};
  for (const auto& [component, bytes] : parts) {
    if (bytes == 0) continue;
    m.bytes += bytes;
    m.components.emplace_back(component, bytes);
  }
  return m;
}

bool counts(const MemoryEntry& n, Tier tier) { return tier == Tier::kHost || n.tier == tier; }

/// What stands from start to end beside the program's tensors: holes and alignment, and the host's own
/// buffers.
Parts beside_the_program(const Estimate& e, Tier tier) {
  Parts parts;
  for (const MemoryEntry& n : e.report.entries)
    if (counts(n, tier) && (n.component == Component::kFragmentation || n.name.starts_with("host.")))
      parts[n.component] += n.at_peak();
  return parts;
}

/// "forward, layer 3"; before the first layer of a pass and after its last there is no layer to name.
std::string moment_name(const step::Op& op, bool layers_seen) {
  if (op.layer >= 0) return fmt::format("{}, layer {}", name(op.phase), op.layer);
  if (op.phase == kUpdate) return "update";
  const bool at_the_head = (op.phase == kForward) == layers_seen;
  return fmt::format("{}, {}", name(op.phase), at_the_head ? "head" : "embedding");
}

/// One moment for each layer of each pass: its fullest operation.
std::vector<Moment> of_program(const step::Program& p, const placement::MemoryPlan& placed,
                               const Parts& beside) {
  const std::vector<std::uint64_t> live = placement::live_bytes(p, placed.lifetime, p.traits.tier);
  std::vector<std::pair<std::string, std::uint32_t>> fullest;  // in order of first appearance
  std::map<std::string, std::size_t> index;
  std::map<Phase, bool> layers_seen;
  for (step::SectionKind kind : {step::SectionKind::kMicro, step::SectionKind::kUpdate}) {
    const step::Section s = p.section(kind);
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      if (p.ops[i].layer >= 0) layers_seen[p.ops[i].phase] = true;
      const std::string name =
          kind == step::SectionKind::kUpdate ? "update" : moment_name(p.ops[i], layers_seen[p.ops[i].phase]);
      const auto [at, fresh] = index.try_emplace(name, fullest.size());
      if (fresh) fullest.emplace_back(name, i);
      if (std::uint32_t& best = fullest[at->second].second; live[i] > live[best]) best = i;
    }
  }
  // A copy of a mode may begin what belongs elsewhere: moments stand where they are fullest.
  std::ranges::stable_sort(fullest, {}, [](const auto& moment) { return moment.second; });
  std::vector<Moment> out;
  for (const auto& [name, op] : fullest) {
    Parts parts = beside;
    for (const placement::LayerShare& s : placement::live_by_layer(p, placed.lifetime, op))
      parts[s.component] += s.bytes;
    out.push_back(moment(name, parts));
  }
  return out;
}

std::optional<std::vector<Moment>> from_program(const runfile::RunConfig& c, const TrainerTraits& traits,
                                                const Estimate& e) {
  if (e.report.digest == 0 || !trainable_family(c.model.family)) return std::nullopt;
  try {
    const step::Program p = step::build_program(c.model, c.run, traits);
    const placement::MemoryPlan placed = placement::place(p);
    if (placed.digest != e.report.digest) return std::nullopt;  // a trainer with a program of its own
    return of_program(p, placed, beside_the_program(e, traits.tier));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Four moments around the passes and the peak between them.
std::vector<Moment> from_leaves(const Estimate& e, Tier tier, bool trains) {
  Parts kept, grown, peak, gradients;
  for (const MemoryEntry& n : e.report.entries) {
    if (!counts(n, tier)) continue;
    const std::uint64_t bytes = n.at_peak();
    peak[n.component] += bytes;
    switch (n.component) {
      case Component::kGradients:
        gradients[n.component] += bytes;
        break;
      case Component::kActivations:
      case Component::kLogits:
        grown[n.component] += bytes;
        break;
      case Component::kWorkspace:
      case Component::kCommunication:
        break;  // of an operation: at the peak alone
      default:
        kept[n.component] += bytes;
    }
  }
  const auto with = [](Parts a, const Parts& b) {
    for (const auto& [c, bytes] : b) a[c] += bytes;
    return a;
  };
  if (!trains) return {moment("weights loaded", kept), moment("forward", peak)};
  return {moment("before forward", kept), moment("after forward", with(kept, grown)),
          moment("backward", peak), moment("after backward", with(kept, gradients)),
          moment("after optimizer", kept)};
}

}  // namespace

std::vector<Moment> step_timeline(const runfile::RunConfig& c, const TrainerTraits& traits,
                                  const Estimate& e) {
  if (std::optional<std::vector<Moment>> exact = from_program(c, traits, e)) return *exact;
  return from_leaves(e, traits.tier, c.run.mode != RunMode::kInference);
}

}  // namespace trainhost::planning
