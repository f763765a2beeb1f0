// The space of layouts of one model on N devices: which values each choice may take and which combinations
// are layouts. The outer choices (Shape) fix how a micro-batch looks on a rank, the middle ones (Depth) how
// often and where it runs, the inner ones (zero, offload) only where things are kept. Enumerates; evaluates
// nothing.
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

/// Values that search may take; an empty list of ranks or micro-batches: every one that divides what it
/// shares.
struct Axes {
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

struct Job {
  RunSpec base;  // what is not searched: types, optimizer, sequence length, LoRA, ...
  std::uint32_t devices = 1;
  std::uint64_t global_batch = 1;  // sequences of an update, over all ranks
  Axes axes;
};

/// How a micro-batch looks on a rank.
struct Shape {
  std::uint32_t tensor = 1, context = 1, expert = 1, micro_batch = 1;
  bool sequence = false;
  RecomputeChoice recompute = {};
  AttentionMemory attention = AttentionMemory::kFlash;
  CrossEntropy cross_entropy = CrossEntropy::kFused;
};
/// Where and how often it runs.
struct Depth {
  std::uint32_t pipeline = 1, interleave = 1, data = 1, accumulate = 1;
};
/// What is kept where.
struct Keep {
  std::uint32_t zero = 0;
  Tier weights = Tier::kDevice, optimizer = Tier::kDevice, activations = Tier::kDevice;
};

/// In a fixed order: a layout's place in it is what breaks ties. None where the model cannot be cut for so
/// many devices; throws as validate() does where no number of devices would do.
std::vector<Shape> shapes(const model::Architecture& a, const Job& job);

/// Those of one shape. Shares: the heads by tensor, tokens by context and, sequence-parallel, tensor; experts
/// by expert, which divides the data x context ranks; every chunk has a layer, several of them need
/// accumulate to be a multiple of pipeline.
std::vector<Depth> depths(const model::Architecture& a, const Job& job, const Shape& s);

/// Zero only where ranks share the state. Those that differ in zero alone stand together.
std::vector<Keep> keeps(const Job& job, bool several_ranks);

void apply(RunSpec& r, const Shape& s);
void apply(RunSpec& r, const Depth& d);
void apply(RunSpec& r, const Keep& k);

}  // namespace trainhost::parallel
