// One pass over a part of the space, with pruning by lower bounds (README.md, "Pruning"), and the merge of
// parts. Why pruning is exact: a layout is skipped only against layouts that were already found, whose place
// in the answer can only be taken by better ones. Times are compared after the same sequence of roundings
// (step_time.hpp), so bounds hold for doubles and not only for real numbers.
#include "core/parallel/layout_search.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>

#include "core/base/error.hpp"
#include "core/parallel/memory_model.hpp"
#include "core/parallel/pareto_front.hpp"

namespace trainhost::parallel {
namespace {

std::uint64_t excess(std::uint64_t bytes, std::uint64_t budget) {
  return bytes > budget ? bytes - budget : 0;
}

// A layout misses by the sum of both excesses; equal ones are ordered like fitting ones.
bool is_closer_to_fitting(const FoundLayout& a, const FoundLayout& b, const SearchRequest& q) {
  const std::uint64_t x = excess_bytes(a, q), y = excess_bytes(b, q);
  return x != y ? x < y : faster(a, b);
}

/// One pass over a part of the space. Index of a layout: its MicroBatchSettings in the upper 32 bits,
/// its position among their layouts in the lower 32.
/// Not thread-safe: one object per part and thread. run_ is changed in place, and memory_ refers to it; the
/// order shape, depth, keep must be kept.
class Search {
 public:
  explicit Search(const SearchRequest& q)
      : q_(q),
        a_(*q.architecture),
        time_(a_, q.space.base, q.machine),
        run_(q.space.base),
        memory_(a_, run_),
        fastest_(q.top),
        one_rank_(state_settings(q.space, false)),
        several_ranks_(state_settings(q.space, true)) {
    // Number of groups per depth: layouts of a group differ only in ZeRO, and keeps() lists them
    // consecutively.
    tiers_ = q.space.axes.activations_in.size() * q.space.axes.weights_in.size() *
             q.space.axes.optimizer_in.size();
  }

  /// Device-seconds per sequence. Settings with the least work come first, so that more of the others are
  /// pruned.
  double work_per_sequence(const MicroBatchSettings& s) {
    apply(run_, s);
    // All ranks of a micro-batch divided by its sequences: comparable between shapes of different size.
    return time_.micro_batch(run_).layer.sum() * s.tensor * s.context / s.micro_batch;
  }

  void evaluate_micro_batch(const MicroBatchSettings& s, std::uint64_t index) {
    // No depth fits this shape; its micro-batch would be computed for nothing.
    const std::vector<PipelineSettings> all = pipeline_settings(a_, q_.space, s);
    if (all.empty()) return;
    micro_ = &s;
    index_ = index << 32;
    apply(run_, s);
    const TimeModel::MicroBatch micro_batch = time_.micro_batch(run_);
    memory_.set_micro_batch();
    for (const PipelineSettings& d : all) evaluate_pipeline(d, micro_batch);
  }

  SearchOutcome outcome() {
    outcome_.best = std::move(fastest_.kept());
    outcome_.pareto = std::move(pareto_front_.kept());
    return std::move(outcome_);
  }

 private:
  void evaluate_pipeline(const PipelineSettings& d, const TimeModel::MicroBatch& micro_batch) {
    // ZeRO shards among data and context ranks; with one of them the stages do not differ.
    const std::vector<StateSettings>& inner = d.data * micro_->context > 1 ? several_ranks_ : one_rank_;
    outcome_.layouts += inner.size();
    // The index advances over pruned layouts too: it does not depend on pruning.
    const std::uint64_t first = index_;
    index_ += inner.size();
    apply(run_, d);
    const TimeModel::Stage stage = time_.stage(micro_batch, run_);
    memory_.set_pipeline();
    assert(inner.size() % tiers_ == 0);
    const std::size_t block = inner.size() / tiers_;  // a group: layouts that differ only in ZeRO
    seconds_.resize(block);
    for (std::size_t i = 0; i < inner.size(); i += block) {
      const std::span<const StateSettings> group(inner.data() + i, block);
      // Cheap first: four sums of times decide most groups before any memory is computed.
      const double least = least_seconds(group, stage);
      if (q_.prune && group_cannot_improve(group, least)) continue;
      for (std::size_t k = 0; k < block; ++k) evaluate(d, group[k], seconds_[k], first + i + k);
    }
  }

  void evaluate(const PipelineSettings& d, const StateSettings& state, double seconds, std::uint64_t index) {
    apply(run_, state);
    // Called after every pipeline stage with the bytes so far; true stops the computation (README.md).
    const auto bytes =
        memory_.bytes([&](std::uint64_t device) { return q_.prune && cannot_improve(seconds, device); });
    if (!bytes) return;
    ++outcome_.evaluated;
    add_to_outcome({*micro_, d, state, bytes->device, bytes->host, seconds, index});
  }

