// Ticks, scales and lengths of the charts: round numbers on axes, values to pixels, how wide a label will be.
// Pure arithmetic on doubles; a byte count is drawn to a tenth of a pixel and printed exactly elsewhere.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::report::html {

struct Ticks {
  std::vector<double> at;          // from 0, rising; the last one is >= the maximum asked for
  std::vector<std::string> label;  // "0", "16 GiB"
};
/// At most `want` + 1 steps: powers of two in one binary unit.
Ticks byte_ticks(double max, int want = 6);
/// Steps of 1, 2 or 5 by a power of ten; labels as format_seconds.
Ticks second_ticks(double max, int want = 6);

/// 1, 2 and 5 by powers of ten, the first <= min and the last >= max: for logarithmic axes. 0 < min <= max.
Ticks second_ticks_log(double min, double max);

/// "12.3 s", "980 ms", "2.1 min", "3.4 h": three digits.
std::string format_seconds(double s);

/// From values to pixels, straight or by logarithm.
struct Scale {
  double from = 0, to = 1, pixel_from = 0, pixel_to = 1;
  bool log = false;
  double operator()(double v) const;
};

std::string px(double pixels);              // "12.3", "12"
double text_width(std::string_view plain);  // pixels at the charts' 12 px, on the generous side

/// Indices of labels that can stand beside each other at `centres` (rising) without touching: the first, the
/// last and as many between as there is room for.
std::vector<std::size_t> roomy(const std::vector<double>& centres, const std::vector<std::string>& labels);

}  // namespace trainhost::report::html
