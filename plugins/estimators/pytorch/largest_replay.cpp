#include "plugins/estimators/pytorch/largest_replay.hpp"

#include <algorithm>
#include <cstdint>

#include "core/base/text.hpp"

namespace trainhost::pytorch {
namespace {

/// Bytes above which the allocated bytes of a run need not be known, because only the verdict is asked for.
std::uint64_t limit_of(const Options& options, const RunSpec& run) {
  const bool peak_suffices = options.only_if_it_fits && options.verdict_only;
  return peak_suffices && run.device_budget ? run.device_budget : UINT64_MAX;
}

/// True if only the verdict is needed and the allocated bytes already exceed the budget of the device.
bool is_beyond_budget(const Replay& r, const Options& options, const RunSpec& run) {
  return options.only_if_it_fits && run.device_budget && r.peak_bytes > run.device_budget;
}

/// The rank of Megatron-LM's distributed optimizer that reserves most: each updates other parts of the
/// weights, so the gaps between them differ. Four ranks of more than four are tried.
ReplayPointer largest_rank(ReplayPointer largest, const Options& options, const RunSpec& run) {
  if (is_beyond_budget(*largest, options, run)) return largest;
  constexpr std::uint32_t kTried = 4;
  frameworks::StepSettings s = largest->settings;
  const std::uint32_t ranks = std::max(s.megatron.optimizer_ranks, s.megatron.expert_optimizer_ranks),
                      tried = std::min(ranks, kTried);
  for (std::uint32_t i = 1; i < tried; ++i) {
    s.megatron.optimizer_rank = static_cast<std::uint32_t>(std::uint64_t{i} * ranks / tried);
    const ReplayPointer r = replay(largest->architecture, s, options.allocator, limit_of(options, run));
    if (is_beyond_budget(*r, options, run)) return r;
    if (r->reserved() > largest->reserved()) largest = r;
  }
  return largest;
}

/// The pipeline stage that reserves most. Between the first two and the last, every stage has fewer
/// micro-batches in flight than the second, and not more layers.
ReplayPointer largest_stage(const model::Architecture& a, frameworks::StepSettings s, const Options& options,
                            const RunSpec& run, std::vector<std::string>& notes) {
  const std::uint32_t stages = s.stage.ranks();
  const std::uint64_t limit = limit_of(options, run);
  ReplayPointer largest = replay(a, s, options.allocator, limit), allocates_most = largest;
  if (stages == 1) return largest;
  if (is_beyond_budget(*largest, options, run)) return largest;
  std::vector<ReplayPointer> others;
  for (std::uint32_t index : {1u, stages - 1}) {
    s.stage.index = index;
    others.push_back(replay(a, s, options.allocator, limit));
    // Before any allocator is replayed.
    if (is_beyond_budget(*others.back(), options, run)) return others.back();
  }
  for (const ReplayPointer& r : others) {
    if (r->reserved() > largest->reserved()) largest = r;
    if (r->peak_bytes > allocates_most->peak_bytes) allocates_most = r;
  }
  if (allocates_most != largest)
    notes.push_back("Stage " + std::to_string(allocates_most->settings.stage.index + 1) +
                    " allocates more, " + format_bytes(allocates_most->peak_bytes) + ", and reserves less.");
  const auto& stage = largest->settings.stage;
  std::uint32_t begin = 0, end = 0;
  for (std::uint32_t n = 0; n < stage.per_rank; ++n) {
    const auto [first, last] = frameworks::layers_of_stage(a.layer_count(), stage.of_rank(n));
    if (stage.per_rank == 1) begin = first;
    end += last - (stage.per_rank == 1 ? 0 : first);
  }
  const std::uint32_t virtual_stages = std::max(largest->settings.megatron.virtual_stages, stage.per_rank);
  notes.push_back(
      "Stage " + std::to_string(stage.index + 1) + " of " + std::to_string(stages) +
      " needs the most. It has " +
      (virtual_stages > 1
           ? std::to_string(end - begin) + " layers in " + std::to_string(virtual_stages) + " virtual stages"
           : "the layers " + std::to_string(begin) + " to " + std::to_string(end - 1)) +
      (stage.first()                              ? " and the embedding"
       : stage.of_rank(stage.per_rank - 1).last() ? ", the last norm and the head"
                                                  : "") +
      "; tensors are named with layers counted within the stage.");
  return largest;
}

}  // namespace

ReplayPointer largest_replay(const model::Architecture& architecture,
                             const frameworks::StepSettings& settings, const Options& options,
                             const RunSpec& run, std::vector<std::string>& notes) {
  return largest_rank(largest_stage(architecture, settings, options, run, notes), options, run);
}

}  // namespace trainhost::pytorch
