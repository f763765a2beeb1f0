// Texts of the notes; the sizes come from the report and from the placed program.
#include "plugins/estimators/transformer/notes.hpp"

#include <cstdio>
#include <exception>
#include <optional>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::transformer {
namespace {

std::string percent(std::uint64_t ours, std::uint64_t truth) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100.0 * (double(ours) - double(truth)) / double(truth));
  return text;
}

/// Building and placing one layer of a step program takes about 30 microseconds; with 16 layers the
/// comparison costs half a millisecond.
constexpr std::uint32_t kLayersCompared = 16;

/// Arena bytes of the step program in the compute tier; nullopt where the model has too many layers or the
/// program cannot be built: a note must not make the estimate fail.
std::optional<std::uint64_t> placed_bytes(const ModelSpec& m, const RunSpec& run,
                                          const TrainerTraits* traits) {
  if (m.layers > kLayersCompared) return std::nullopt;
  try {
    return placement::place(step::build_program(m, run, traits ? *traits : TrainerTraits{})).arena_bytes;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Adds a note with the exact plan, where a step program exists.
void compare_with_program(MemoryReport& r, const ModelSpec& m, const RunSpec& run,
                          const TrainerTraits* traits) {
  if (!trains_by_program(m, run)) return;
  const std::optional<std::uint64_t> truth = placed_bytes(m, run, traits);
  std::string note = "The estimator 'llama' plans this run exactly";
  if (traits && !traits->mode.empty() && traits->mode != "resident") {
    note += ", in the trainer's mode " + traits->mode;
    if (truth) note += ": " + format_bytes(*truth) + " in the compute tier";
    note += ". This estimate keeps everything on the device.";
  } else {
    if (truth) {
      const std::uint64_t ours = r.total_bytes() - r.component_bytes(Component::kRuntime);
      note += ": " + format_bytes(*truth) + "; this estimate without a device's runtime is " +
              format_bytes(ours) + " (" + percent(ours, *truth) + ")";
    }
    note +=
        ". This estimate does not model the trainer's order of operations, chunked logits or shared buffers.";
  }
  r.notes.push_back(std::move(note));
}

bool trains_adapters(const RunSpec& r) { return r.mode == RunMode::kLora || r.mode == RunMode::kQlora; }

}  // namespace

void move_to_host(MemoryReport& r) {
  std::vector<MemoryEntry> kept;
  for (MemoryEntry& n : r.entries) {
    if (n.component == Component::kRuntime || n.component == Component::kFragmentation) continue;
    if (n.tier == Tier::kDevice || n.tier == Tier::kPinned) n.tier = Tier::kHost;
    n.id = static_cast<std::uint32_t>(kept.size() + 1);
    kept.push_back(std::move(n));
  }
  r.entries = std::move(kept);
  std::uint64_t host = 0, disk = 0;
  for (const MemoryEntry& n : r.entries) {
    std::uint64_t& sum = n.tier == Tier::kDisk ? disk : host;
    sum = checked_add(sum, n.at_peak(), "the memory of one rank");
  }
  const Phase peak = r.tiers.empty() ? kBackward : r.tiers.front().peak_at;
  r.tiers.clear();
  r.tiers.push_back({Tier::kHost, host, peak});
  if (disk) r.tiers.push_back({Tier::kDisk, disk, peak});
}

void add_notes(MemoryReport& r, const model::Architecture& a, const ModelSpec& m, const RunSpec& run,
               const TrainerTraits* traits) {
  r.notes.push_back(run.mode == RunMode::kInference
                        ? "Exact, tensor by tensor: weights and KV cache. Approximate: the rest."
                        : "Exact, tensor by tensor: weights, gradients, optimizer state. Approximate: "
                          "activations (as kept by an "
                          "implementation with fused norms and attention) and temporary buffers.");
  r.notes.push_back(
      "Workspace (64 MiB) and runtime (512 MiB) are constants; allocator gaps are estimated as a fifth of "
      "the "
      "transient memory.");
  if (run.mode != RunMode::kInference)
    r.notes.back() +=
        " Error on measured runs: ten of Megatron-LM -1 to +3 %, seven of torchtitan and torchtune within "
        "13 %.";
  if (a.has_experts() && run.mode != RunMode::kInference)
    r.notes.push_back(
        "Experts are assumed to be chosen evenly; a rank whose experts are chosen more often keeps more "
        "activations.");
  if (trains_adapters(run))
    r.notes.push_back(
        "Adapters of q, k, v, gate and up are counted separately, even where the model's file fuses these "
        "matrices.");
  if (run.recompute == Recompute::kAuto)
    r.notes.push_back("With recompute = \"auto\" the trainer decides; this estimate keeps all activations.");
  for (const std::string& n : a.notes) r.notes.push_back(n);
  compare_with_program(r, m, run, traits);
}

}  // namespace trainhost::transformer
