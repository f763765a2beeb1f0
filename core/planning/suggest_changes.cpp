// See suggest_changes.hpp. Every change is planned again before it is suggested. The number of plans is kept
// small by bisection of series, by caching (replan.hpp), and by trying combinations only if fewer than
// kEnough single changes fit.
#include "core/planning/suggest_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <tuple>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/find_limits.hpp"
#include "core/planning/framework_layouts.hpp"
#include "core/planning/propose_changes.hpp"
#include "core/planning/series_search.hpp"
#include "core/planning/step_timeline.hpp"

namespace trainhost::planning {
namespace {

constexpr std::size_t kEnough = 3;  // single changes; with fewer, combinations are tried

/// `c`: the run to change; `asked`: the run as the user wrote it, without a prefix.
/// Costs of data movement need parameter counts and activation bytes. The counts of the plan are used where
/// they are known; otherwise the model's own.
ChangeContext context_of(const PlanResult& v, const runfile::RunConfig& c, const RunSpec& asked) {
  ChangeContext s{c,
                  v.compute_tier,
                  v.mode,
                  v.budget_bytes,
                  v.active_parameters ? v.active_parameters : v.parameters.total,
                  0,
                  0,
                  0,
                  false,
                  devices_of(asked)};
  if (model::known_family(c.model.family)) {
    const model::Architecture a = model::from_model(c.model);
    s.dense = !a.has_experts();
    if (s.parameters == 0) s.parameters = model::count(a).active;
  }
  s.all_parameters = v.parameters_known ? v.parameters.total : 0;
  const MemoryReport& r = v.estimates.front().report;
  s.activation_bytes = r.component_bytes(Component::kActivations);
  s.trained_bytes = r.component_bytes(Component::kGradients) + r.component_bytes(Component::kOptimizerState) +
                    r.component_bytes(Component::kWorkspace);
  s.update_bytes = r.component_bytes(Component::kOptimizerState) + r.component_bytes(Component::kWorkspace) +
                   r.component_bytes(Component::kFragmentation);
  s.kept_states = r.component_bytes(Component::kWeights) + r.component_bytes(Component::kMasterWeights) +
                  r.component_bytes(Component::kGradients);
  return s;
}

/// Position of a change among others: what costs nothing, time, hardware, another training result. Time that
/// more than doubles a step comes last: few users would wait that long.
std::uint32_t order_of(const Change& c) {
  constexpr double kTooSlow = 1;  // fraction of a step
  return c.price == Price::kTime && c.cost > kTooSlow ? static_cast<std::uint32_t>(Price::kResult) + 1
                                                      : static_cast<std::uint32_t>(c.price);
}

/// Of several changes with the same number of data ranks (ZeRO 1, 2, 3), keep the first.
/// Changes are sorted by cost, so the first of each number of ranks is the mildest ZeRO stage.
void drop_same_data_ranks(std::vector<Change>& changes) {
  const auto ranks = [](const Change& c) {
    return c.set.empty() || !c.set.front().starts_with("parallel.data=") ? std::string() : c.set.front();
  };
  std::vector<std::string> seen;
  std::erase_if(changes, [&](const Change& c) {
    const std::string r = ranks(c);
    if (r.empty()) return false;
    if (std::find(seen.begin(), seen.end(), r) != seen.end()) return true;
    seen.push_back(r);
    return false;
  });
}

/// `more_fit`: increased by the changes that fit too and are left out, because a lower ZeRO stage fits with
/// the same number of ranks.
std::vector<Change> find_single_changes(const ChangeContext& s, const CombinationPrefix& prefix,
                                        const std::vector<Change>& known, Replanner& replan,
                                        const FirstGuess& guess, std::size_t& more_fit) {
  std::vector<Change> out;
  std::size_t least_ranks = SIZE_MAX;  // index of the change with fewest data ranks that fits so far
  for (CandidateSeries& f : propose_changes(s)) {
    if (guess.missing() > f.frees_at_most || guess.never_fits(f)) continue;
    std::erase_if(f.changes,
                  [&](const CandidateChange& x) { return x.other_device && x.other_device < guess.least(); });
    // A higher ZeRO stage is worth a plan with fewer ranks only.
    const bool fits_with_as_many = f.shards != 0 && f.changes.size() > least_ranks;
    if (fits_with_as_many) f.changes.resize(least_ranks);
    std::optional<Change> c;
    if (!f.changes.empty()) c = mildest_that_fits(f, prefix, known, replan, guess);
    if (!c) {
      more_fit += fits_with_as_many;
      continue;
    }
    if (f.shards != 0)
      least_ranks = static_cast<std::size_t>(
          std::ranges::find(f.changes, c->set,
                            [&](const CandidateChange& x) {
                              return set_arguments(merge_settings(prefix.settings, x.settings));
                            }) -
          f.changes.begin());
    out.push_back(std::move(*c));
  }
  return out;
}

/// Heads must be divisible by the tensor ranks; 1 always divides.
std::uint32_t most_tensor_ranks(const runfile::RunConfig& c) {
  std::uint32_t ranks = divides_layers(c.framework) ? 8 : 1;
  while (ranks > 1 && c.model.heads % ranks) ranks /= 2;
  return ranks;
}

/// A power of two, at most one layer per stage.
std::uint32_t most_stages(const runfile::RunConfig& c) {
  std::uint32_t stages = 1;
  while (divides_layers(c.framework) && std::uint64_t{stages} * 2 <= c.model.layers) stages *= 2;
  return stages;
}

/// The prefix for a run that too few single changes make fit: ranks, full recomputation, one sequence
/// per micro-batch.
CombinationPrefix smallest_step(const RunSpec& r, const CombinationRanks& ranks) {
  CombinationPrefix p;
  if (ranks.tensor > 1) {
    p.settings = {{"parallel.tensor", std::to_string(ranks.tensor)}};
    if (r.mode != RunMode::kInference) p.settings.push_back({"parallel.sequence", "true"});
    p.description = fmt::format(", {}-way tensor parallelism", ranks.tensor);
  }
  if (ranks.pipeline > 1) {
    p.settings.push_back({"parallel.pipeline", std::to_string(ranks.pipeline)});
    p.description += fmt::format("{} {} pipeline stages", ranks.tensor > 1 ? " and" : ",", ranks.pipeline);
  }
  if (r.mode == RunMode::kInference) return p;
  if (r.recompute != Recompute::kFull)
    p.settings.push_back({"train.recompute", "full"}), p.description += ", with full recomputation";
  if (r.micro_batch > 1) {
    p.settings.push_back({"train.micro_batch", "1"});
    p.settings.push_back({"train.grad_accum", std::to_string(std::uint64_t{r.accumulate} * r.micro_batch)});
    p.description += r.recompute == Recompute::kFull ? ", with one sequence per micro-batch"
                                                     : " and one sequence per micro-batch";
  }
  return p;
}

/// The run with smallest_step() applied: candidates are proposed for it.
runfile::RunConfig smallest_run(runfile::RunConfig c, const CombinationRanks& ranks) {
  if (ranks.tensor > 1) c.run.parallel.tensor = ranks.tensor, c.run.parallel.sequence = true;
  if (ranks.pipeline > 1) c.run.parallel.pipeline = ranks.pipeline, c.run.parallel.virtual_stages = 1;
  if (c.run.mode == RunMode::kInference) return c;
  const std::uint64_t sequences = std::uint64_t{c.run.accumulate} * c.run.micro_batch;
  c.run.accumulate = static_cast<std::uint32_t>(std::min<std::uint64_t>(sequences, UINT32_MAX)),
  c.run.micro_batch = 1;
  c.run.recompute = Recompute::kFull;
  return c;
}

/// If the prefix fits, appends it alone: a combination with it would contain more changes than are needed.
/// Otherwise appends every candidate combined with the prefix, unless `out` has it. Candidates are proposed
/// for the small run but planned as prefix plus change, so their settings and sentences contain the prefix.
/// Returns whether the prefix fits.
bool find_combinations(const PlanResult& v, const CombinationRanks& ranks, Replanner& replan,
                       std::vector<Change>& out, const FirstGuess& guess) {
  const runfile::RunConfig& c = replan.base().config;
  const CombinationPrefix prefix = smallest_step(c.run, ranks);
  if (prefix.settings.empty()) return false;
  const runfile::RunConfig small = smallest_run(c, ranks);
  const bool more_ranks = ranks.tensor > 1 || ranks.pipeline > 1;
  const double n = double(devices_of(small.run));
  const std::string devices = describe_device_count(devices_of(small.run), devices_of(c.run));
  // The prefix alone is a suggestion only if nothing milder is known: with more ranks, or if no change that
  // is free or costs only time fits.
  // Its bytes are the first guess of the changes beside it.
  std::optional<Estimate> e = replan.plan(prefix.settings, false, false);
  if (more_ranks && replan.is_refused(prefix.settings)) return false;
  if (e && e->fits) {
    const bool milder =
        std::any_of(out.begin(), out.end(), [](const Change& o) { return o.price <= Price::kTime; });
    if (more_ranks || !milder)
      out.push_back(
          make_change(prefix.settings,
                      {{},
                       prefix.description.substr(prefix.description.starts_with(", with ") ? 7 : 2),
                       more_ranks ? n + 0.34 : 0.34,
                       more_ranks ? devices + " and about a third more time" : "about a third more time"},
                      more_ranks ? Price::kHardware : Price::kTime, *e));
    return true;
  }
  std::size_t more_fit = 0;
  for (Change& more : find_single_changes(context_of(v, small, c.run), prefix, out, replan,
                                          guess.with_prefix(e, ranks), more_fit)) {
    assert(!more.set.empty());
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const Change& o) { return o.set.back() == more.set.back(); });
    if (known) continue;
    if (more.price != Price::kResult) more.cost += 0.5;  // rank below changes that need no recomputation
    if (more_ranks && more.cost_text.find("devices instead of") == std::string::npos) {
      more.cost_text += ", " + devices;
      if (more.price != Price::kResult) more.price = Price::kHardware, more.cost += n;
    }
    out.push_back(std::move(more));
  }
  return false;
}

