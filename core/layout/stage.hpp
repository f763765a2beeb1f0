// One rank of one pipeline stage, before anything is added up: its share of tokens, its layers in runs of equal layer and
// equal recompute policy, the data ranks that share its state. What account.hpp walks. A stage never allocates.
#pragma once
#include <array>
#include <bit>
#include <vector>

#include "core/layout/activations.hpp"
#include "core/layout/pipeline.hpp"
#include "core/layout/states.hpp"

namespace trainhost::layout {

/// `count` equal layers under one policy, `in_flight` micro-batches of each.
struct Segment {
  const arch::LayerRun* run = nullptr;
  Policy policy = kAll;
  std::uint64_t count = 0, in_flight = 1, first = 0;
};

struct Stage {
  const arch::Architecture& a;
  const RunSpec& r;
  Pipeline pipeline;
  std::uint64_t index, tp, ep, every;
  std::uint64_t data_ranks, expert_data_ranks;  // that hold the same weights: sharing them is ZeRO
  std::uint64_t vocab;                          // rows of the table here
  Cut cut;

  Stage(const arch::Architecture& arch, const RunSpec& run, std::uint64_t stage)
      : a(arch), r(run), index(stage), tp(run.tensor_parallel), ep(run.layout.expert_parallel), every(run.layout.recompute_every) {
    for (const arch::LayerRun& l : a.layers) pipeline.layers += l.count;
    pipeline.layers -= 1;  // its default is 1
    pipeline.stages = r.pipeline_parallel, pipeline.chunks = r.layout.interleave;
    pipeline.micro_batches = r.accumulate;
    data_ranks = std::uint64_t{r.data_parallel} * r.layout.context_parallel;
    expert_data_ranks = up(data_ranks, ep);
    vocab = vocab_rows(a, tp, r.layout.vocab_multiple);
    cut.H = a.hidden, cut.tp = tp, cut.size = size_of(r.compute);
    cut.materialised = r.layout.attention == AttentionMemory::kMaterialised;
    if (adapts(r)) cut.needed = r.lora_targets, cut.inner = std::uint64_t{r.lora_rank} * std::popcount(r.lora_targets & 0x7fu);
    const Size tokens = Size(r.micro_batch) * up(r.seq_len, r.layout.context_parallel);
    cut.tokens = {tokens, r.layout.sequence_parallel ? share(tokens, tp) : tokens, r.seq_len};
  }

  bool first() const { return index == 0; }
  bool last() const { return index + 1 == pipeline.stages; }

  /// Calls f(Segment) for every run of layers of this stage, first layer first.
  template <class F>
  void segments(F&& f) const {
    std::uint64_t at = 0;  // first layer of *run: chunks rise, so one pass over the runs serves them all
    auto run = a.layers.begin();
    for (std::uint64_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      const std::uint64_t hi = pipeline.end(index, chunk);
      const std::uint64_t flying = infers(r) ? 1 : pipeline.in_flight(index, chunk);
      for (std::uint64_t from = pipeline.begin(index, chunk); from < hi;) {
        for (; at + run->count <= from; ++run) at += run->count;
        const std::uint64_t to = std::min(hi, at + run->count);
        by_policy(*run, from, to, flying, f);
        from = to;
      }
    }
  }

 private:
  template <class F>
  void by_policy(const arch::LayerRun& run, std::uint64_t from, std::uint64_t to, std::uint64_t flying, F&& f) const {
    switch (r.recompute) {
      case Recompute::kSelective: return f(Segment{&run, kLight, to - from, flying, from});
      case Recompute::kFull: return f(Segment{&run, kInput, to - from, flying, from});
      case Recompute::kNone: case Recompute::kAuto: return f(Segment{&run, kAll, to - from, flying, from});
      case Recompute::kLayers: break;
    }
    const RecomputeLayers& n = r.recompute_layers;
    const std::uint64_t ends[] = {n.full, std::uint64_t{n.full} + n.mlp, n.total(), UINT64_MAX};
    const Policy policies[] = {kInput, kLighter, kLight, kAll};
    for (int i = 0; i < 4 && from < to; ++i) {
      const std::uint64_t end = std::min(to, ends[i]);
      if (end <= from) continue;
      f(Segment{&run, policies[i], end - from, flying, from});
      from = end;
    }
  }
};

/// Stages that can need most of the device: the first, the last, and of those between the first with its layers, chunk by chunk
/// and policy by policy, where the first stage has not the same and the embedding besides. A later one of equal layers has
/// fewer micro-batches in flight.
std::vector<std::uint32_t> stages_that_count(const arch::Architecture& a, const RunSpec& r);

/// What a layer holds and keeps, added up once a kind.
struct LayerSums {
  Held held;
  std::array<Size, kPolicies> kept, remade;  // bytes of one micro-batch; remade: what the policy gave up
  Size backward;
};

inline LayerSums layer_sums(const Stage& s, const arch::Layer& l) {
  LayerSums sums;
  Tally tally(s.r);
  layer_weights(l, s.a.hidden, s.tp, s.ep, tally);
  sums.held = tally.held();
  layer_activations(l, s.cut, [&](const Activation& row) {
    const Size bytes = row.bytes();
    for (std::size_t p = 0; p < kPolicies; ++p) (p <= row.until ? sums.kept : sums.remade)[p] += bytes;
  });
  sums.backward = backward_bytes(l, s.cut);
  return sums;
}

}  // namespace trainhost::layout
