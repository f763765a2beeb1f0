// One pass over a part of the space, with pruning by lower bounds (README.md, "Pruning"), and the merge of
// parts.
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

bool is_closer_to_fitting(const Found& a, const Found& b, const Question& q) {
  const std::uint64_t x = misses_by(a, q), y = misses_by(b, q);
  return x != y ? x < y : faster(a, b);
}

/// One pass over a part of the space. Index of a layout: shape in the upper 32 bits, position within the
/// shape in the lower 32.
class Search {
 public:
  explicit Search(const Question& q)
      : q_(q),
        a_(*q.architecture),
        time_(a_, q.job.base, q.machine),
        run_(q.job.base),
        memory_(a_, run_),
        fastest_(q.top),
        one_rank_(keeps(q.job, false)),
        several_ranks_(keeps(q.job, true)) {
    tiers_ = q.job.axes.activations_in.size() * q.job.axes.weights_in.size() * q.job.axes.optimizer_in.size();
  }

  /// Device-seconds per sequence. Shapes with the least work come first, so that more of the others are
  /// pruned.
  double work_per_sequence(const Shape& s) {
    apply(run_, s);
    return time_.micro_batch(run_).layer.sum() * s.tensor * s.context / s.micro_batch;
  }

  void evaluate_shape(const Shape& s, std::uint64_t index) {
    const std::vector<Depth> all = depths(a_, q_.job, s);
    if (all.empty()) return;
    shape_ = &s;
    index_ = index << 32;
    apply(run_, s);
    const TimeModel::MicroBatch micro_batch = time_.micro_batch(run_);
    memory_.set_shape();
    for (const Depth& d : all) evaluate_depth(d, micro_batch);
  }

  Answer answer() {
    answer_.best = std::move(fastest_.kept());
    answer_.pareto = std::move(front_.kept());
    return std::move(answer_);
  }

 private:
  void evaluate_depth(const Depth& d, const TimeModel::MicroBatch& micro_batch) {
    const std::vector<Keep>& inner = d.data * shape_->context > 1 ? several_ranks_ : one_rank_;
    answer_.layouts += inner.size();
    const std::uint64_t first = index_;
    index_ += inner.size();
    apply(run_, d);
    const TimeModel::Stage stage = time_.stage(micro_batch, run_);
    memory_.set_depth();
    assert(inner.size() % tiers_ == 0);
    const std::size_t block = inner.size() / tiers_;  // a group: layouts that differ only in ZeRO
    seconds_.resize(block);
    for (std::size_t i = 0; i < inner.size(); i += block) {
      const std::span<const Keep> group(inner.data() + i, block);
      const double least = least_seconds(group, stage);
      if (q_.prune && group_cannot_improve(group, least)) continue;
      for (std::size_t k = 0; k < block; ++k) evaluate(d, group[k], seconds_[k], first + i + k);
    }
  }

  void evaluate(const Depth& d, const Keep& keep, double seconds, std::uint64_t index) {
    apply(run_, keep);
    const auto bytes =
        memory_.bytes([&](std::uint64_t device) { return q_.prune && cannot_improve(seconds, device); });
    if (!bytes) return;
    ++answer_.evaluated;
    consider({*shape_, d, keep, bytes->device, bytes->host, seconds, index});
  }

  /// Smallest time in the group; seconds_ gets the time of each layout.
  double least_seconds(std::span<const Keep> group, const TimeModel::Stage& stage) {
    double least = INFINITY;
    for (std::size_t k = 0; k < group.size(); ++k) {
      apply(run_, group[k]);
      seconds_[k] = time_.seconds(stage, run_);
      least = std::min(least, seconds_[k]);
    }
    return least;
  }

  bool group_cannot_improve(std::span<const Keep> group, double seconds) {
    Keep most = group.front();
    for (const Keep& k : group) most.zero = std::max(most.zero, k.zero);
    apply(run_, most);
    return memory_.at_least([&](std::uint64_t bytes) { return cannot_improve(seconds, bytes); });
  }

  /// Whether no layout with at least these seconds and bytes can be in the answer: it is neither among the
  /// fastest nor on the Pareto front; or it does not fit, and something fits already or is closer to fitting.
  bool cannot_improve(double seconds, std::uint64_t bytes) const {
    if (bytes > q_.device_budget)
      return answer_.fitting > 0 ||
             (answer_.closest && bytes - q_.device_budget > misses_by(*answer_.closest, q_));
    return answer_.fitting > 0 && !fastest_.wants(seconds) && !front_.wants(bytes, seconds);
  }

  void consider(const Found& f) {
    if (const std::uint64_t miss = misses_by(f, q_)) {
      if (answer_.fitting == 0 && (!answer_.closest || is_closer_to_fitting(f, *answer_.closest, q_)))
        answer_.closest = f;
      return;
    }
    ++answer_.fitting;
    if (fastest_.wants(f.step_seconds)) fastest_.add(f);
    if (front_.wants(f.device_bytes, f.step_seconds)) front_.add(f);
  }

  const Question& q_;
  const model::Architecture& a_;
  TimeModel time_;
  RunSpec run_;         // varied in place
  MemoryModel memory_;  // of run_
  Fastest fastest_;
  ParetoFront front_;
  std::vector<Keep> one_rank_, several_ranks_;
  std::vector<double> seconds_;  // of a group
  std::size_t tiers_ = 1;        // combinations of tiers of weights, optimizer state and activations
  const Shape* shape_ = nullptr;
  std::uint64_t index_ = 0;
  Answer answer_;
};

}  // namespace

RunSpec Found::run(const RunSpec& base) const {
  RunSpec r = base;
  apply(r, shape);
  apply(r, depth);
  apply(r, keep);
  return r;
}

std::uint64_t misses_by(const Found& f, const Question& q) {
  const std::uint64_t device = excess(f.device_bytes, q.device_budget),
                      host = excess(f.host_bytes, q.host_budget);
  return device > UINT64_MAX - host ? UINT64_MAX : device + host;
}

Answer search(const Question& q, std::size_t part, std::size_t parts) {
  if (q.job.base.mode == RunMode::kInference)
    throw usage_error("search is for training; plan.mode = \"inference\" has no step time");
  const std::vector<Shape> all = shapes(*q.architecture, q.job);
  Search s(q);
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = part; i < all.size(); i += parts) order.emplace_back(s.work_per_sequence(all[i]), i);
  std::sort(order.begin(), order.end());
  for (const auto& [work, i] : order) s.evaluate_shape(all[i], i);
  return s.answer();
}

Answer merge(std::vector<Answer> answers, const Question& q) {
  Answer out;
  Fastest fastest(q.top);
  ParetoFront front;
  for (Answer& a : answers) {
    out.layouts += a.layouts;
    out.evaluated += a.evaluated;
    out.fitting += a.fitting;
    for (const Found& f : a.best) fastest.add(f);
    for (const Found& f : a.pareto) front.add(f);
    if (a.closest && (!out.closest || is_closer_to_fitting(*a.closest, *out.closest, q)))
      out.closest = a.closest;
  }
  out.best = std::move(fastest.kept());
  out.pareto = std::move(front.kept());
  if (out.fitting) out.closest.reset();
  return out;
}

}  // namespace trainhost::parallel