/// Changes that `trainhost train`, started alone, would reject (runfile::reject_unsupported()). Ranks that
/// the trainer's own step program plans are trained under mpirun; the rest are answers for other trainers.
/// Adapters are trained over weights in NF4 and in the type of the run, which [lora] makes bf16 unless
/// train.precision is given.
void mark_planned_only(std::vector<Change>& changes, const runfile::RunConfig& base) {
  const bool bf16 = base.run.weight == DType::kBF16 || !base.given.count("train.precision");
  const auto is_planned_only = [&](const std::string& s) {
    if (s.starts_with("lora.base")) return s.find("nf4") == s.npos && (!bf16 || s.find("bf16") == s.npos);
    return s.starts_with("parallel.") || s.starts_with("plan.");
  };
  const auto is_of_ranks = [](const std::string& s) { return s.starts_with("parallel."); };
  for (Change& c : changes) {
    const auto rejected = std::ranges::count_if(c.set, is_planned_only);
    if (rejected == 0) continue;
    const bool trained =
        c.estimator == kProgramEstimator && rejected == std::ranges::count_if(c.set, is_of_ranks);
    c.sentence += trained ? "; trained by several processes" : "; planned here, but not trained";
  }
}

std::uint64_t states_of(const MemoryReport& r) {
  return r.component_bytes(Component::kWeights) + r.component_bytes(Component::kMasterWeights) +
         r.component_bytes(Component::kGradients) + r.component_bytes(Component::kOptimizerState);
}

