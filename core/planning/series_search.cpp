// See series_search.hpp.
#include "core/planning/series_search.hpp"

#include <algorithm>
#include <cassert>

namespace trainhost::planning {

Settings merge_settings(const Settings& a, const Settings& b) {
  Settings all = a;
  std::erase_if(all, [&](const runfile::Override& x) {
    return std::any_of(b.begin(), b.end(), [&](const runfile::Override& y) { return x.key == y.key; });
  });
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<std::string> set_arguments(const Settings& settings) {
  std::vector<std::string> out;
  for (const runfile::Override& o : settings) out.push_back(o.key + "=" + o.value);
  return out;
}

Change make_change(const Settings& settings, const CandidateChange& r, Price price, const Estimate& proof) {
  Change c{format_as_run_file(settings),
           {},
           r.sentence,
           price,
           r.cost,
           r.cost_text,
           proof.compute_bytes,
           proof.host_bytes,
           proof.report.source,
           r.leaves_backend};
  c.set = set_arguments(settings);
  return c;
}

FirstGuess FirstGuess::with_prefix(const std::optional<Estimate>& planned,
                                   const CombinationRanks& ranks) const {
  FirstGuess g = *this;
  const std::uint64_t parts = std::uint64_t{ranks.tensor} * ranks.pipeline;
  g.states /= parts, g.gradients /= parts, g.weights /= parts, g.gaps = 0;
  g.others = planned && planned->compute_bytes > g.states ? planned->compute_bytes - g.states : 0;
  // Of a plan that does not fit, what it allocates.
  g.needed = planned ? planned->compute_bytes : g.states;
  g.counts_missing = counts_missing && parts == 1;
  return g;
}

std::optional<std::size_t> FirstGuess::index(const CandidateSeries& series) const {
  const std::uint64_t whole = replicated(series.shards);
  const std::uint64_t halved = series.shards == 0 ? others : states - whole,
                      kept = series.shards == 0 ? states : whole + others;
  for (std::size_t i = 0; i < std::min<std::size_t>(series.changes.size(), 32); ++i)
    if (kept + (halved >> (i + 1)) <= budget) return i;
  return std::nullopt;
}

std::optional<Change> mildest_that_fits(const CandidateSeries& family, const CombinationPrefix& prefix,
                                        const std::vector<Change>& known, Replanner& replan,
                                        const FirstGuess& guess) {
  assert(!family.changes.empty());
  // Sets `found` to the last plan that fits; reset where the value is already suggested without the prefix.
  std::optional<Estimate> found;
  const auto fits = [&](std::size_t i) {
    const std::vector<std::string> set = set_arguments(family.changes[i].settings);
    if (std::any_of(known.begin(), known.end(), [&](const Change& k) { return k.set == set; }))
      return found.reset(), true;
    std::optional<Estimate> e = replan.plan(merge_settings(prefix.settings, family.changes[i].settings),
                                            family.changes[i].other_device != 0);
    if (!e || !e->fits) return false;
    found = std::move(e);
    return true;
  };
  // An estimator that does not describe a kind of parallelism does not for more ranks either.
  const auto refuses_all = [&](std::size_t i) {
    const CandidateChange& c = family.changes[i];
    return family.price == Price::kHardware && !c.other_device &&
           replan.is_refused(merge_settings(prefix.settings, c.settings));
  };
  std::size_t low = 0, high = family.changes.size();
  if (family.falling) {
    const std::size_t first = guess.index(family).value_or(high - 1);
    if (fits(first)) {
      high = first;
      // Right if the change before it does not fit.
      if (high > 0 && !fits(high - 1))
        low = high;
      else if (high > 0)
        --high;
    } else {
      low = first + 1;
      if (low == high || refuses_all(first)) return std::nullopt;
      if (fits(low))
        high = low;
      else if (++low == high || !fits(high - 1))
        return std::nullopt;
      else if (fits(low))  // a guess that ignores a part is one or two values too low
        high = low;
      else
        ++low, --high;
    }
    // Below the middle: what does not fit is planned faster than what does.
    while (low < high) {
      const std::size_t middle = low + (high - low) / 3;
      if (fits(middle))
        high = middle;
      else
        low = middle + 1;
    }
  } else {
    while (low < high && !fits(low))
      if (refuses_all(low++)) return std::nullopt;
    if (low == high) return std::nullopt;
  }
  // Planned as a single change before, and reported there.
  if (!found) return std::nullopt;
  assert(low < family.changes.size());
  const CandidateChange& r = family.changes[low];
  const char* const source =
      replan.is_stand_in(*found) ? ", by the closed form, whose upper bounds fit too" : "";
  return make_change(
      merge_settings(prefix.settings, r.settings),
      {{}, r.sentence + prefix.description + source, r.cost, r.cost_text, r.other_device, r.leaves_backend},
      family.price, *found);
}

}  // namespace trainhost::planning
