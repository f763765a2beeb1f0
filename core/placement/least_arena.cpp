// See least_arena.hpp. The reduced program has at most kLayersPerKind layers of each kind (recompute policy):
// two next to the kind below, one that represents all layers in between, and one next to the kind above.
// While the representative runs, from its forward to its backward pass, the layers that it represents also
// keep their activations for the backward pass; their bytes are added to its own during that time. Gradients
// that are live from the backward pass on are added after it: together with the layers below that is the end
// of the backward pass of all layers that it represents, and before it the start. In between live bytes
// change by the same amount from layer to layer, so one of the two has the peak.
#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/checked.hpp"
#include "core/placement/least_arena.hpp"
#include "core/placement/memory_plan.hpp"

namespace trainhost::placement {
namespace {

constexpr std::uint32_t kLayersPerKind = 4, kRepresentative = 2;  // index of the layer that represents others

/// Number of layers by recompute policy: full, mlp, selective, none; layers are ordered like this.
using Kinds = std::array<std::uint32_t, 4>;

Kinds kinds_of(std::uint32_t layers, const RecomputeLayers& n) {
  return {n.full, n.mlp, n.selective, static_cast<std::uint32_t>(layers - n.total())};
}

/// Where recompute_policy() reads the number of layers per policy: from the run or from the traits; null if
/// the policy is the same for all layers.
RecomputeLayers* split_of(RunSpec& run, TrainerTraits& traits) {
  if (run.recompute == Recompute::kNone) return &traits.recompute_layers;
  return run.recompute == Recompute::kLayers ? &run.recompute_layers : nullptr;
}

/// What the bound needs of a program, whatever number of layers each of its layers represents.
class LeastArena {
 public:
  /// `p` must outlive it.
  explicit LeastArena(const Program& p)
      : p_(p), life_(lifetimes(p)), padded_(p.buffers.size(), 0), span_(spans_by_layer(p)) {
    const bool gradients_once = writes_gradients_once(p);
    for (BufferId b = 0; b < p.buffers.size(); ++b) {
      if (p[b].tier != p.traits.tier || p[b].storage == Storage::kExternal) continue;
      padded_[b] = align_up(p[b].bytes(), p.traits.alignment);
      const bool packed_gradient =
          gradients_once && p[b].persistent && p[b].component == Component::kGradients && life_[b].used();
      if (p[b].persistent && !packed_gradient)
        (p[b].component == Component::kGradients ? gradients_ : persistent_).push_back(b);
      else if (life_[b].used())
        (packed_gradient ? packed_gradients_ : transient_).push_back(b);
    }
  }

  /// `times`: by layer of the program, the number of layers that it represents, itself included.
  std::uint64_t bytes(const std::vector<std::uint64_t>& times) const {
    check_total_size(times);
    const auto sum = [&](const std::vector<BufferId>& buffers) {
      std::uint64_t bytes = 0;
      for (BufferId b : buffers) bytes += times_of(b, times) * padded_[b];
      return bytes;
    };
    const std::uint64_t persistent = sum(persistent_), gradients = sum(gradients_);
    std::uint64_t most = persistent + gradients;
    const std::vector<std::uint64_t> live = transient_bytes(times);
    for (const Section& s : p_.sections) {
      const bool holds_gradients = s.kind == SectionKind::kMicro || s.kind == SectionKind::kUpdate;
      for (std::uint32_t i = s.begin; i < s.end; ++i)
        most = std::max(most, persistent + (holds_gradients ? gradients : 0) + live[i]);
    }
    return align_up(most, p_.traits.alignment);
  }

 private:
  std::uint64_t times_of(BufferId b, const std::vector<std::uint64_t>& times) const {
    return p_[b].layer < 0 ? 1 : times[static_cast<std::size_t>(p_[b].layer)];
  }

  /// Throws if the sum of all sizes exceeds 63 bits; no partial sum can overflow afterwards.
  void check_total_size(const std::vector<std::uint64_t>& times) const {
    std::uint64_t sum = 0;
    for (BufferId b = 0; b < p_.buffers.size(); ++b) {
      const std::uint64_t n = times_of(b, times);
      sum = checked_add(sum, n == 1 ? padded_[b] : checked_mul(n, padded_[b]), "the memory plan");
    }
  }