/// Why few single changes fit: the size of the model states. `singles`: number of single changes that fit;
/// `all`: combinations included. `chosen`: counts only changes for the selected backend.
std::string why_few(std::size_t singles, std::size_t all, bool chosen, const PlanResult& v) {
  const MemoryReport& r = v.estimates.front().report;
  const std::uint64_t state = states_of(r);
  const bool trained = r.component_bytes(Component::kOptimizerState) > 0;
  const std::string what = trained ? "weights, gradients and optimizer state" : "the weights";
  const std::string reason =
      state > v.budget_bytes
          ? fmt::format("{} alone take {}", what, format_bytes(state))
          : fmt::format("{} leave {} for everything else", what, format_bytes(v.budget_bytes - state));
  static constexpr const char *kCount[] = {"No single change", "Only one change alone",
                                           "Only two changes alone"},
                              *kMakes[] = {"makes", "makes", "make"};
  assert(singles < kEnough && singles <= all);
  return fmt::format("{}{} {} it fit in {}: {}.{}", kCount[singles], chosen ? " on the selected backend" : "",
                     kMakes[singles], format_bytes(v.budget_bytes), reason,
                     all > singles ? " The smallest combinations that fit are listed below." : "");
}

}  // namespace

std::vector<Change> suggest_changes(PlanResult& v, Replanner& replan) {
  const runfile::RunConfig& c = replan.base().config;
  // Trainers of trainhost move states between tiers; frameworks keep them where they are.
  if (!c.framework.empty()) replan.set_states(states_of(v.estimates.front().report));
  const std::uint64_t states = states_of(v.estimates.front().report), all = v.estimates.front().compute_bytes;
  const MemoryReport& report = v.estimates.front().report;
  const std::uint64_t gaps = report.component_bytes(Component::kFragmentation);
  FirstGuess guess{states, all - std::min(all, states + gaps), v.budget_bytes, gaps, !c.framework.empty(),
                   report.component_bytes(Component::kGradients), report.component_bytes(Component::kWeights),
                   all - std::min(all, gaps),
                   // fp16 is the default on devices without bf16, and the device decides whether products in
                   // 8 bits have transposed copies.
                   (c.precision != "fp16" || c.given.count("train.precision") != 0) &&
                       c.given.count("plan.fp8_recipe") == 0};
  std::size_t more_fit = 0;
  std::vector<Change> out = find_single_changes(context_of(v, c, c.run), {}, {}, replan, guess, more_fit);
  // Changes that need another backend do not count: a user who selected one wants an answer for it.
  const auto on_selected_backend = [&] {
    return more_fit + static_cast<std::size_t>(std::count_if(
                          out.begin(), out.end(), [](const Change& o) { return !o.leaves_backend; }));
  };
  const std::size_t singles = on_selected_backend();
  bool enough = on_selected_backend() >= kEnough || find_combinations(v, {}, replan, out, guess);
  const bool device = v.compute_tier != Tier::kHost;
  // Widening steps: full recomputation first, then tensor ranks, then tensor ranks and pipeline stages. Each
  // is tried only while too few changes are known and no step fits, since each plans up to a dozen runs.
  const CombinationRanks tensor{most_tensor_ranks(c), 1},
      both{c.run.parallel.tensor < 8 ? tensor.tensor : 1, most_stages(c)};
  enough = enough || on_selected_backend() >= kEnough;
  if (!enough && device && c.run.parallel.tensor < 8 && tensor.tensor > 1)
    enough = find_combinations(v, tensor, replan, out, guess) || on_selected_backend() >= kEnough;
  if (!enough && device && c.run.parallel.pipeline < both.pipeline)
    find_combinations(v, both, replan, out, guess);
  // Stable, so that changes of equal cost keep the order of propose_changes().
  std::stable_sort(out.begin(), out.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.leaves_backend, order_of(a), a.cost) <
           std::tuple(b.leaves_backend, order_of(b), b.cost);
  });
  drop_same_data_ranks(out);
  if (c.framework.empty() && trains_by_program(c.model, c.run)) mark_planned_only(out, c);
  if (singles < kEnough && !out.empty())
    v.changes_note =
        why_few(singles, on_selected_backend(), on_selected_backend() < out.size() + more_fit, v);
  return out;
}

void add_changes_and_limits(PlanResult& v, Replanner& replan, const TrainerTraits& traits,
                            const PlanDetails& wanted) {
  if (v.estimates.empty()) return;
  const Estimate& decides = v.estimates.front();
  replan.set_digest(decides.report.digest);
  // First, while the placement of the run is among those that are kept.
  if (wanted.timeline) v.timeline = step_timeline(replan.base().config, traits, decides);
  if (!decides.fits && v.budget_known) {
    v.changes = suggest_changes(v, replan);
    v.looked_for_changes = true;
  }
  if (wanted.limits && v.budget_known) v.limits = find_limits(replan);
}

}  // namespace trainhost::planning
