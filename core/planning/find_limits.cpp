// See find_limits.hpp. Memory is close to a straight line in each quantity, so the next value to plan is
// found by interpolation; about eight plans replace the twenty of a bisection over 10^6 values.
#include "core/planning/find_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>

#include "core/base/text.hpp"
#include "core/planning/framework_layouts.hpp"

namespace trainhost::planning {
namespace {

/// The x at which the line through two plans meets the budget, strictly between them; the middle where the
/// two plans do not define a line.
std::uint64_t interpolate(std::uint64_t low, const Estimate& at, std::uint64_t high, const Estimate* beyond,
                          std::uint64_t budget) {
  assert(low + 1 < high);
  if (!beyond || beyond->compute_bytes <= at.compute_bytes || at.compute_bytes > budget)
    return low + (high - low) / 2;
  const double slope = double(beyond->compute_bytes - at.compute_bytes) / double(high - low);
  const double steps = std::min(double(budget - at.compute_bytes) / slope, double(high - low));
  // Never an end: both ends are planned already, and the interval must shrink.
  return std::clamp(low + static_cast<std::uint64_t>(steps), low + 1, high - 1);
}

/// The first x past the budget on the line through two plans that fit, (x0, y0) and (x1, y1); at most `most`.
/// One beyond the predicted limit, so that the next plan most likely does not fit and encloses the limit.
std::uint64_t extrapolate(std::uint64_t x0, std::uint64_t y0, std::uint64_t x1, std::uint64_t y1,
                          std::uint64_t budget, std::uint64_t most) {
  // No line: memory does not grow between the two plans. Doubling then finds an end in logarithmic time.
  if (x1 >= most || y1 <= y0 || y1 > budget) return std::min(most, x1 * 2);
  const double more = double(budget - y1) * double(x1 - x0) / double(y1 - y0);
  return static_cast<std::uint64_t>(std::clamp(double(x1) + more + 1, double(x1) + 1, double(most)));
}

/// Bytes at the peak of the entries of the compute tier, by component and name.
/// Entries of equal component and name are added up: an estimator may list one entry per layer.
std::map<std::pair<Component, std::string>, std::uint64_t> entry_bytes(const Estimate& e, Tier tier) {
  std::map<std::pair<Component, std::string>, std::uint64_t> out;
  for (const MemoryEntry& n : e.report.entries)
    if (tier == Tier::kHost || n.tier == tier) out[{n.component, n.name}] += n.at_peak();
  return out;
}

std::uint64_t budget_of(Replanner& replan) { return replan.base().budgets.compute.bytes; }

/// `set` writes value x into the run. No text of settings is parsed, so a plan of this kind is cheap.
Limit find_limit(const char* what, Replanner& replan, std::uint64_t most,
                 const std::function<void(runfile::RunConfig&, std::uint64_t)>& set) {
  const auto plan = [&](std::uint64_t x) {
    runfile::RunConfig c = replan.base().config;
    set(c, x);
    return replan.plan(c);
  };
  const LargestFit m = largest_that_fits(most, budget_of(replan), plan);
  const Tier tier = replan.base().budgets.tier;
  // The largest value of the key fits, so there is nothing beyond it.
  if (m.value == most) return {what, most, "nothing: this is the maximum of the key"};
  return {what, m.value,
          m.beyond ? exceeding_component(m.at ? &*m.at : nullptr, *m.beyond, tier)
                   : "a larger value is not a valid run"};
}

struct RankSplit {
  std::uint32_t tensor = 1, data = 1, pipeline = 1;
};

/// The experts divided among all data ranks. No estimator plans this for a dense model.
runfile::RunConfig with_expert_parallelism(runfile::RunConfig c) {
  c.run.parallel.expert = c.run.parallel.data;
  return c;
}

/// A run whose state is sharded over data ranks (FSDP, ZeRO) and that has no other parallelism, or whose
/// framework has none.
bool has_data_ranks_only(const runfile::RunConfig& c) {
  const Parallelism& p = c.run.parallel;
  return (p.zero > 0 || !divides_layers(c.framework)) && p.tensor == 1 && p.pipeline == 1 && p.context == 1;
}

/// Every split of n devices into tensor x data x pipeline ranks (powers of two), largest tensor size first.
/// Tensor first, since it keeps the number of sequences per step; at most 8, the devices of a node. A run
/// that only shards over data ranks keeps to that: its software may know nothing else.
std::vector<RankSplit> rank_splits(std::uint32_t n, const runfile::RunConfig& c) {
  if (has_data_ranks_only(c)) return {{1, n, 1}};
  std::vector<RankSplit> out;
  for (std::uint32_t pipeline = 1; pipeline <= n && pipeline <= c.model.layers; pipeline *= 2)
    for (std::uint32_t tensor = std::min(8u, n / pipeline); tensor >= 1; tensor /= 2)
      out.push_back({tensor, n / pipeline / tensor, pipeline});
  return out;
}

/// All other kinds of parallelism are reset: the split describes the whole layout. ZeRO 3, because the
/// question is the least memory per device, or the highest stage of the framework; a run that only shards
/// over data ranks keeps its stage.
runfile::RunConfig with_ranks(runfile::RunConfig c, const RankSplit& r) {
  const std::uint32_t zero = c.run.parallel.zero > 0 && has_data_ranks_only(c)
                                 ? c.run.parallel.zero
                                 : zero_stages(c.framework).back();
  c.run.parallel.tensor = r.tensor, c.run.parallel.data = r.data, c.run.parallel.pipeline = r.pipeline;
  c.run.parallel.context = c.run.parallel.expert = c.run.parallel.virtual_stages = 1;
  c.run.parallel.expert_tensor = 0;
  const bool trains = c.run.mode != RunMode::kInference;
  c.run.parallel.sequence = trains && r.tensor > 1;
  c.run.parallel.zero = trains && r.data > 1 ? zero : 0;
  return c;
}

std::string describe_ranks(const RankSplit& r, const RunSpec& run) {
  std::vector<std::string> parts;
  if (r.tensor > 1)
    parts.push_back(fmt::format("parallel.tensor = {}{}", r.tensor,
                                run.parallel.sequence ? ", parallel.sequence = true" : ""));
  if (r.data > 1)
    parts.push_back(
        fmt::format("parallel.data = {}{}", r.data,
                    run.parallel.zero ? fmt::format(", parallel.zero = {}", run.parallel.zero) : ""));
  if (r.pipeline > 1) parts.push_back(fmt::format("parallel.pipeline = {}", r.pipeline));
  return parts.empty() ? "on one device" : fmt::format("with {}", fmt::join(parts, ", "));
}

std::optional<Limit> fewest_devices(Replanner& replan) {
  constexpr std::uint32_t kMost = 4096;
  const runfile::RunConfig& base = replan.base().config;
  const Tier tier = replan.base().budgets.tier;
  if (tier == Tier::kHost || budget_of(replan) == 0) return std::nullopt;
  std::optional<Estimate> closest;  // on the largest number of devices that do not fit: the smallest plan
  // Start from one device: the layout of this run may need more than one device does.
  for (std::uint32_t n = 1; n <= kMost; n *= 2) {
    std::optional<Estimate> best;
    for (const RankSplit& r : rank_splits(n, base)) {
      const runfile::RunConfig c = with_ranks(base, r);
      std::optional<Estimate> e = replan.plan(c);
      if (!e) continue;
      std::string also;
      // Experts are tried only where the plan without them does not fit, since it costs a second plan.
      if (!e->fits && r.data > 1)
        if (std::optional<Estimate> shared = replan.plan(with_expert_parallelism(c));
            shared && shared->compute_bytes < e->compute_bytes)
          e = std::move(shared), also = fmt::format(", parallel.expert = {}", r.data);
      if (e->fits) {
        std::string binds = describe_ranks(r, c.run) + also;
        if (closest)
          binds += fmt::format("; {}, because of {}",
                               n == 2 ? "1 is too few" : fmt::format("{} are too few", n / 2),
                               exceeding_component(nullptr, *closest, tier));
        return Limit{"fewest devices", n, binds};
      }
      if (!best || e->compute_bytes < best->compute_bytes) best = std::move(e);
    }
    // Memory per device no longer falls; doubling the devices further cannot help.
    if (n > 1 && (!best || (closest && best->compute_bytes >= closest->compute_bytes)))
      break;  // more devices do not reduce memory
    closest = std::move(best);
  }
  if (!closest) return std::nullopt;
  return Limit{"fewest devices", 0, exceeding_component(nullptr, *closest, tier)};
}

}  // namespace

LargestFit largest_that_fits(std::uint64_t most, std::uint64_t budget,
                             const std::function<std::optional<Estimate>(std::uint64_t)>& plan) {
  LargestFit m;
  std::optional<Estimate> first = plan(1);
  if (!first || !first->fits) {
    m.beyond = std::move(first);
    return m;
  }
  m.value = 1, m.at = std::move(first);
  std::uint64_t high = 0;  // 0: every value tried so far fits
  std::uint64_t next = std::min<std::uint64_t>(2, most);
  assert(m.at && m.at->fits);
  for (int round = 0; m.value < most && (high == 0 || high > m.value + 1); ++round) {
    const std::uint64_t before = m.value, bytes = m.at->compute_bytes;
    // Invariant: m.value fits, and high (if not 0) does not. Each round plans a value between or beyond them.
    std::optional<Estimate> e = plan(next);
    if (e && e->fits)
      m.value = next, m.at = std::move(e);
    else
      high = next, m.beyond = std::move(e);
    if (high == 0)
      next = extrapolate(before, bytes, m.value, m.at->compute_bytes, budget, most);
    else if (round % 3 == 2)  // bisect now and then: interpolation converges slowly on a curve
      next = m.value + (high - m.value) / 2;
    else if (high > m.value + 1)
      next = interpolate(m.value, *m.at, high, m.beyond ? &*m.beyond : nullptr, budget);
  }
  assert(high == 0 || high == m.value + 1);
  return m;
}

/// Growth decides, not size: the largest component of all may be constant and is then not what exceeded
/// memory.
std::string exceeding_component(const Estimate* fits, const Estimate& beyond, Tier tier) {
  const auto before = fits ? entry_bytes(*fits, tier) : decltype(entry_bytes(beyond, tier)){};
  const auto after = entry_bytes(beyond, tier);
  const std::pair<const std::pair<Component, std::string>, std::uint64_t>* most = nullptr;
  for (const auto& entry : after) {
    const auto previous = before.find(entry.first);
    const bool grew = previous == before.end() ? entry.second > 0 : entry.second > previous->second;
    if (grew && entry.first.first != Component::kFragmentation && (!most || entry.second > most->second))
      most = &entry;
  }
  if (!most) return "no single component";
  const std::string component(name(most->first.first));
  return fmt::format("{}{}, {}", component, most->first.second == component ? "" : ": " + most->first.second,
                     format_bytes(most->second));
}

std::vector<Limit> find_limits(Replanner& replan) {
  std::vector<Limit> out;
  const ResolvedRun& base = replan.base();
  if (!base.budgets.compute.known) return out;
  const RunSpec& r = base.config.run;
  // Tokens of a micro-batch are counted in 32 bits, which bounds both quantities.
  out.push_back(find_limit(
      "largest train.micro_batch", replan, std::min<std::uint64_t>(1048576, INT32_MAX / r.seq_len),
      [](runfile::RunConfig& c, std::uint64_t x) { c.run.micro_batch = static_cast<std::uint32_t>(x); }));
  const std::uint32_t step = r.parallel.context;  // the sequence length must be a multiple of the CP ranks
  // Some losses that predict the next token refuse a single one.
  const std::uint64_t least = r.mode == RunMode::kInference ? 1 : 2;
  out.push_back(find_limit("longest data.seq_len", replan,
                           std::min<std::uint64_t>(16777216, INT32_MAX / r.micro_batch) / step,
                           [step, least](runfile::RunConfig& c, std::uint64_t x) {
                             c.run.seq_len = static_cast<std::uint32_t>(std::max(x * step, least));
                           }));
  out.back().value *= step;
  if (std::optional<Limit> d = fewest_devices(replan)) out.push_back(std::move(*d));
  return out;
}

}  // namespace trainhost::planning
