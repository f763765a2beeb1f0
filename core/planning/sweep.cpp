// See sweep.hpp. One pass plans every point; a second one bisects between neighbouring points for the values
// at which a fact changes. Errors at single points are results, not failures: a sweep up to the limit of a
// model ends with invalid points.
#include "core/planning/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

#include "core/base/text.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/describe_plan.hpp"
#include "core/planning/estimate_run.hpp"

namespace trainhost::planning {
namespace {

/// The run at one value of the key.
struct Point {
  ResolvedRun resolved;
  PlanRequest request;
  TrainerTraits traits;
  plugin::Registry* registry = nullptr;
};

/// State of one sweep. Used once: run() moves the result out. Single-threaded, since a registry and its
/// plugins are not shared between threads.
class Sweeper {
 public:
  Sweeper(const RunSource& source, const Axis& axis, const PlanRequest& request)
      : source_(source), axis_(axis), request_(request), asked_(request.estimators) {}

  SweepResult run() {
    v_.key = axis_.key, v_.unit = axis_.unit;
    choose_estimator();
    for (std::size_t i = 0; i < axis_.values.size(); ++i) point(i);
    if (v_.curves.empty()) plan_by_closed_form();
    // No point gave a curve: the first error explains it best.
    if (v_.curves.empty()) throw *first_error_;
    describe_run_line();
    // A curve has entries for all points. One that no estimate filled gets the reason.
    for (SweepCurve& c : v_.curves)
      for (std::size_t i = 0; i < c.points.size(); ++i)
        if (c.points[i].total == 0 && c.points[i].error.empty())
          c.points[i].error =
              errors_[i].empty() ? fmt::format("{} does not plan this run", c.estimator) : errors_[i];
    crossovers();
    return std::move(v_);
  }

 private:
  /// "auto": one estimator for the whole sweep. Of the estimators that match every point, choose the one
  /// whose lowest match is highest. Where none matches every point, each point chooses its own.
  /// One estimator for all points: if each point chose its own, steps in the curve would show the change of
  /// estimator and not of memory. An error at a point is ignored here and recorded by point().
  void choose_estimator() {
    if (request_.estimators.size() > 1 ||
        (request_.estimators.size() == 1 && request_.estimators.front() != "auto"))
      return;
    std::map<std::string, int> worst, first;
    std::vector<std::string> order;
    for (const AxisValue& value : axis_.values) {
      try {
        const runfile::RunConfig c = source_.load({{axis_.key, value.label}});
        if (request_.estimators.empty() && c.estimators != std::vector<std::string>{"auto"}) return;
        const std::unique_ptr<plugin::Registry> registry = source_.open(c);
        if (order.empty()) order = registry->ids("estimator");
        for (const std::string& id : order) {
          const int match = match_of(*registry, id, c);
          // first: match at the first valid point. worst: the lowest match at any valid point; 0 = plans not
          // all.
          first.emplace(id, match);
          worst[id] = worst.count(id) ? std::min(worst[id], match) : match;
        }
      } catch (const Error&) {  // not a valid run: point() records why
      }
    }
    const auto best = [&](const std::map<std::string, int>& by) {
      std::string id;
      for (const std::string& e : order)
        if (by.at(e) > 0 && (id.empty() || by.at(e) > by.at(id))) id = e;
      return id;
    };
    if (order.empty() || best(worst).empty()) return;
    request_.estimators = {best(worst)};
    if (best(first) != best(worst))
      v_.remarks.push_back(
          fmt::format("estimator {} is used because it plans every point; {} matches the first point better "
                      "but cannot plan all",
                      best(worst), best(first)));
  }

  /// As a plan of one point does where the estimator of the framework does not describe the run.
  void plan_by_closed_form() {
    const std::vector<std::string> kAuto{"auto"};
    const bool chosen = asked_.empty() ? described_ && described_->estimators == kAuto : asked_ == kAuto;
    if (!chosen || !unsupported_ || described_->framework.empty() || !registry_->find(kClosedFormEstimator))
      return;
    request_.estimators = {kClosedFormEstimator};
    errors_.clear(), how_.clear(), first_error_.reset();
    for (std::size_t i = 0; i < axis_.values.size(); ++i) point(i);
    v_.remarks.push_back(
        fmt::format("{}. The closed form '{}' answers instead: it assumes fused kernels, and {} keeps more "
                    "activations.",
                    escaped(*unsupported_, 400), kClosedFormEstimator, escaped(described_->framework, 80)));
  }

