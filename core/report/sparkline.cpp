// See sparkline.hpp.
#include "core/report/sparkline.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/report/text_table.hpp"

namespace trainhost::report {

void History::add(double value) {
  if (!std::isfinite(value)) return;
  if (sums_.empty() || in_last_ == per_sum_) {
    if (sums_.size() == kMost) {
      for (std::size_t i = 0; i < kMost / 2; ++i) sums_[i] = sums_[2 * i] + sums_[2 * i + 1];
      sums_.resize(kMost / 2);
      per_sum_ *= 2;
    }
    sums_.push_back(0);
    in_last_ = 0;
  }
  sums_.back() += value;
  ++in_last_;
}

std::vector<double> History::means(std::size_t n) const {
  n = std::min(n, sums_.size());
  std::vector<double> out;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t first = i * sums_.size() / n, end = (i + 1) * sums_.size() / n;
    double sum = 0;
    std::uint64_t count = 0;
    for (std::size_t j = first; j < end; ++j)
      sum += sums_[j], count += j + 1 == sums_.size() ? in_last_ : per_sum_;
    out.push_back(sum / static_cast<double>(count));
  }
  return out;
}

std::string sparkline(const std::vector<double>& values, bool utf8) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kPlain[] = {"_", ".", "-", "'"};
  const std::span<const char* const> levels =
      utf8 ? std::span<const char* const>(kBlocks) : std::span<const char* const>(kPlain);
  if (values.empty()) return {};
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const double low = sorted.front(), high = sorted[sorted.size() - 1 - sorted.size() / 8];
  std::string out;
  for (const double v : values) {
    const double height = high > low ? (std::min(v, high) - low) / (high - low) : 0;
    const auto level = static_cast<std::size_t>(height * static_cast<double>(levels.size()));
    out += levels[std::min(level, levels.size() - 1)];
  }
  return out;
}

std::string track(double share, unsigned width, bool utf8) {
  if (utf8) {
    std::string out = bar(share, width);
    for (std::size_t n = display_width(out); n < width; ++n) out += "░";
    return out;
  }
  if (width < 3) return std::string(width, ' ');
  const unsigned cells = width - 2;
  const auto filled = static_cast<unsigned>(std::clamp(share, 0.0, 1.0) * cells);
  return "[" + std::string(filled, '#') + std::string(cells - filled, '.') + "]";
}

}  // namespace trainhost::report