  /// Live padded bytes of transient buffers by operation. First the changes; the running sum is exact modulo
  /// 2^64.
  std::vector<std::uint64_t> transient_bytes(const std::vector<std::uint64_t>& times) const {
    std::vector<std::uint64_t> live(p_.ops.size() + 1, 0);
    const auto add = [&](Lifetime l, std::uint64_t bytes) {
      live[l.first] += bytes, live[l.last + 1] -= bytes;
    };
    const std::uint32_t backward = backward_begin(p_);
    for (BufferId b : transient_) {
      add(life_[b], padded_[b]);
      const std::uint64_t others = (times_of(b, times) - 1) * padded_[b];
      if (others == 0) continue;
      const bool whole_section = p_[b].ring > 1 || p_[b].component == Component::kKvCache;
      const bool kept = life_[b].first < backward && life_[b].last >= backward;
      if (whole_section)
        add(life_[b], others);
      else if (kept)
        add(span_[static_cast<std::size_t>(p_[b].layer)], others);
    }
    for (BufferId b : packed_gradients_) {
      add(life_[b], padded_[b]);
      if (const std::uint64_t n = times_of(b, times); n > 1)
        add({span_[static_cast<std::size_t>(p_[b].layer)].last + 1, life_[b].last}, (n - 1) * padded_[b]);
    }
    for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
    assert(live.back() == 0);
    return live;
  }

  /// By layer: from its first operation in the forward pass to its last in the backward pass.
  static std::vector<Lifetime> spans_by_layer(const Program& p) {
    std::vector<Lifetime> span(p.model.layers);
    const Section micro = p.section(SectionKind::kMicro);
    for (std::uint32_t i = micro.begin; i < micro.end; ++i) {
      if (p.ops[i].layer < 0) continue;
      Lifetime& t = span[static_cast<std::size_t>(p.ops[i].layer)];
      t = {std::min(t.first, i), i};
    }
    return span;
  }

  const Program& p_;
  std::vector<Lifetime> life_;
  std::vector<std::uint64_t> padded_;  // 0: not in the arena of the compute tier
  std::vector<Lifetime> span_;         // by layer
  std::vector<BufferId> persistent_, gradients_, packed_gradients_, transient_;
};

/// A program of few layers, with what it was built from.
struct ReducedProgram {
  ModelSpec model;
  RunSpec run;  // budgets set to 0
  TrainerTraits traits;
  Program program;
  std::optional<LeastArena> least;  // of `program`
};

/// The last programs are kept: a search for the least recomputation asks for many numbers of layers of the
/// same kinds, which have one reduced program.
std::shared_ptr<const ReducedProgram> reduced_program(const ModelSpec& model, RunSpec run,
                                                      const TrainerTraits& traits) {
  constexpr std::size_t kKept = 8;
  static std::mutex lock;
  static std::vector<std::shared_ptr<const ReducedProgram>> kept;  // the last one first
  run.device_budget = run.host_budget = 0;                         // of no effect on a program
  {
    const std::lock_guard guard(lock);
    const auto known = std::ranges::find_if(
        kept, [&](const auto& k) { return k->traits == traits && k->run == run && k->model == model; });
    if (known != kept.end()) {
      std::rotate(kept.begin(), known, known + 1);
      return kept.front();
    }
  }
  auto made = std::make_shared<ReducedProgram>(
      ReducedProgram{model, run, traits, build_program(model, run, traits), {}});
  made->least.emplace(made->program);
  const std::lock_guard guard(lock);
  if (kept.size() == kKept) kept.pop_back();
  kept.insert(kept.begin(), made);
  return made;
}

}  // namespace

std::uint64_t least_arena(const Program& p) {
  return LeastArena(p).bytes(std::vector<std::uint64_t>(p.model.layers, 1));
}

std::uint64_t least_arena(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits) {
  validate(model);  // with the original number of layers
  ModelSpec m = model;
  RunSpec r = run;
  TrainerTraits p = traits;
  RecomputeLayers* split = split_of(r, p);
  const RecomputeLayers all = split ? *split : RecomputeLayers{};
  // Rules by tensor make layers differ; more recomputed layers than there are is a usage_error of the
  // program.
  if (!run.lora_rules.empty() || !run.trainable.empty() || all.total() > model.layers)
    return least_arena(build_program(model, run, traits));
  Kinds few = kinds_of(model.layers, all);
  std::vector<std::uint64_t> times;
  for (std::uint32_t& n : few) {
    for (std::uint32_t i = 0; i < std::min(n, kLayersPerKind); ++i)
      times.push_back(i == kRepresentative && n > kLayersPerKind ? n - kLayersPerKind + 1 : 1);
    n = std::min(n, kLayersPerKind);
  }
  m.layers = static_cast<std::uint32_t>(times.size());
  if (split) *split = {few[0], few[1], few[2]};
  return reduced_program(m, r, p)->least->bytes(times);
}

}  // namespace trainhost::placement
