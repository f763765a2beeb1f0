// The space of layouts of one model on N devices: the values of each setting and their valid combinations.
// MicroBatchSettings determine a micro-batch on a rank, PipelineSettings the number of micro-batches and
// their stage, StateSettings sharding and memory tiers of state. Enumerates; evaluates nothing.
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::parallel {

struct RecomputeChoice {
  Recompute kind = Recompute::kNone;
  std::uint32_t every = 1;  // with kFull
  bool operator==(const RecomputeChoice&) const = default;
};

/// Values to search; an empty list of ranks or micro-batches means every divisor.
struct SearchAxes {
  std::vector<std::uint32_t> tensor, pipeline, data, context, expert, interleave, micro_batch;
  std::vector<bool> sequence{false, true};
  std::vector<RecomputeChoice> recompute{{Recompute::kNone, 1},
                                         {Recompute::kSelective, 1},
                                         {Recompute::kFull, 1},
                                         {Recompute::kFull, 2},
                                         {Recompute::kFull, 4}};
  std::vector<AttentionMemory> attention{AttentionMemory::kFlash};
  std::vector<CrossEntropy> cross_entropy{CrossEntropy::kFused};
  std::vector<std::uint32_t> zero{0, 1, 2, 3};
  std::vector<Tier> weights_in{Tier::kDevice, Tier::kHost}, optimizer_in{Tier::kDevice, Tier::kHost},
      activations_in{Tier::kDevice, Tier::kHost};
};

struct SearchSpace {
  RunSpec base;  // settings that are not searched: types, optimizer, sequence length, LoRA, ...
  std::uint32_t devices = 1;
  std::uint64_t global_batch = 1;  // sequences per step over all ranks
  SearchAxes axes;
};

/// Settings that determine a micro-batch on a rank.
struct MicroBatchSettings {
  std::uint32_t tensor = 1, context = 1, expert = 1, micro_batch = 1;
  bool sequence = false;
  RecomputeChoice recompute = {};
  AttentionMemory attention = AttentionMemory::kFlash;
  CrossEntropy cross_entropy = CrossEntropy::kFused;
};
/// Settings that determine where and how often micro-batches run. interleave: virtual stages.
struct PipelineSettings {
  std::uint32_t pipeline = 1, interleave = 1, data = 1, accumulate = 1;
};
/// Sharding and memory tiers of weights, optimizer state and activations.
struct StateSettings {
  std::uint32_t zero = 0;
  Tier weights = Tier::kDevice, optimizer = Tier::kDevice, activations = Tier::kDevice;
};

/// All settings of a micro-batch in a fixed order, which breaks ties. Empty if the model cannot be split over
/// this number of devices; throws like validate() if no number of devices is possible.
std::vector<MicroBatchSettings> micro_batch_settings(const model::Architecture& a, const SearchSpace& space);

/// The pipeline settings possible with `s`. expert divides the data x context ranks; every chunk has at least
/// one layer; with several virtual stages accumulate is a multiple of pipeline.
std::vector<PipelineSettings> pipeline_settings(const model::Architecture& a, const SearchSpace& space,
                                                const MicroBatchSettings& s);

/// All settings of state; ZeRO > 0 only with several ranks. Those that differ only in ZeRO are consecutive.
std::vector<StateSettings> state_settings(const SearchSpace& space, bool several_ranks);

void apply(RunSpec& r, const MicroBatchSettings& s);
void apply(RunSpec& r, const PipelineSettings& d);
void apply(RunSpec& r, const StateSettings& k);

}  // namespace trainhost::parallel
