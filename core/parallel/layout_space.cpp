// Enumeration of shapes, depths and keeps; each value must divide what it splits. The order of the loops is
// the order of the space, which breaks ties: changing it changes answers. Every layout passes validate(),
// which tests/core/parallel/search_test.cpp checks. Here only the conditions that vary are tested, because a
// space has millions of layouts.
// Enumerates the settings; each value must divide what it splits.
#include "core/parallel/layout_space.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {
namespace {

using Values = std::vector<std::uint32_t>;

// Ascending, in O(sqrt n). Divisors above 32 bits cannot be counts of ranks.
Values divisors(std::uint64_t n) {
  Values low, high;
  for (std::uint64_t i = 1; i * i <= n; ++i) {
    if (n % i) continue;
    if (i <= UINT32_MAX) low.push_back(static_cast<std::uint32_t>(i));
    if (i != n / i && n / i <= UINT32_MAX) high.push_back(static_cast<std::uint32_t>(n / i));
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// The values of `asked` that divide n; all divisors if `asked` is empty.
Values dividing(const Values& asked, std::uint64_t n) {
  if (asked.empty()) return divisors(n);
  Values out;
  // `asked` comes from a caller and may contain 0, which divides nothing.
  std::copy_if(asked.begin(), asked.end(), std::back_inserter(out),
               [&](std::uint32_t v) { return v && n % v == 0; });
  return out;
}

// A run with this many TP ranks and otherwise no parallelism: what is left to reject is tensor itself.
RunSpec on_tensor_ranks(const RunSpec& base, std::uint32_t tensor) {
  RunSpec r = base;
  apply(r, MicroBatchSettings{.tensor = tensor});
  apply(r, PipelineSettings{});
  apply(r, StateSettings{});
  r.parallel.data = std::max(1u, r.parallel.expert_tensor);  // enough ranks for one expert
  return r;
}

/// The largest number of EP ranks: `same`, the ranks with the same dense weights; with expert_tensor all
/// ranks, same * tensor, divided by it. 0 if it does not divide them.
std::uint64_t expert_groups(const Parallelism& given, std::uint64_t same, std::uint32_t tensor) {
  const std::uint64_t own = given.expert_tensor;
  if (own == 0) return same;
  return same * tensor % own ? 0 : same * tensor / own;
}

/// Whether validate() accepts this number of TP ranks.
bool tensor_divides(const model::Architecture& a, const RunSpec& base, std::uint32_t tensor) {
  try {
    validate(a, on_tensor_ranks(base, tensor));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool experts_divide(const model::Architecture& a, std::uint32_t expert) {
  if (expert == 1) return true;
  return a.has_experts() && std::all_of(a.layers.begin(), a.layers.end(), [&](const model::LayerRun& l) {
           return l.layer.experts.count % expert == 0;
         });
}

/// Sequences per DP rank and step; 0: the ranks do not divide the batch.
/// Every rank must have the same number of sequences: the gradients of ranks are averaged with equal weights.
std::uint64_t local_batch(const SearchSpace& space, std::uint64_t data) {
  return space.global_batch % data ? 0 : space.global_batch / data;
}

/// Numbers of virtual stages with equal chunks of layers; only 1 if the layers do not divide among the
/// stages.
Values virtual_stages(const SearchAxes& axes, std::uint32_t layers, std::uint32_t pipeline) {
  return dividing(axes.interleave, pipeline == 1 || layers % pipeline ? 1 : layers / pipeline);
}

}  // namespace

std::vector<MicroBatchSettings> micro_batch_settings(const model::Architecture& a, const SearchSpace& space) {
  // Throws for a model or base run that no layout can make valid, with the error of that rule.
  validate(a, on_tensor_ranks(space.base, 1));
  std::vector<MicroBatchSettings> out;
  const std::uint64_t S = space.base.seq_len;
  for (const std::uint32_t t : dividing(space.axes.tensor, space.devices)) {
    if (!tensor_divides(a, space.base, t)) continue;
    for (const std::uint32_t c : dividing(space.axes.context, space.devices / t)) {
      if (S % c) continue;
      // Expert ranks are taken from the data and context ranks, so their number is limited by what tensor
      // leaves.
      const std::uint64_t groups = expert_groups(space.base.parallel, space.devices / t, t);
      if (groups == 0) continue;
      for (const std::uint32_t e : dividing(space.axes.expert, a.has_experts() ? groups : 1)) {
        if (!experts_divide(a, e)) continue;
        for (const std::uint32_t b : dividing(space.axes.micro_batch, space.global_batch)) {
          if (b * S > INT32_MAX) continue;  // limit of the run file
          for (const bool sequence : space.axes.sequence) {
            // Sequence parallelism splits the tokens of a context rank among the TP ranks.
            if (sequence && (t == 1 || S / c % t)) continue;
            for (const RecomputeChoice& recompute : space.axes.recompute)
              for (const AttentionMemory attention : space.axes.attention)
                for (const CrossEntropy ce : space.axes.cross_entropy)
                  out.push_back({t, c, e, b, sequence, recompute, attention, ce});
          }
        }
      }
    }
  }
  return out;
}

std::vector<PipelineSettings> pipeline_settings(const model::Architecture& a, const SearchSpace& space,
                                                const MicroBatchSettings& s) {
  std::vector<PipelineSettings> out;
  const std::uint32_t layers = a.layer_count(), rest = space.devices / s.tensor / s.context;
  for (const std::uint32_t p : dividing(space.axes.pipeline, rest)) {
    const std::uint32_t d = rest / p;
    // Data ranks are what is left, so `axes.data` is a filter here, not a loop.
    if (!space.axes.data.empty() &&
        std::find(space.axes.data.begin(), space.axes.data.end(), d) == space.axes.data.end())
      continue;
    const std::uint64_t local = local_batch(space, d);
    // validate()'s rule of expert against data x context; it depends on the depth, unlike the division of the
    // experts in shapes().
    const std::uint64_t groups = expert_groups(space.base.parallel, std::uint64_t{d} * s.context, s.tensor);
    if (p > layers || local == 0 || local % s.micro_batch || groups == 0 || groups % s.expert) continue;
    const std::uint64_t accumulate = local / s.micro_batch;
    if (accumulate > UINT32_MAX) continue;
    const Parallelism& given = space.base.parallel;
    for (const std::uint32_t v : virtual_stages(space.axes, layers, p)) {
      if (!Pipeline{p, v, accumulate, layers, given.first_stage_layers, given.last_stage_layers}
               .layers_suffice())
        continue;
      // The interleaved schedule runs micro-batches in rounds of p.
      if (v > 1 && accumulate % p) continue;
      // Layers that are recomputed together must be in one chunk; the smallest chunk counts.
      if (s.recompute.every > layers / (p * v)) continue;
      out.push_back({p, v, d, static_cast<std::uint32_t>(accumulate)});
    }
  }
  return out;
}

std::vector<StateSettings> state_settings(const SearchSpace& space, bool several_ranks) {
  std::vector<StateSettings> out;
  for (const Tier act : space.axes.activations_in)
    for (const Tier w : space.axes.weights_in)
      for (const Tier o : space.axes.optimizer_in)
        // ZeRO is innermost: the search prunes groups that differ only in it.
        for (const std::uint32_t zero : space.axes.zero)
          if (zero == 0 || several_ranks) out.push_back({zero, w, o, act});
  return out;
}

// Shape, Depth and Keep set disjoint fields, so they can be applied in any order and again for the next
// value.
void apply(RunSpec& r, const MicroBatchSettings& s) {
  r.parallel.tensor = s.tensor;
  r.micro_batch = s.micro_batch;
  r.recompute = s.recompute.kind;
  r.recompute_layers = {};
  MemoryPolicy& memory = r.memory;
  r.parallel.context = s.context;
  r.parallel.expert = s.expert;
  r.parallel.sequence = s.sequence;
  memory.recompute_every = s.recompute.every;
  memory.attention = s.attention;
  memory.cross_entropy = s.cross_entropy;
}

void apply(RunSpec& r, const PipelineSettings& d) {
  r.parallel.pipeline = d.pipeline;
  r.parallel.data = d.data;
  r.accumulate = d.accumulate;
  r.parallel.virtual_stages = d.interleave;
}

void apply(RunSpec& r, const StateSettings& k) {
  r.parallel.zero = k.zero;
  r.memory.weights_in = k.weights;
  r.memory.optimizer_in = k.optimizer;
  r.memory.activations_in = k.activations;
}

}  // namespace trainhost::parallel
