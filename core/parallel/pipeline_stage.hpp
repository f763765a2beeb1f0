// Stage: one rank of one pipeline stage: its tokens, its layers by chunk, recompute policy and kind, and the
// data ranks with the same state. Input of rank_breakdown.hpp. Does not allocate.
#pragma once
#include <array>
#include <bit>
#include <cassert>
#include <vector>

#include "core/parallel/activation_table.hpp"
#include "core/parallel/layer_kinds.hpp"
#include "core/parallel/pipeline_schedule.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/parallel/rank_states.hpp"

namespace trainhost::parallel {

/// `count` layers of one kind and policy among layers from .. to - 1 (all of that policy), with `in_flight`
/// micro-batches each.
struct Segment {
  const model::Layer* layer = nullptr;
  std::size_t kind = 0;
  std::uint64_t chunk = 0, from = 0, to = 0;
  Policy policy = kAll;
  std::uint64_t count = 0;
  std::uint64_t keeping = 0;  // layers that keep activations; of a group recomputed together only the first
  std::uint64_t in_flight = 1;
};

struct Stage {
  const model::Architecture& a;
  const LayerKinds& kinds;
  const RunSpec& r;
  Pipeline pipeline;
  std::uint64_t index, tp, ep, etp, every;      // etp: TP ranks of each expert
  std::uint64_t data_ranks, expert_data_ranks;  // ranks with the same weights, over which ZeRO shards
  std::uint64_t vocab;                          // rows of the vocabulary on this rank
  Cut cut;

  /// of: the kinds of `arch`. All references must outlive the stage.
  Stage(const model::Architecture& arch, const LayerKinds& of, const RunSpec& run, std::uint64_t stage)
      : a(arch),
        kinds(of),
        r(run),
        index(stage),
        tp(run.parallel.tensor),
        ep(run.parallel.expert),
        etp(expert_tensor_ranks(run.parallel)),
        every(run.memory.recompute_every) {
    assert(stage < run.parallel.pipeline && every > 0);
    pipeline = {r.parallel.pipeline, r.parallel.virtual_stages,     r.accumulate,
                kinds.layers(),      r.parallel.first_stage_layers, r.parallel.last_stage_layers};
    assert(pipeline.layers_suffice());
    data_ranks = std::uint64_t{r.parallel.data} * r.parallel.context;
    expert_data_ranks = up(data_ranks * tp, ep * etp);
    vocab = vocab_rows(a, tp, r.memory.vocab_multiple);
    cut.H = a.hidden, cut.tp = tp, cut.etp = etp, cut.size = size_of(r.compute);
    cut.materialised = r.memory.attention == AttentionMemory::kMaterialised;
    if (adapts(r))
      cut.needed = r.lora_targets, cut.rank = r.lora_rank, cut.drops_inputs = r.memory.lora_dropout > 0;
    Size tokens = Size(r.micro_batch) * up(r.seq_len, r.parallel.context);
    if (r.memory.prefill_chunk != 0)
      tokens = std::min(tokens, Size(up(r.memory.prefill_chunk, r.parallel.context)));
    cut.tokens = {tokens, r.parallel.sequence ? share(tokens, tp) : tokens, r.seq_len};
  }

  /// Of a layer: `cut` with the experts of this rank.
  Cut cut_of(const model::Layer& l) const {
    Cut c = cut;
    if (adapts(r) && r.memory.stacks_quantized_experts && quantized(frozen_expert_type(r)))
      c.dequantized_experts = up(l.experts.count, ep);
    return c;
  }

  bool first() const { return index == 0; }
  bool last() const { return index + 1 == pipeline.stages; }

  /// Calls f(Segment) for the layers of this stage, ordered by chunk, policy and kind.
  template <class F>
  void segments(F&& f) const {
    for (std::uint64_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      Segment all;
      all.chunk = chunk, all.from = pipeline.begin(index, chunk), all.to = pipeline.end(index, chunk);
      all.in_flight = infers(r) ? 1 : pipeline.in_flight(index, chunk);
      by_policy(all, f);
    }
  }

 private:
  template <class F>
  void by_policy(Segment g, F&& f) const {
    switch (r.recompute) {
      case Recompute::kSelective:
        return g.policy = kLight, by_kind(g, f);
      case Recompute::kFull:
        return g.policy = kInput, by_kind(g, f);
      case Recompute::kNone:
      case Recompute::kAuto:
        return g.policy = kAll, by_kind(g, f);
      case Recompute::kLayers:
        break;
    }
    const RecomputeLayers& n = r.recompute_layers;
    const std::uint64_t ends[] = {n.full, std::uint64_t{n.full} + n.mlp, n.total(), UINT64_MAX}, last = g.to;
    const Policy policies[] = {kInput, kLighter, kLight, kAll};
    for (int i = 0; i < 4 && g.from < last; ++i) {
      g.to = std::min(last, ends[i]), g.policy = policies[i];
      if (g.to <= g.from) continue;
      by_kind(g, f);
      g.from = g.to;
    }
  }

  /// The input of a layer has the same width in every kind, so it does not matter which layer of a group
  /// keeps it.
  template <class F>
  void by_kind(Segment g, F&& f) const {
    std::uint64_t inputs = g.policy == kInput ? up(g.to - g.from, every) : g.to - g.from;
    for (g.kind = 0; g.kind < kinds.size(); ++g.kind) {
      g.count = kinds.within(g.kind, g.from, g.to);
      if (g.count == 0) continue;
      g.layer = &kinds.layer(g.kind), g.keeping = std::min(g.count, inputs);
      inputs -= g.keeping;
      f(g);
    }
  }
};

/// Stages that can need most device memory: the last one, and of stages with equal layers (by chunk, policy
/// and kind) the first, because later ones have fewer micro-batches in flight.
std::vector<std::uint32_t> candidate_stages(const model::Architecture& a, const LayerKinds& kinds,
                                            const RunSpec& r);

/// Like those of rank_memory.hpp, with the kinds of `a` as an argument.
Numbers stage_numbers(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r,
                      std::uint32_t stage);
std::uint32_t worst_stage(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r);

/// State and activations of one layer; computed once per kind.
struct LayerSums {
  Held held;
  std::array<Size, kPolicies> kept, recomputed;  // bytes of one micro-batch; recomputed: by the policy
  Size backward, dequantized;
};

inline LayerSums layer_sums(const Stage& s, const model::Layer& l) {
  LayerSums sums;
  StateSums state(s.r);
  layer_weights(l, s.a.hidden, s.tp, s.ep, s.etp, state);
  sums.held = state.held();
  sums.dequantized = state.dequantized();
  layer_activations(l, s.cut_of(l), [&](const Activation& row) {
    const Size bytes = row.bytes();
    for (std::size_t p = 0; p < kPolicies; ++p) (p <= row.until ? sums.kept : sums.recomputed)[p] += bytes;
  });
  sums.backward = backward_bytes(l, s.cut);
  return sums;
}

/// layer_sums() of every kind; equal for all stages.
inline std::vector<LayerSums> sums_by_kind(const Stage& s) {
  std::vector<LayerSums> sums;
  for (std::size_t kind = 0; kind < s.kinds.size(); ++kind)
    sums.push_back(layer_sums(s, s.kinds.layer(kind)));
  return sums;
}

}  // namespace trainhost::parallel
