// See html_axis.hpp.
#include "core/report/html_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

#include "core/report/text_table.hpp"

namespace trainhost::report::html {
namespace {

constexpr double kGap = 10;      // pixels between two labels
constexpr double kLetter = 7.3;  // pixels per letter at 12 px in a wide system font

/// "2.00 s" as "2 s".
/// Labels of round ticks need no digits that are zero; "10 s" keeps its zero because only fractions are
/// shortened.
std::string without_zeros(const std::string& value) {
  const std::size_t space = value.find(' ');
  std::string number = value.substr(0, space);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return number + value.substr(std::min(space, value.size()));
}

}  // namespace

/// Steps are powers of two, because sizes are printed in binary units: a decimal step would give labels such
/// as "9.31 GiB". !(max >= 1) is also true for NaN.
Ticks byte_ticks(double max, int want) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (!(max >= 1)) max = 1;
  max = std::min(max, 0x1p1000);  // so that no sum below is infinite
  const double step = std::max(1.0, std::exp2(std::ceil(std::log2(max / want))));
  const double top = std::ceil(max / step) * step;
  // One unit for the whole axis, that of its highest tick, so that labels can be compared by their numbers
  // alone.
  std::size_t unit = 0;
  double scale = 1;
  while (top / scale >= 1024 && unit + 1 < std::size(kUnits)) scale *= 1024, ++unit;
  Ticks t;
  for (double v = 0; v <= top; v += step) {
    t.at.push_back(v);
    t.label.push_back(v == 0 ? "0" : fmt::format("{:g} {}", v / scale, kUnits[unit]));
  }
  return t;
}

/// The step is the smallest of 1, 2, 5 and 10 times a power of ten with which `want` steps reach max.
Ticks second_ticks(double max, int want) {
  if (!(max > 0) || !std::isfinite(max)) max = 1;
  const double decade = std::pow(10, std::floor(std::log10(max / want)));
  double step = decade;
  for (double m : {1.0, 2.0, 5.0, 10.0})
    if (max / (m * decade) <= want) {
      step = m * decade;
      break;
    }
  Ticks t;
  // The tolerance keeps a quotient such as 6.000000000001, which is 6 by construction, from adding an empty
  // step.
  const auto n = static_cast<int>(std::ceil(max / step - 1e-9));
  for (int i = 0; i <= n; ++i) {
    t.at.push_back(i * step);
    t.label.push_back(i == 0 ? "0" : without_zeros(format_seconds(i * step)));
  }
  return t;
}

Ticks number_ticks(double min, double max, int want) {
  if (!std::isfinite(min) || !std::isfinite(max) || !std::isfinite(max - min)) min = 0, max = 1;
  // Equal values are drawn in the middle.
  if (!(max > min)) {
    const double half = min == 0 ? 1 : std::abs(min) / 20;
    min -= half, max += half;
  }
  const double raw = (max - min) / want, decade = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * decade;
  for (const double m : {5.0, 2.0, 1.0})
    if (m * decade >= raw * (1 - 1e-9)) step = m * decade;
  Ticks t;
  const double first = std::floor(min / step + 1e-9);
  for (int i = 0; i <= 4 * want; ++i) {
    const double v = (first + i) * step;
    t.at.push_back(v);
    t.label.push_back(fmt::format("{:.6g}", std::abs(v) < step * 1e-6 ? 0 : v));
    if (v >= max - step * 1e-6) break;
  }
  return t;
}

/// Walks upwards from the decade of min. The bound of 10^18 s ends the loop for any input.
Ticks second_ticks_log(double min, double max) {
  Ticks t;
  for (int decade = static_cast<int>(std::floor(std::log10(min))); decade <= 18; ++decade)
    for (int m : {1, 2, 5}) {
      const double v = m * std::pow(10, decade);
      if (!t.at.empty() && t.at.back() >= max) return t;
      if (!t.at.empty() && v <= min) t = {};  // a later tick is also <= min
      t.at.push_back(v);
      t.label.push_back(without_zeros(format_seconds(v)));
    }
  return t;
}

std::string format_seconds(double s) {
  // The limits 9.995 and 99.95 are where rounding to fewer decimals would print four digits: 9.996 is "10.0",
  // not "10.00".
  const auto three = [](double v) { return fmt::format("{:.{}f}", v, v < 9.995 ? 2 : v < 99.95 ? 1 : 0); };
  if (!std::isfinite(s)) return "-";
  if (s <= 0) return "0 s";
  if (s < 0.9995e-3) return three(s * 1e6) + " µs";
  if (s < 0.9995) return three(s * 1e3) + " ms";
  if (s < 120) return three(s) + " s";
  if (s < 7200) return three(s / 60) + " min";
  return three(s / 3600) + " h";
}

double Scale::operator()(double v) const {
  // An axis whose ends are equal (a single point) maps every value to its middle instead of dividing by zero.
  const double a = log ? std::log2(from) : from, b = log ? std::log2(to) : to, at = log ? std::log2(v) : v;
  return b == a ? (pixel_from + pixel_to) / 2 : pixel_from + (at - a) / (b - a) * (pixel_to - pixel_from);
}

/// One decimal is a tenth of a pixel; more digits only make the page larger. SVG has no NaN, so a value that
/// is not finite is drawn at 0.
std::string px(double pixels) {
  if (!std::isfinite(pixels)) pixels = 0;
  std::string out = fmt::format("{:.1f}", pixels);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

double text_width(std::string_view plain) {
  return kLetter * static_cast<double>(display_width(std::string(plain)));
}

/// Greedy from the left. The last label is reserved before the others are chosen, because the ends of an axis
/// say more than its middle.
std::vector<std::size_t> labels_without_overlap(const std::vector<double>& centres,
                                                const std::vector<std::string>& labels) {
  std::vector<std::size_t> out;
  const std::size_t n = labels.size();
  assert(centres.size() == n && std::is_sorted(centres.begin(), centres.end()));
  if (n == 0) return out;
  const auto left = [&](std::size_t i) { return centres[i] - text_width(labels[i]) / 2; };
  const auto right = [&](std::size_t i) { return centres[i] + text_width(labels[i]) / 2 + kGap; };
  out.push_back(0);
  for (std::size_t i = 1; i + 1 < n; ++i)
    if (left(i) >= right(out.back()) && right(i) <= left(n - 1)) out.push_back(i);
  if (n > 1 && left(n - 1) >= right(out.back())) out.push_back(n - 1);
  return out;
}

}  // namespace trainhost::report::html
