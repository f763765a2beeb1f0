// Sums of a stage by tier and component: a sink of rank_breakdown.hpp without text. Also the choice of the
// stage that needs most. Nothing here allocates per entry: a search calls it millions of times.
#include <set>

#include "core/model/adapters.hpp"
#include "core/parallel/rank_breakdown.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {
namespace {

struct NumberSink {
  static constexpr bool kPerTensor = false;
  std::array<std::array<Size, kComponents>, kTiers> bytes{};
  template <class Name, class Formula>
  void add(const Entry& f, Name&&, Formula&&) {
    // Name and formula are never called.
    if (f.at_peak) bytes[std::size_t(f.tier)][std::size_t(f.component)] += f.bytes;
  }
};

}  // namespace

std::uint64_t Numbers::tier(Tier t) const {
  // Saturates: an overflowing layout compares as the largest.
  Size sum;
  for (std::uint64_t b : bytes[std::size_t(t)]) sum += b;
  return sum.value();
}

std::uint64_t Numbers::total() const {
  Size sum;
  for (const auto& t : bytes)
    for (std::uint64_t b : t) sum += b;
  return sum.value();
}

Numbers stage_numbers(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r,
                      std::uint32_t stage) {
  NumberSink sink;
  list_entries(a, kinds, r, stage, sink);
  Numbers n;
  n.peak_at = infers(r) ? kGenerate : kBackward;
  // Index 0 is no tier and no component.
  for (std::size_t t = 1; t < kTiers; ++t)
    for (std::size_t c = 1; c < kComponents; ++c) n.bytes[t][c] = sink.bytes[t][c].value();
  return n;
}

Numbers stage_numbers(const model::Architecture& a, const RunSpec& r, std::uint32_t stage) {
  return stage_numbers(a, LayerKinds(a), r, stage);
}

std::vector<std::uint32_t> candidate_stages(const model::Architecture& a, const LayerKinds& kinds,
                                            const RunSpec& r) {
  std::vector<std::uint32_t> out;
  // Stages with the same layers in the same chunks need the same memory, except the first and the last, which
  // have embedding and head. The first is always new.
  std::set<std::vector<std::uint64_t>> seen;
  for (std::uint32_t stage = 0; stage < r.parallel.pipeline; ++stage) {
    std::vector<std::uint64_t> layers;
    Stage(a, kinds, r, stage).segments([&](const Segment& g) {
      layers.insert(layers.end(), {g.chunk, g.kind, g.policy, g.count});
    });
    if (seen.insert(std::move(layers)).second || stage + 1 == r.parallel.pipeline) out.push_back(stage);
  }
  return out;
}

std::uint32_t worst_stage(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r) {
  std::uint32_t worst = 0;
  std::uint64_t most = 0;
  for (const std::uint32_t stage : candidate_stages(a, kinds, r)) {
    const std::uint64_t bytes = stage_numbers(a, kinds, r, stage).tier(Tier::kDevice);
    // Ties: the first stage.
    if (stage == 0 || bytes > most) worst = stage, most = bytes;
  }
  return worst;
}

std::uint32_t worst_stage(const model::Architecture& a, const RunSpec& r) {
  return worst_stage(a, LayerKinds(a), r);
}

std::uint64_t trained_parameters(const model::Architecture& a, const RunSpec& r) {
  // Without any parallelism: every parameter is counted once.
  RunSpec whole = r;
  whole.parallel.tensor = whole.parallel.pipeline = whole.parallel.expert = 1;
  whole.parallel.expert_tensor = 0;
  whole.memory.vocab_multiple = whole.parallel.virtual_stages = 1;
  StateSums state(whole);
  embedding_weights(a, a.vocab, state);
  head_weights(a, a.vocab, !a.tied, state);
  if (adapts(r) && adapts_embedding(r))
    state.adapter_outside_layers(Weight{embedding_width(a), a.vocab, 1, Kind::kEmbedding});
  if (adapts(r) && adapts_head(r))
    state.adapter_outside_layers(Weight{a.vocab, embedding_width(a), 1, Kind::kEmbedding});
  if (adapts(r) && ties_adapter(r) && r.memory.dora)
    state.magnitudes_outside_layers(Weight{a.vocab, embedding_width(a), 1, Kind::kEmbedding});
  for (const bool saved : {r.memory.saves_embedding, r.memory.saves_head})
    if (saved) state.saved_module(Weight{a.vocab, embedding_width(a), 1, Kind::kEmbedding});
  Size sum = state.held().dense.elements + state.held().saved.elements;
  for (const model::LayerRun& run : LayerKinds(a).merged()) {
    StateSums of_layer(whole);
    layer_weights(run.layer, a.hidden, 1, 1, 1, of_layer);
    sum += (of_layer.held().dense.elements + of_layer.held().expert.elements) * run.count;
  }
  return sum.value();
}

}  // namespace trainhost::parallel
