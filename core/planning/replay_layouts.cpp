// See replay_layouts.hpp.
#include "core/planning/replay_layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/planning/choose_estimators.hpp"

namespace trainhost::planning {
namespace {

/// "--set parallel.data=8" and "parallel.data=8" as settings of a planner.
Settings settings_of(const RankedLayout& layout) {
  Settings out;
  for (std::string_view text : layout.settings) {
    constexpr std::string_view kOption = "--set ";
    if (text.starts_with(kOption)) text.remove_prefix(kOption.size());
    const std::size_t equals = text.find('=');
    out.push_back({std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))});
  }
  return out;
}

}  // namespace

void replay_fastest_layouts(SearchResult& v, Replanner& replan) {
  constexpr int kMost = 5;
  std::uint64_t least = UINT64_MAX;  // of those that do not fit
  int exceeding = 0;
  std::string source, found;
  while (!v.best.empty() && exceeding < kMost) {
    const RankedLayout layout = v.best.front();
    const std::optional<Estimate> e = replan.plan(settings_of(layout), false, false);
    if (!e || e->report.source == kClosedFormEstimator) break;  // not described
    source = e->report.source;
    if (e->fits) {
      found = fmt::format("replayed by the estimator '{}', the fastest layout needs {}", escaped(source, 80),
                          format_bytes(e->compute_bytes));
      break;
    }
    least = std::min(least, e->compute_bytes);
    ++exceeding;
    for (auto* rows : {&v.best, &v.pareto})
      std::erase_if(*rows, [&](const RankedLayout& r) { return r.settings == layout.settings; });
  }
  if (exceeding)
    found += fmt::format("{}{} by the closed form {} {} or more by '{}', which does not fit, and {} left out",
                         found.empty() ? "" : "; ", plural(exceeding, "faster layout"),
                         exceeding == 1 ? "needs" : "need", format_bytes(least), escaped(source, 80),
                         exceeding == 1 ? "is" : "are");
  if (exceeding == kMost) found += "; the layouts behind these were not replayed";
  if (!found.empty()) v.notes.push_back(std::move(found));
}

}  // namespace trainhost::planning
