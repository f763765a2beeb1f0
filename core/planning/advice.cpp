// See advice.hpp.
#include "core/planning/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/planning/change_candidates.hpp"
#include "core/planning/largest_that_fits.hpp"
#include "core/planning/live_timeline.hpp"

namespace trainhost::planning {
namespace {

using report::Change;
using report::Estimate;
using report::PlanView;
using report::Price;

constexpr std::size_t kEnough = 3;

/// What a second look begins with, and how it is said.
struct Prefix {
  Settings settings;
  std::string words;
};

/// A key once, as a run file takes it: what is set later stands.
Settings joined(const Settings& a, const Settings& b) {
  Settings all = a;
  std::erase_if(all, [&](const runfile::Override& x) {
    return std::any_of(b.begin(), b.end(), [&](const runfile::Override& y) { return x.key == y.key; });
  });
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// `c`: the run that is looked at, which may be `asked` with something in front.
Situation situation_of(const PlanView& v, const runfile::RunConfig& c, const RunSpec& asked) {
  Situation s{c,
              v.compute_tier,
              v.mode,
              v.budget_bytes,
              v.active_parameters ? v.active_parameters : v.parameters.total,
              0,
              0,
              devices_of(asked)};
  if (s.parameters == 0 && model::known_family(c.model.family))
    s.parameters = model::count(model::from_model(c.model)).active;
  s.all_parameters = v.parameters_known ? v.parameters.total : 0;
  s.activation_bytes = v.estimates.front().report.component_bytes(Component::kActivations);
  return s;
}

std::vector<std::string> words_of(const Settings& settings) {
  std::vector<std::string> out;
  for (const runfile::Override& o : settings) out.push_back(o.key + "=" + o.value);
  return out;
}

Change change_of(const Settings& settings, const Rung& r, Price price, const Estimate& proof) {
  Change c{as_run_file(settings),
           {},
           r.sentence,
           price,
           r.cost,
           r.cost_words,
           proof.compute_bytes,
           proof.report.source,
           r.leaves_backend};
  c.set = words_of(settings);
  return c;
}

/// The mildest rung that fits; nothing where that is one of `known`, which fit without the prefix and so need
/// no plan with it.
std::optional<Change> mildest(const Family& family, const Prefix& prefix, const std::vector<Change>& known,
                              Replanner& replan) {
  std::optional<Estimate> found;
  const auto fits = [&](std::size_t i) {
    const std::vector<std::string> set = words_of(family.rungs[i].settings);
    if (std::any_of(known.begin(), known.end(), [&](const Change& k) { return k.set == set; }))
      return found.reset(), true;
    std::optional<Estimate> e =
        replan.plan(joined(prefix.settings, family.rungs[i].settings), family.rungs[i].other_device);
    if (!e || !e->fits) return false;
    found = std::move(e);
    return true;
  };
  std::size_t low = 0, high = family.rungs.size();
  if (family.falling) {
    if (!fits(high - 1)) return std::nullopt;
    for (--high; low < high;) {
      const std::size_t middle = low + (high - low) / 2;
      if (fits(middle))
        high = middle;
      else
        low = middle + 1;
    }
  } else {
    while (low < high && !fits(low)) ++low;
    if (low == high) return std::nullopt;
  }
  if (!found) return std::nullopt;
  const Rung& r = family.rungs[low];
  return change_of(joined(prefix.settings, r.settings),
                   {{}, r.sentence + prefix.words, r.cost, r.cost_words, r.other_device, r.leaves_backend},
                   family.price, *found);
}

/// Ranks that share more than others of the same number say nothing new.
void drop_dominated(std::vector<Change>& changes) {
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

std::vector<Change> look(const Situation& s, const Prefix& prefix, const std::vector<Change>& known,
                         Replanner& replan) {
  std::vector<Change> out;
  for (const Family& f : candidates(s))
    if (std::optional<Change> c = mildest(f, prefix, known, replan)) out.push_back(std::move(*c));
  return out;
}

/// The ranks that are put in front: eight-way tensor parallel where the heads divide, and as many pipeline
/// stages as layers allow.
struct Ranks {
  std::uint32_t tensor = 1, pipeline = 1;  // 1: left as asked
};

std::uint32_t tensor_ways(const runfile::RunConfig& c) {
  std::uint32_t ways = 8;
  while (ways > 1 && c.model.heads % ways) ways /= 2;
  return ways;
}

std::uint32_t most_stages(const runfile::RunConfig& c) {
  std::uint32_t stages = 1;
  while (std::uint64_t{stages} * 2 <= c.model.layers) stages *= 2;
  return stages;
}

/// What is given up first, together: for runs that no single change saves.
Prefix smallest_step(const RunSpec& r, const Ranks& ranks) {
  Prefix p;
  if (ranks.tensor > 1) {
    p.settings = {{"parallel.tensor", std::to_string(ranks.tensor)}};
    if (r.mode != RunMode::kInference) p.settings.push_back({"parallel.sequence", "true"});
    p.words = fmt::format(", {}-way tensor parallel", ranks.tensor);
  }
  if (ranks.pipeline > 1) {
    p.settings.push_back({"parallel.pipeline", std::to_string(ranks.pipeline)});
    p.words += fmt::format("{} {} pipeline stages", ranks.tensor > 1 ? " in" : ", in", ranks.pipeline);
  }
  if (r.mode == RunMode::kInference) return p;
  if (r.recompute != Recompute::kFull)
    p.settings.push_back({"train.recompute", "full"}), p.words += ", with full recomputation";
  if (r.micro_batch > 1) {
    p.settings.push_back({"train.micro_batch", "1"});
    p.settings.push_back({"train.grad_accum", std::to_string(std::uint64_t{r.accumulate} * r.micro_batch)});
    p.words +=
        r.recompute == Recompute::kFull ? ", with one sequence at a time" : " and one sequence at a time";
  }
  return p;
}

/// The run with the prefix applied, for candidates that look at it.
runfile::RunConfig smallest_run(runfile::RunConfig c, const Ranks& ranks) {
  if (ranks.tensor > 1) c.run.parallel.tensor = ranks.tensor, c.run.parallel.sequence = true;
  if (ranks.pipeline > 1) c.run.parallel.pipeline = ranks.pipeline, c.run.parallel.virtual_stages = 1;
  if (c.run.mode == RunMode::kInference) return c;
  const std::uint64_t sequences = std::uint64_t{c.run.accumulate} * c.run.micro_batch;
  c.run.accumulate = static_cast<std::uint32_t>(std::min<std::uint64_t>(sequences, UINT32_MAX)),
  c.run.micro_batch = 1;
  c.run.recompute = Recompute::kFull;
  return c;
}

/// The prefix alone, and every candidate behind it that is not known without it.
void look_further(const PlanView& v, const Ranks& ranks, Replanner& replan, std::vector<Change>& out) {
  const runfile::RunConfig& c = replan.base().config;
  const Prefix prefix = smallest_step(c.run, ranks);
  if (prefix.settings.empty()) return;
  const runfile::RunConfig small = smallest_run(c, ranks);
  const bool shared = ranks.tensor > 1 || ranks.pipeline > 1;
  const double n = double(devices_of(small.run));
  const std::string devices = devices_words(devices_of(small.run), devices_of(c.run));
  if (std::optional<Estimate> e = replan.plan(prefix.settings); e && e->fits) {
    const bool milder =
        std::any_of(out.begin(), out.end(), [](const Change& o) { return o.price <= Price::kTime; });
    if (shared || !milder)
      out.push_back(change_of(prefix.settings,
                              {{},
                               prefix.words.substr(prefix.words.starts_with(", with ") ? 7 : 2),
                               shared ? n + 0.34 : 0.34,
                               shared ? devices + " and a third more time" : "about a third more time"},
                              shared ? Price::kHardware : Price::kTime, *e));
    if (out.size() >= kEnough) return;  // what follows the prefix would change nothing
  }
  for (Change& more : look(situation_of(v, small, c.run), prefix, out, replan)) {
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const Change& o) { return o.set.back() == more.set.back(); });
    if (known) continue;
    if (more.price != Price::kResult) more.cost += 0.5;  // behind those that need no recomputation
    if (shared && more.cost_words.find("devices instead of") == std::string::npos) {
      more.cost_words += ", " + devices;
      if (more.price != Price::kResult) more.price = Price::kHardware, more.cost += n;
    }
    out.push_back(std::move(more));
  }
}

/// Why so few: what no single change can make small enough.
/// `chosen`: of the backend that was chosen by name, others stand below.
std::string why_few(std::size_t singles, std::size_t all, bool chosen, const PlanView& v) {
  const MemoryReport& r = v.estimates.front().report;
  const std::uint64_t state =
      r.component_bytes(Component::kWeights) + r.component_bytes(Component::kMasterWeights) +
      r.component_bytes(Component::kGradients) + r.component_bytes(Component::kOptimizerState);
  const bool trained = r.component_bytes(Component::kOptimizerState) > 0;
  const std::string what = trained ? "weights, gradients and optimizer state" : "the weights";
  const std::string reason =
      state > v.budget_bytes
          ? fmt::format("{} alone are {}", what, format_bytes(state))
          : fmt::format("{} leave {} for everything else", what, format_bytes(v.budget_bytes - state));
  static constexpr const char *kCount[] = {"No single change", "Only one single change",
                                           "Only two single changes"},
                              *kMakes[] = {"makes", "makes", "make"};
  return fmt::format("{}{} {} it fit in {}: {}.{}", kCount[singles], chosen ? " on the chosen backend" : "",
                     kMakes[singles], format_bytes(v.budget_bytes), reason,
                     all > singles ? " The smallest combinations that do stand below." : "");
}

}  // namespace

std::vector<Change> find_changes(PlanView& v, Replanner& replan) {
  const runfile::RunConfig& c = replan.base().config;
  std::vector<Change> out = look(situation_of(v, c, c.run), {}, {}, replan);
  const auto keeping = [&] {
    return static_cast<std::size_t>(
        std::count_if(out.begin(), out.end(), [](const Change& o) { return !o.leaves_backend; }));
  };
  const std::size_t singles = keeping();
  if (keeping() < kEnough) look_further(v, {}, replan, out);
  const bool device = v.compute_tier != Tier::kHost;
  const Ranks tensor{tensor_ways(c), 1}, both{c.run.parallel.tensor < 8 ? tensor.tensor : 1, most_stages(c)};
  if (keeping() < kEnough && device && c.run.parallel.tensor < 8 && tensor.tensor > 1)
    look_further(v, tensor, replan, out);
  if (keeping() < kEnough && device && c.run.parallel.pipeline < both.pipeline)
    look_further(v, both, replan, out);
  std::stable_sort(out.begin(), out.end(), [](const Change& a, const Change& b) {
    return std::tuple(a.leaves_backend, a.price, a.cost) < std::tuple(b.leaves_backend, b.price, b.cost);
  });
  drop_dominated(out);
  if (singles < kEnough && !out.empty())
    v.changes_note = why_few(singles, keeping(), keeping() < out.size(), v);
  return out;
}

void add_answers(PlanView& v, Replanner& replan, const TrainerTraits& traits, const Answers& wanted) {
  if (v.estimates.empty()) return;
  const Estimate& decides = v.estimates.front();
  if (!decides.fits && v.budget_known) v.changes = find_changes(v, replan);
  if (wanted.limits && v.budget_known) v.limits = find_limits(replan);
  if (wanted.timeline) v.timeline = step_timeline(replan.base().config, traits, decides);
}

}  // namespace trainhost::planning
