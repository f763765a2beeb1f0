// The plot of `train --find-lr` in a terminal, and its suggestion in words. Learning rates are on a
// logarithmic axis, one column per step or per group of steps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/report/lr_range_report.hpp"

namespace trainhost::report {
namespace {

constexpr std::size_t kRows = 16, kMostColumns = 100, kLabel = 9;  // kLabel: columns of the loss axis

}  // namespace

// From the lowest loss to above the first one by a third of the fall, or to the highest loss if that is less.
LossAxis loss_axis(const training::LrRangeResult& v) {
  const std::vector<double>& s = v.suggestion.smoothed;
  if (s.empty()) return {};
  double low = *std::min_element(s.begin(), s.end()), high = *std::max_element(s.begin(), s.end());
  double highest = 0;
  for (const training::LrPoint& p : v.points) {
    low = std::min(low, p.loss);
    highest = std::max(highest, p.loss);
  }
  high = std::max(s.front(), v.points.front().loss);
  high = std::min(highest, high + (high - low) / 3);
  if (high - low < 1e-6 * std::abs(high) || high == low) high = low + std::max(1e-6, std::abs(low) / 100);
  return {low, high};
}

std::string lr_range_plot(const training::LrRangeResult& v, const Terminal& t) {
  if (v.points.empty()) return {};
  const std::size_t width = t.width_known && t.width < kMostColumns ? t.width : std::size_t{80};
  const std::size_t columns = std::max<std::size_t>(10, width - std::min<std::size_t>(width, kLabel + 3));
  const LossAxis axis = loss_axis(v);
  const auto column_of = [&](double lr) {
    const double part = std::log(lr / v.range.from) / std::log(v.range.to / v.range.from);
    return static_cast<std::size_t>(
        std::lround(std::clamp(part, 0.0, 1.0) * static_cast<double>(columns - 1)));
  };
  const auto row_of = [&](double loss) {  // 0 is the top
    const double part = std::clamp((axis.high - loss) / (axis.high - axis.low), 0.0, 1.0);
    return static_cast<std::size_t>(std::lround(part * static_cast<double>(kRows - 1)));
  };
  std::vector<std::string> rows(kRows, std::string(columns, ' '));
  if (v.suggestion.lr)
    for (std::string& row : rows) row[column_of(*v.suggestion.lr)] = '|';
  for (std::size_t i = 0; i < v.points.size(); ++i)
    rows[row_of(v.points[i].loss)][column_of(v.points[i].lr)] = v.points[i].loss > axis.high ? '^' : '.';
  for (std::size_t i = 0; i < v.points.size(); ++i)
    rows[row_of(v.suggestion.smoothed[i])][column_of(v.points[i].lr)] = '*';

  std::string out = fmt::format("{:>{}}  . of a step, * smoothed{}\n", "loss", kLabel,
                                v.suggestion.lr ? ", | suggestion" : "");
  for (std::size_t r = 0; r < kRows; ++r) {
    const double loss =
        axis.high - (axis.high - axis.low) * static_cast<double>(r) / static_cast<double>(kRows - 1);
    const std::string label = r % 5 == 0 ? fmt::format("{:.4g}", loss) : "";
    rows[r].erase(rows[r].find_last_not_of(' ') + 1);
    out += fmt::format("{:>{}} {}{}\n", label, kLabel, r % 5 == 0 ? "+" : "|", rows[r]);
  }
  // A label at each power of ten that has space for it.
  std::string ticks = "+" + std::string(columns, '-'), labels;
  const int first = static_cast<int>(std::ceil(std::log10(v.range.from) - 1e-9)),
            last = static_cast<int>(std::floor(std::log10(v.range.to) + 1e-9));
  for (int e = first; e <= last; ++e) {
    const std::size_t tick = 1 + column_of(std::pow(10.0, e));
    ticks[tick] = '+';
    const std::string label = e == 0 ? "1" : fmt::format("1e{}", e);
    const std::size_t at = std::min(tick, 1 + columns - label.size());
    if (at < labels.size() + 1 && !labels.empty()) continue;
    labels.resize(at, ' ');
    labels += label;
  }
  const std::string indent(kLabel + 1, ' ');
  return out + indent + ticks + "\n" + indent + labels + "\n" + indent + " learning rate\n";
}

std::string lr_range_suggestion(const training::LrRangeResult& v) {
  using training::RangeEnd;
  std::string out;
  if (v.end != RangeEnd::kComplete && !v.points.empty())
    out = fmt::format("ended after {} of {} steps, at {:.2g}: the loss {}\n", v.points.size(), v.range.steps,
                      v.points.back().lr,
                      v.end == RangeEnd::kDiverged ? "diverges" : "of the next step is not finite");
  if (!v.suggestion.lr) return out + "no suggestion: " + v.suggestion.reason + "\n";
  return out + fmt::format("suggested learning rate {:g}: {}\n--set optimizer.lr={:g}\n", *v.suggestion.lr,
                           v.suggestion.reason, *v.suggestion.lr);
}

}  // namespace trainhost::report