  /// The run line has the recomputation policy if it is the same at all points; otherwise each point has it.
  void describe_run_line() {
    std::set<std::string> all;
    for (const std::string& how : how_) all.insert(how);
    all.erase("");
    const bool swept = axis_.key.starts_with("train.recompute");
    const std::string same = swept || all.empty() ? ""
                             : all.size() == 1    ? *all.begin()
                                                  : "recompute differs by point";
    v_.run_line = describe_run(*described_, same);
    v_.notes.insert(v_.notes.begin(), v_.remarks.begin(), v_.remarks.end());
  }

  /// `traits`: use these; nullopt: ask the trainer, which may try several modes (slow).
  /// The registry is opened again only if plugin options or paths change; a scan reads every plugin file.
  Point at(const std::string& value, const std::optional<TrainerTraits>& traits = std::nullopt) {
    Point p;
    runfile::RunConfig c = source_.load({{axis_.key, value}});
    assert(!value.empty());
    if (!registry_ || c.plugin_options != options_ || c.plugin_path != path_)
      registry_ = source_.open(c), options_ = c.plugin_options, path_ = c.plugin_path;
    p.registry = registry_.get();
    p.request = request_;
    p.request.trainer = planned_trainer(c, *registry_);
    p.request.elsewhere = is_for_another_machine(c);
    // Read free memory once: points must differ in the key only.
    if (!c.budget && c.device.empty() && free_ && axis_.key != "memory.device") c.budget = free_;
    p.resolved = resolve_run(c, *registry_, p.request);
    if (!c.budget && c.device.empty() && p.resolved.budgets.compute.known)
      free_ = p.resolved.budgets.compute.bytes;
    p.traits = traits ? *traits : planned_traits(p.resolved, *registry_, p.request);
    return p;
  }

  /// Fills index i of every array that is parallel to axis_.values. errors_ and how_ grow by one per call, so
  /// points must be planned in order.
  void point(std::size_t i) {
    assert(errors_.size() == i && how_.size() == i);
    errors_.emplace_back();
    how_.emplace_back();
    try {
      const Point p = at(axis_.values[i].label);
      how_.back() = describe_recompute(p.resolved.config, p.traits);
      if (!p.traits.mode.empty() && p.traits.recompute_layers.total() == 0)
        how_.back() = fmt::format("{} {}, {}", p.request.trainer, p.traits.mode, how_.back());
      describe(p);
      first_traits_ = first_traits_.value_or(p.traits);
      for (const std::string& id : choose_estimators(p.resolved.config, *p.registry, p.request).ids)
        ask(p, id, i);
    } catch (const Error& e) {
      errors_[i] = e.what();
      if (!first_error_) first_error_ = e;
    }
  }

  void ask(const Point& p, const std::string& id, std::size_t i) {
    try {
      const Estimate e = estimate_run(p.resolved, *p.registry, p.request, id, p.traits);
      SweepCurve& c = curve(id, e);
      c.points[i] = shown(e, i, p.resolved.budgets);
      estimates_[id].emplace(i, e);
      // Notes of the first point only: they usually repeat at every point.
      for (const std::string& n : e.report.notes)
        if (estimates_[id].size() == 1)
          v_.notes.push_back(fmt::format("{}, at {}: {}", id, axis_.values[i].label, n));
    } catch (const Error& e) {
      if (!first_error_) first_error_ = e;
      if (errors_[i].empty()) errors_[i] = e.what();
      const auto* refused = dynamic_cast<const plugin::PluginError*>(&e);
      if (refused && refused->status() == "unsupported" && !unsupported_) unsupported_ = e.what();
    }
  }

  /// The curve of an estimator, created at its first estimate with a point per value, so curves stay parallel
  /// even if the estimator fails at some values. Such points keep a total of 0 until run() adds a reason.
  SweepCurve& curve(const std::string& id, const Estimate& e) {
    for (SweepCurve& c : v_.curves)
      if (c.estimator == id) return c;
    SweepCurve c{id, e.report.claim, {}};
    for (const AxisValue& a : axis_.values) {
      SweepPoint& p = c.points.emplace_back();
      p.x = a.x, p.label = a.label, p.fits = false;
    }
    return v_.curves.emplace_back(std::move(c));
  }

  /// Components in the order of their enumerators, as a map is sorted; entries of 0 bytes are left out.
  SweepPoint shown(const Estimate& e, std::size_t i, const Budgets& b) const {
    SweepPoint p;
    p.x = axis_.values[i].x, p.label = axis_.values[i].label;
    p.total = e.total_bytes, p.compute = e.compute_bytes, p.host_bytes = e.host_bytes;
    p.fits = e.fits, p.how = how_[i];
    p.verdict = verdict_of(e.fits, b.compute.known, (b.host.known ? 0 : e.host_bytes) + e.disk_bytes);
    std::map<Component, std::uint64_t> parts;
    for (const MemoryEntry& n : e.report.entries) parts[n.component] += n.at_peak();
    for (const auto& part : parts)
      if (part.second) p.components.push_back(part);
    return p;
  }