  /// Smallest time in the group; seconds_ gets the time of each layout.
  double least_seconds(std::span<const StateSettings> group, const TimeModel::Stage& stage) {
    double least = INFINITY;
    for (std::size_t k = 0; k < group.size(); ++k) {
      apply(run_, group[k]);
      seconds_[k] = time_.seconds(stage, run_);
      least = std::min(least, seconds_[k]);
    }
    return least;
  }

  bool group_cannot_improve(std::span<const StateSettings> group, double seconds) {
    StateSettings most = group.front();
    // The highest ZeRO stage needs least memory for state; communication buffers, which grow, are not in the
    // bound.
    for (const StateSettings& k : group) most.zero = std::max(most.zero, k.zero);
    apply(run_, most);
    return memory_.at_least([&](std::uint64_t bytes) { return cannot_improve(seconds, bytes); });
  }

  /// Whether no layout with at least these seconds and bytes can be in the outcome: it is neither among the
  /// fastest nor on the Pareto front; or it does not fit, and something fits already or is closer to fitting.
  bool cannot_improve(double seconds, std::uint64_t bytes) const {
    // Too large already. It could only be the closest layout of an answer in which nothing fits.
    if (bytes > q_.device_budget)
      return outcome_.fitting > 0 ||
             (outcome_.closest && bytes - q_.device_budget > excess_bytes(*outcome_.closest, q_));
    // Ties are kept: wants() is false only for strictly worse layouts.
    return outcome_.fitting > 0 && !fastest_.admits(seconds) && !pareto_front_.admits(bytes, seconds);
  }

  void add_to_outcome(const FoundLayout& f) {
    // A layout that does not fit is remembered only while none fits. merge() drops it if another part has one
    // that fits.
    if (const std::uint64_t miss = excess_bytes(f, q_)) {
      if (outcome_.fitting == 0 && (!outcome_.closest || is_closer_to_fitting(f, *outcome_.closest, q_)))
        outcome_.closest = f;
      return;
    }
    ++outcome_.fitting;
    if (fastest_.admits(f.step_seconds)) fastest_.add(f);
    if (pareto_front_.admits(f.device_bytes, f.step_seconds)) pareto_front_.add(f);
  }

  const SearchRequest& q_;
  const model::Architecture& a_;
  TimeModel time_;
  RunSpec run_;         // varied in place
  MemoryModel memory_;  // of run_
  FastestLayouts fastest_;
  ParetoFront pareto_front_;
  std::vector<StateSettings> one_rank_, several_ranks_;
  std::vector<double> seconds_;  // of a group
  std::size_t tiers_ = 1;        // combinations of tiers of weights, optimizer state and activations
  const MicroBatchSettings* micro_ = nullptr;
  std::uint64_t index_ = 0;
  SearchOutcome outcome_;
};

}  // namespace

RunSpec FoundLayout::run(const RunSpec& base) const {
  RunSpec r = base;
  apply(r, micro);
  apply(r, pipeline);
  apply(r, state);
  return r;
}

std::uint64_t excess_bytes(const FoundLayout& f, const SearchRequest& q) {
  const std::uint64_t device = excess(f.device_bytes, q.device_budget),
                      host = excess(f.host_bytes, q.host_budget);
  // Saturates: a saturated size stays the largest.
  return device > UINT64_MAX - host ? UINT64_MAX : device + host;
}

SearchOutcome search(const SearchRequest& q, std::size_t part, std::size_t parts) {
  if (q.space.base.mode == RunMode::kInference)
    throw usage_error("search is for training; plan.mode = \"inference\" has no step time");
  const std::vector<MicroBatchSettings> all = micro_batch_settings(*q.architecture, q.space);
  Search s(q);
  std::vector<std::pair<double, std::size_t>> order;
  // Every parts-th shape: neighbours in the order cost about the same, so the parts take equally long.
  for (std::size_t i = part; i < all.size(); i += parts) order.emplace_back(s.work_per_sequence(all[i]), i);
  // pair compares work, then index; equal work in the order of the space.
  std::sort(order.begin(), order.end());
  for (const auto& [work, i] : order) s.evaluate_micro_batch(all[i], i);
  return s.outcome();
}

// The same comparison as within a part, so the split does not show in the answer. `fitting` and `evaluated`
// do depend on it: each part prunes against its own layouts.
SearchOutcome merge(std::vector<SearchOutcome> outcomes, const SearchRequest& q) {
  SearchOutcome out;
  FastestLayouts fastest(q.top);
  ParetoFront front;
  for (SearchOutcome& a : outcomes) {
    out.layouts += a.layouts;
    out.evaluated += a.evaluated;
    out.fitting += a.fitting;
    for (const FoundLayout& f : a.best) fastest.add(f);
    for (const FoundLayout& f : a.pareto) front.add(f);
    if (a.closest && (!out.closest || is_closer_to_fitting(*a.closest, *out.closest, q)))
      out.closest = a.closest;
  }
  out.best = std::move(fastest.kept());
  out.pareto = std::move(front.kept());
  if (out.fitting) out.closest.reset();
  return out;
}

}  // namespace trainhost::parallel
