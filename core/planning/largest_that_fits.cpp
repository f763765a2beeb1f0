// See largest_that_fits.hpp.
#include "core/planning/largest_that_fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/text.hpp"

namespace trainhost::planning {
namespace {

using report::Estimate;
using report::Limit;

/// Where the line through two plans meets the budget, strictly between them; the middle where they say
/// nothing.
std::uint64_t guess(std::uint64_t low, const Estimate& at, std::uint64_t high, const Estimate* beyond,
                    std::uint64_t budget) {
  if (!beyond || beyond->compute_bytes <= at.compute_bytes || at.compute_bytes > budget)
    return low + (high - low) / 2;
  const double slope = double(beyond->compute_bytes - at.compute_bytes) / double(high - low);
  const double steps = std::min(double(budget - at.compute_bytes) / slope, double(high - low));
  return std::clamp(low + static_cast<std::uint64_t>(steps), low + 1, high - 1);
}

/// The first number past the budget by the line through two plans that fit, at (x0, y0) and (x1, y1); at most
/// `most`.
std::uint64_t beyond_the_line(std::uint64_t x0, std::uint64_t y0, std::uint64_t x1, std::uint64_t y1,
                              std::uint64_t budget, std::uint64_t most) {
  if (x1 >= most || y1 <= y0 || y1 > budget) return std::min(most, x1 * 2);
  const double more = double(budget - y1) * double(x1 - x0) / double(y1 - y0);
  return static_cast<std::uint64_t>(std::clamp(double(x1) + more + 1, double(x1) + 1, double(most)));
}

/// Leaves of the compute tier by what they are, with their bytes at the peak.
std::map<std::pair<Component, std::string>, std::uint64_t> leaves(const Estimate& e, Tier tier) {
  std::map<std::pair<Component, std::string>, std::uint64_t> out;
  for (const MemoryEntry& n : e.report.entries)
    if (tier == Tier::kHost || n.tier == tier) out[{n.component, n.name}] += n.at_peak();
  return out;
}

std::uint64_t budget_of(Replanner& replan) { return replan.base().budgets.compute.bytes; }

Limit limit(const char* what, Replanner& replan, std::uint64_t most,
            const std::function<void(runfile::RunConfig&, std::uint64_t)>& set) {
  const auto plan = [&](std::uint64_t x) {
    runfile::RunConfig c = replan.base().config;
    set(c, x);
    return replan.plan(c);
  };
  const Most m = largest_that_fits(most, budget_of(replan), plan);
  const Tier tier = replan.base().budgets.tier;
  if (m.value == most) return {what, most, "nothing before the most that the key takes"};
  return {what, m.value,
          m.beyond ? what_binds(m.at ? &*m.at : nullptr, *m.beyond, tier) : "no run beyond it"};
}

struct RankGrowth {
  std::uint32_t tensor = 1, data = 1, pipeline = 1;
};

/// An expert to each of as many data ranks as there are, where the model has experts; no estimator plans it
/// for a dense one.
runfile::RunConfig with_experts_shared(runfile::RunConfig c) {
  c.run.parallel.expert = c.run.parallel.data;
  return c;
}

/// Every way to write n as tensor x data x pipeline in powers of two, matrices shared first, then state, then
/// layers.
std::vector<RankGrowth> ways(std::uint32_t n, const runfile::RunConfig& c) {
  std::vector<RankGrowth> out;
  for (std::uint32_t pipeline = 1; pipeline <= n && pipeline <= c.model.layers; pipeline *= 2)
    for (std::uint32_t tensor = std::min(8u, n / pipeline); tensor >= 1; tensor /= 2)
      out.push_back({tensor, n / pipeline / tensor, pipeline});
  return out;
}

runfile::RunConfig spread(runfile::RunConfig c, const RankGrowth& r) {
  c.run.parallel.tensor = r.tensor, c.run.parallel.data = r.data, c.run.parallel.pipeline = r.pipeline;
  c.run.parallel.context = c.run.parallel.expert = c.run.parallel.virtual_stages = 1;
  const bool trains = c.run.mode != RunMode::kInference;
  c.run.parallel.sequence = trains && r.tensor > 1;
  c.run.parallel.zero = trains && r.data > 1 ? 3 : 0;
  return c;
}

std::string words(const RankGrowth& r, bool trains) {
  std::vector<std::string> parts;
  if (r.tensor > 1)
    parts.push_back(
        fmt::format("parallel.tensor = {}{}", r.tensor, trains ? ", parallel.sequence = true" : ""));
  if (r.data > 1)
    parts.push_back(fmt::format("parallel.data = {}{}", r.data, trains ? ", parallel.zero = 3" : ""));
  if (r.pipeline > 1) parts.push_back(fmt::format("parallel.pipeline = {}", r.pipeline));
  return parts.empty() ? "this run on one device" : fmt::format("with {}", fmt::join(parts, ", "));
}

std::optional<Limit> fewest_devices(Replanner& replan) {
  constexpr std::uint32_t kMost = 4096;
  const runfile::RunConfig& base = replan.base().config;
  const Tier tier = replan.base().budgets.tier;
  const bool trains = base.run.mode != RunMode::kInference;
  if (tier == Tier::kHost || budget_of(replan) == 0) return std::nullopt;
  std::optional<Estimate> closest;  // of those that do not fit, on the most devices that are too few
  // One device may do with less than this run's layout needs; no layout of n needs less than an n-th of what
  // one device does.
  for (std::uint32_t n = 1; n <= kMost; n *= 2) {
    std::optional<Estimate> best;
    for (const RankGrowth& r : ways(n, base)) {
      const runfile::RunConfig c = spread(base, r);
      std::optional<Estimate> e = replan.plan(c);
      if (!e) continue;
      std::string also;
      if (!e->fits && r.data > 1)
        if (std::optional<Estimate> shared = replan.plan(with_experts_shared(c));
            shared && shared->compute_bytes < e->compute_bytes)
          e = std::move(shared), also = fmt::format(", parallel.expert = {}", r.data);
      if (e->fits) {
        std::string binds = words(r, trains) + also;
        if (closest)
          binds += fmt::format("; {} too few, where most of a device is {}",
                               n == 2 ? "1 is" : fmt::format("{} are", n / 2),
                               what_binds(nullptr, *closest, tier));
        return Limit{"fewest devices", n, binds};
      }
      if (!best || e->compute_bytes < best->compute_bytes) best = std::move(e);
    }
    if (n > 1 && (!best || (closest && best->compute_bytes >= closest->compute_bytes)))
      break;  // more devices do not help
    closest = std::move(best);
  }
  if (!closest) return std::nullopt;
  return Limit{"fewest devices", 0, what_binds(nullptr, *closest, tier)};
}

}  // namespace

Most largest_that_fits(std::uint64_t most, std::uint64_t budget,
                       const std::function<std::optional<Estimate>(std::uint64_t)>& plan) {
  Most m;
  std::optional<Estimate> first = plan(1);
  if (!first || !first->fits) {
    m.beyond = std::move(first);
    return m;
  }
  m.value = 1, m.at = std::move(first);
  std::uint64_t high = 0;  // 0: nothing found yet that does not fit
  std::uint64_t next = std::min<std::uint64_t>(2, most);
  for (int turn = 0; m.value < most && (high == 0 || high > m.value + 1); ++turn) {
    const std::uint64_t before = m.value, bytes = m.at->compute_bytes;
    std::optional<Estimate> e = plan(next);
    if (e && e->fits)
      m.value = next, m.at = std::move(e);
    else
      high = next, m.beyond = std::move(e);
    if (high == 0)
      next = beyond_the_line(before, bytes, m.value, m.at->compute_bytes, budget, most);
    else if (turn % 3 == 2)  // a curve must not make the steps small
      next = m.value + (high - m.value) / 2;
    else if (high > m.value + 1)
      next = guess(m.value, *m.at, high, m.beyond ? &*m.beyond : nullptr, budget);
  }
  return m;
}

std::string what_binds(const Estimate* fits, const Estimate& beyond, Tier tier) {
  const auto before = fits ? leaves(*fits, tier) : decltype(leaves(beyond, tier)){};
  const auto after = leaves(beyond, tier);
  const std::pair<const std::pair<Component, std::string>, std::uint64_t>* most = nullptr;
  for (const auto& leaf : after) {
    const auto was = before.find(leaf.first);
    const bool grew = was == before.end() ? leaf.second > 0 : leaf.second > was->second;
    if (grew && leaf.first.first != Component::kFragmentation && (!most || leaf.second > most->second))
      most = &leaf;
  }
  if (!most) return "no single tensor";
  const std::string component(name(most->first.first));
  return fmt::format("{}{}, {}", component, most->first.second == component ? "" : ": " + most->first.second,
                     format_bytes(most->second));
}

std::vector<Limit> find_limits(Replanner& replan) {
  std::vector<Limit> out;
  const Resolved& base = replan.base();
  if (!base.budgets.compute.known) return out;
  const RunSpec& r = base.config.run;
  out.push_back(limit(
      "largest train.micro_batch", replan, std::min<std::uint64_t>(1048576, INT32_MAX / r.seq_len),
      [](runfile::RunConfig& c, std::uint64_t x) { c.run.micro_batch = static_cast<std::uint32_t>(x); }));
  const std::uint32_t step = r.parallel.context;  // ranks share a sequence evenly
  out.push_back(limit("longest data.seq_len", replan,
                      std::min<std::uint64_t>(16777216, INT32_MAX / r.micro_batch) / step,
                      [step](runfile::RunConfig& c, std::uint64_t x) {
                        c.run.seq_len = static_cast<std::uint32_t>(x * step);
                      }));
  out.back().value *= step;
  if (std::optional<Limit> d = fewest_devices(replan)) out.push_back(std::move(*d));
  return out;
}

}  // namespace trainhost::planning
