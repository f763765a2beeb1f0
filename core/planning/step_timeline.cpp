// See step_timeline.hpp. Two sources: the step program itself (exact, one phase per layer and pass), or the
// entries of a report (five phases).
#include "core/planning/step_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>

#include "core/placement/live_bytes.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/placement/placed_run.hpp"

namespace trainhost::planning {
namespace {

using Parts = std::map<Component, std::uint64_t>;

/// Components of 0 bytes are left out; the phase's total is the sum of its components.
StepPhase make_phase(std::string name, const Parts& parts) {
  StepPhase phase{std::move(name), 0, {}};
  for (const auto& [component, bytes] : parts) {
    if (bytes == 0) continue;
    phase.bytes += bytes;
    phase.components.emplace_back(component, bytes);
  }
  return phase;
}

/// On the CPU all memory of the run is in one tier of interest, whatever tier an entry names.
bool in_tier(const MemoryEntry& n, Tier tier) { return tier == Tier::kHost || n.tier == tier; }

/// Bytes that are live throughout the step in addition to tensors: gaps and alignment, and the host's
/// buffers.
Parts constant_parts(const Estimate& e, Tier tier) {
  Parts parts;
  for (const MemoryEntry& n : e.report.entries)
    if (in_tier(n, tier) && (n.component == Component::kFragmentation || n.name.starts_with("host.")))
      parts[n.component] += n.at_peak();
  return parts;
}

/// "forward, layer 3"; "embedding" and "head" before the first and after the last layer of a pass.
std::string phase_name(const step::Op& op, bool layers_seen) {
  if (op.layer >= 0) return fmt::format("{}, layer {}", name(op.phase), op.layer);
  if (op.phase == kUpdate) return "update";
  const bool at_the_head = (op.phase == kForward) == layers_seen;
  return fmt::format("{}, {}", name(op.phase), at_the_head ? "head" : "embedding");
}

/// One phase per layer and pass, represented by its operation with the most live bytes: a program has
/// thousands of operations, and a chart needs the peak of each part, not every operation.
std::vector<StepPhase> phases_of_program(const step::Program& p, const placement::MemoryPlan& placed,
                                         const Parts& constant) {
  const std::vector<std::uint64_t> live = placement::live_bytes(p, placed.lifetime, p.traits.tier);
  std::vector<std::pair<std::string, std::uint32_t>> fullest;  // in order of first appearance
  std::map<std::string, std::size_t> index;
  std::map<Phase, bool> layers_seen;
  for (step::SectionKind kind : {step::SectionKind::kMicro, step::SectionKind::kUpdate}) {
    const step::Section s = p.section(kind);
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      if (p.ops[i].layer >= 0) layers_seen[p.ops[i].phase] = true;
      const std::string name =
          kind == step::SectionKind::kUpdate ? "update" : phase_name(p.ops[i], layers_seen[p.ops[i].phase]);
      const auto [at, fresh] = index.try_emplace(name, fullest.size());
      if (fresh) fullest.emplace_back(name, i);
      assert(at->second < fullest.size() && i < live.size());
      if (std::uint32_t& best = fullest[at->second].second; live[i] > live[best]) best = i;
    }
  }
  // The copies of a streaming mode can start a phase early: order the phases by their fullest operation.
  std::ranges::stable_sort(fullest, {}, [](const auto& phase) { return phase.second; });
  std::vector<std::uint32_t> ops;
  for (const auto& [name, op] : fullest) ops.push_back(op);
  const auto by_component = placement::live_by_component(p, placed.lifetime, ops);
  std::vector<StepPhase> out;
  for (std::size_t i = 0; i < fullest.size(); ++i) {
    Parts parts = constant;
    for (std::size_t c = 0; c < by_component[i].size(); ++c) parts[Component(c)] += by_component[i][c];
    out.push_back(make_phase(fullest[i].first, parts));
  }
  return out;
}

/// Only if the digests agree: then the program built here is the one whose bytes the estimate reports.
std::optional<std::vector<StepPhase>> phases_from_program(const runfile::RunConfig& c,
                                                          const TrainerTraits& traits, const Estimate& e) {
  if (e.report.digest == 0 || !trainable_family(c.model.family)) return std::nullopt;
  try {
    const auto placed = placement::placed_run(c.model, c.run, traits);
    if (placed->plan.digest != e.report.digest) return std::nullopt;  // the trainer has its own step program
    return phases_of_program(placed->program, placed->plan, constant_parts(e, traits.tier));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Before, between and after the passes, and the peak. Activations and logits are live at the end of the
/// forward pass, gradients at the end of the backward pass, workspace at the peak only.
/// Coarser than a program, but available for every family and layout.
std::vector<StepPhase> phases_from_entries(const Estimate& e, Tier tier, bool trains) {
  Parts kept, grown, peak, gradients;
  for (const MemoryEntry& n : e.report.entries) {
    if (!in_tier(n, tier)) continue;
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
        break;  // of one operation: at the peak only
      default:
        kept[n.component] += bytes;
    }
  }
  const auto with = [](Parts a, const Parts& b) {
    for (const auto& [c, bytes] : b) a[c] += bytes;
    return a;
  };
  if (!trains) return {make_phase("weights loaded", kept), make_phase("forward", peak)};
  return {make_phase("before forward", kept), make_phase("after forward", with(kept, grown)),
          make_phase("backward", peak), make_phase("after backward", with(kept, gradients)),
          make_phase("after optimizer", kept)};
}

}  // namespace

std::vector<StepPhase> step_timeline(const runfile::RunConfig& c, const TrainerTraits& traits,
                                     const Estimate& e) {
  if (std::optional<std::vector<StepPhase>> exact = phases_from_program(c, traits, e)) return *exact;
  return phases_from_entries(e, traits.tier, c.run.mode != RunMode::kInference);
}

std::vector<StepPhase> largest_phases(const std::vector<StepPhase>& all, std::size_t most) {
  std::vector<StepPhase> out;
  // Groups differ by at most one phase.
  const std::size_t groups = std::min(all.size(), most);
  // g * size / groups: integer division, so the groups cover all phases without a gap.
  for (std::size_t g = 0; g < groups; ++g)
    out.push_back(
        *std::max_element(all.begin() + static_cast<std::ptrdiff_t>(g * all.size() / groups),
                          all.begin() + static_cast<std::ptrdiff_t>((g + 1) * all.size() / groups),
                          [](const StepPhase& a, const StepPhase& b) { return a.bytes < b.bytes; }));
  return out;
}

}  // namespace trainhost::planning
