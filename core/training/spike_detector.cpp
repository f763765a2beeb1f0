// See spike_detector.hpp. Mean and deviation are computed anew from the window: a running sum would depend on
// the losses before it, and a resumed run could decide differently.
#include "core/training/spike_detector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace trainhost::training {

double SpikeDetector::deviations(double loss) const {
  if (losses_.size() < window_) return 0;
  const double n = static_cast<double>(losses_.size());
  double mean = 0, squares = 0;
  for (const double x : losses_) mean += x / n;
  for (const double x : losses_) squares += (x - mean) * (x - mean);
  const double deviation = std::max(std::sqrt(squares / (n - 1)), 1e-4 * std::abs(mean));
  return deviation > 0 ? (loss - mean) / deviation : 0;
}

void SpikeDetector::add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > window_) losses_.pop_front();
}

std::string SpikeDetector::text() const {
  std::string out;
  for (const double x : losses_) out += fmt::format("{}{}", out.empty() ? "" : " ", x);  // reads back exactly
  return out;
}

void SpikeDetector::restore(std::string_view text) {
  losses_.clear();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    double x = 0;
    const auto [next, error] = std::from_chars(at, end, x);
    if (error != std::errc{} || !std::isfinite(x)) return losses_.clear();
    add(x);
    at = next;
    if (at < end && *at++ != ' ') return losses_.clear();
  }
}

}  // namespace trainhost::training
