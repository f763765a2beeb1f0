// See answers.hpp.
#include "core/run/answers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/arch/architecture.hpp"
#include "core/run/candidates.hpp"
#include "core/run/limits.hpp"
#include "core/run/timeline.hpp"

namespace trainhost::run {
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

Settings joined(const Settings& a, const Settings& b) {
  Settings all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// `c`: the run that is looked at, which may be `asked` with something in front.
Situation situation_of(const PlanView& v, const config::RunConfig& c, const RunSpec& asked) {
  Situation s{c, v.compute_tier, v.mode, v.budget_bytes, v.active_parameters ? v.active_parameters : v.parameters.total, 0, 0, devices_of(asked)};
  if (s.parameters == 0 && arch::known_family(c.model.family)) s.parameters = arch::count(arch::from_model(c.model)).active;
  s.all_parameters = v.parameters_known ? v.parameters.total : 0;
  s.activation_bytes = v.estimates.front().report.component_bytes(Component::kActivations);
  return s;
}

Change change_of(const Settings& settings, const Rung& r, Price price, const Estimate& proof) {
  Change c{as_run_file(settings), {}, r.sentence, price, r.cost, r.cost_words, proof.compute_bytes, proof.report.source};
  for (const config::Override& o : settings) c.set.push_back(o.key + "=" + o.value);
  return c;
}

/// The mildest rung that fits.
std::optional<Change> mildest(const Family& family, const Prefix& prefix, Replanner& replan) {
  std::optional<Estimate> found;
  const auto fits = [&](std::size_t i) {
    std::optional<Estimate> e = replan.plan(joined(prefix.settings, family.rungs[i].settings), family.rungs[i].other_device);
    if (!e || !e->fits) return false;
    found = std::move(e);
    return true;
  };
  std::size_t low = 0, high = family.rungs.size();
  if (family.falling) {
    if (!fits(high - 1)) return std::nullopt;
    for (--high; low < high;) {
      const std::size_t middle = low + (high - low) / 2;
      if (fits(middle)) high = middle;
      else low = middle + 1;
    }
  } else {
    while (low < high && !fits(low)) ++low;
    if (low == high) return std::nullopt;
  }
  const Rung& r = family.rungs[low];
  return change_of(joined(prefix.settings, r.settings), {{}, r.sentence + prefix.words, r.cost, r.cost_words}, family.price, *found);
}

/// Ranks that share more than others of the same number say nothing new.
void drop_dominated(std::vector<Change>& changes) {
  const auto ranks = [](const Change& c) { return c.set.empty() || !c.set.front().starts_with("parallel.data=") ? std::string() : c.set.front(); };
  std::vector<std::string> seen;
  std::erase_if(changes, [&](const Change& c) {
    const std::string r = ranks(c);
    if (r.empty()) return false;
    if (std::find(seen.begin(), seen.end(), r) != seen.end()) return true;
    seen.push_back(r);
    return false;
  });
}

std::vector<Change> look(const Situation& s, const Prefix& prefix, Replanner& replan) {
  std::vector<Change> out;
  for (const Family& f : candidates(s))
    if (std::optional<Change> c = mildest(f, prefix, replan)) out.push_back(std::move(*c));
  return out;
}

/// What is given up first, together: for runs that no single change saves. `tensor`: on eight devices as well.
Prefix smallest_step(const RunSpec& r, bool tensor) {
  Prefix p;
  if (tensor) {
    p.settings = {{"parallel.tensor", "8"}};
    if (r.mode != RunMode::kInference) p.settings.push_back({"parallel.sequence", "true"});
    p.words = ", eight ways tensor parallel";
  }
  if (r.mode == RunMode::kInference) return p;
  if (r.recompute != Recompute::kFull) p.settings.push_back({"train.recompute", "full"}), p.words += ", with full recomputation";
  if (r.micro_batch > 1) {
    p.settings.push_back({"train.micro_batch", "1"});
    p.settings.push_back({"train.grad_accum", std::to_string(std::uint64_t{r.accumulate} * r.micro_batch)});
    p.words += r.recompute == Recompute::kFull ? ", with one sequence at a time" : " and one sequence at a time";
  }
  return p;
}

/// The run with the prefix applied, for candidates that look at it.
config::RunConfig smallest_run(config::RunConfig c, bool tensor) {
  if (tensor) c.run.tensor_parallel = 8, c.run.layout.sequence_parallel = true;
  if (c.run.mode == RunMode::kInference) return c;
  const std::uint64_t sequences = std::uint64_t{c.run.accumulate} * c.run.micro_batch;
  c.run.accumulate = static_cast<std::uint32_t>(std::min<std::uint64_t>(sequences, UINT32_MAX)), c.run.micro_batch = 1;
  c.run.recompute = Recompute::kFull;
  return c;
}

/// The prefix alone, and every candidate behind it that is not known without it.
void look_further(const PlanView& v, bool tensor, Replanner& replan, std::vector<Change>& out) {
  const config::RunConfig& c = replan.base().config;
  const Prefix prefix = smallest_step(c.run, tensor);
  if (prefix.settings.empty()) return;
  const config::RunConfig small = smallest_run(c, tensor);
  const std::string devices = devices_words(devices_of(small.run), devices_of(c.run));
  if (std::optional<Estimate> e = replan.plan(prefix.settings); e && e->fits) {
    const bool milder = std::any_of(out.begin(), out.end(), [](const Change& o) { return o.price <= Price::kTime; });
    if (tensor || !milder)
      out.push_back(change_of(prefix.settings, {{}, prefix.words.substr(prefix.words.starts_with(", with ") ? 7 : 2), tensor ? 8.34 : 0.34, tensor ? devices + " and a third more time" : "about a third more time"},
                              tensor ? Price::kHardware : Price::kTime, *e));
    if (out.size() >= kEnough) return;  // what follows the prefix would change nothing
  }
  for (Change& more : look(situation_of(v, small, c.run), prefix, replan)) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const Change& o) { return o.set.back() == more.set.back(); });
    if (known) continue;
    if (more.price != Price::kResult) more.cost += 0.5;  // behind those that need no recomputation
    if (tensor && more.cost_words.find("devices instead of") == std::string::npos) {
      more.cost_words += ", " + devices;
      if (more.price != Price::kResult) more.price = Price::kHardware, more.cost += double(devices_of(small.run));
    }
    out.push_back(std::move(more));
  }
}

}  // namespace

std::vector<Change> find_changes(const PlanView& v, Replanner& replan) {
  const config::RunConfig& c = replan.base().config;
  std::vector<Change> out = look(situation_of(v, c, c.run), {}, replan);
  if (out.size() < kEnough) look_further(v, false, replan, out);
  if (out.size() < kEnough && v.compute_tier != Tier::kHost && c.run.tensor_parallel < 8) look_further(v, true, replan, out);
  std::stable_sort(out.begin(), out.end(), [](const Change& a, const Change& b) { return a.price != b.price ? a.price < b.price : a.cost < b.cost; });
  drop_dominated(out);
  return out;
}

void add_answers(PlanView& v, Replanner& replan, const Profile& profile, const Answers& wanted) {
  if (v.estimates.empty()) return;
  const Estimate& decides = v.estimates.front();
  if (!decides.fits && v.budget_known) v.changes = find_changes(v, replan);
  if (wanted.limits && v.budget_known) v.limits = find_limits(replan);
  if (wanted.timeline) v.timeline = step_timeline(replan.base().config, profile, decides);
}

}  // namespace trainhost::run