  /// From the first valid point: model and budget are the same at all points, except where they are swept.
  void describe(const Point& p) {
    if (described_) return;
    const runfile::RunConfig& c = p.resolved.config;
    v_.model = c.model.name.empty() ? c.model.family : c.model.name;
    described_ = c;
    v_.file_keys = c.file_keys;
    const Budget& b = p.resolved.budgets.compute;
    const bool swept =
        axis_.key == "memory.device" || axis_.key == "memory.budget";  // then each point has another budget
    v_.budget_known = b.known && !swept;
    v_.budget_bytes = v_.budget_known ? b.bytes : 0;
    v_.budget_source = swept ? "" : b.source;
  }

  /// Facts that differ between two neighbouring points that both have an estimate.
  void crossovers() {
    for (const SweepCurve& c : v_.curves) {
      const auto& known = estimates_.at(c.estimator);
      for (auto a = known.begin(), b = std::next(a); a != known.end() && b != known.end(); ++a, ++b)
        for (const Predicate& p : changed_facts(a->second, b->second, v_.budget_known))
          cross(c.estimator, p, a->first, b->first);
    }
    std::stable_sort(v_.crossovers.begin(), v_.crossovers.end(),
                     [](const Crossover& a, const Crossover& b) { return a.x < b.x; });
  }

  /// Bisects between the points where the axis has values in between: about log2(distance) plans per
  /// crossover. Otherwise the crossover is at the later point.
  void cross(const std::string& id, const Predicate& p, std::size_t from, std::size_t to) {
    double x = axis_.values[to].x;
    std::string where = axis_.values[to].label;
    assert(from < to && to < axis_.values.size());
    if (axis_.whole_numbers && axis_.values[from].x < x) {
      const auto holds = [&](std::uint64_t n) {
        try {
          return p.holds(between(n, id));
        } catch (const Error&) {
          return p.holds(estimates_.at(id).at(from));  // not a valid run: count it as not changed yet
        }
      };
      const std::uint64_t n =
          bisect(static_cast<std::uint64_t>(axis_.values[from].x), static_cast<std::uint64_t>(x), holds);
      x = double(n), where = format_count(n);
    }
    v_.crossovers.push_back({id, fmt::format("{} from {} = {}", p.sentence, axis_.key, where), x});
  }

  /// An estimate between two points, cached: neighbouring crossovers need the same ones.
  const Estimate& between(std::uint64_t n, const std::string& id) {
    const auto key = std::pair(n, id);
    if (const auto found = between_.find(key); found != between_.end()) return found->second;
    const bool closed_form = estimates_.at(id).begin()->second.report.digest ==
                             0;  // a closed form reads only the tier of the traits
    auto& runs = runs_[closed_form];
    auto run = runs.find(n);
    if (run == runs.end())
      run = runs.emplace(n, at(std::to_string(n), closed_form ? first_traits_ : std::nullopt)).first;
    const Point& q = run->second;
    return between_.emplace(key, estimate_run(q.resolved, *q.registry, q.request, id, q.traits))
        .first->second;
  }

  const RunSource& source_;
  const Axis& axis_;
  PlanRequest request_;
  const std::vector<std::string> asked_;  // estimators that the user named
  SweepResult v_;
  std::unique_ptr<plugin::Registry> registry_;
  decltype(runfile::RunConfig::plugin_options) options_;
  std::vector<std::filesystem::path> path_;
  std::optional<std::uint64_t> free_;
  std::vector<std::string> errors_, how_;        // by point
  std::optional<runfile::RunConfig> described_;  // the first valid run
  std::optional<Error> first_error_;
  std::optional<std::string> unsupported_;  // why the estimator of the framework describes no point
  std::optional<TrainerTraits> first_traits_;
  std::map<std::uint64_t, Point> runs_[2];  // between points; [1]: for closed forms
  std::map<std::pair<std::uint64_t, std::string>, Estimate> between_;
  std::map<std::string, std::map<std::size_t, Estimate>> estimates_;  // estimator, point
};

}  // namespace

/// Invariant: holds(high) has the value of the right end, holds(low) that of the left end.
std::uint64_t bisect(std::uint64_t low, std::uint64_t high, const std::function<bool(std::uint64_t)>& holds) {
  assert(low < high);
  const bool holds_at_high = holds(high);
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (holds(middle) == holds_at_high ? high : low) = middle;
  }
  return high;
}

SweepResult sweep(const RunSource& source, const Axis& axis, const PlanRequest& request) {
  return Sweeper(source, axis, request).run();
}

}  // namespace trainhost::planning
