// Axis arithmetic of the charts: round tick values, values to pixels, width of labels. Doubles only; byte
// counts are drawn to a tenth of a pixel and printed exactly in the tables.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::report::html {

struct Ticks {
  std::vector<double> at;          // ascending from 0; the last one is >= max
  std::vector<std::string> label;  // "0", "16 GiB"
};
/// At most `want` + 1 steps: powers of two in one binary unit.
Ticks byte_ticks(double max, int want = 6);
/// Steps of 1, 2 or 5 times a power of ten; labels as format_seconds.
Ticks second_ticks(double max, int want = 6);

/// About `want` steps of 1, 2 or 5 times a power of ten that cover min to max; labels are numbers.
Ticks number_ticks(double min, double max, int want = 6);

/// 1, 2 and 5 times powers of ten, the first <= min and the last >= max, for logarithmic axes. 0 < min <=
/// max.
Ticks second_ticks_log(double min, double max);

/// "12.3 s", "980 ms", "2.1 min", "3.4 h": three significant digits.
std::string format_seconds(double s);

/// Maps values to pixels, linearly or logarithmically.
struct Scale {
  double from = 0, to = 1, pixel_from = 0, pixel_to = 1;
  bool log = false;
  double operator()(double v) const;
};

std::string px(double pixels);              // "12.3", "12"
double text_width(std::string_view plain);  // pixels at the 12 px of the charts; an upper estimate

/// Indices of labels at `centres` (ascending) that do not overlap: the first, the last, and as many between
/// them as fit.
std::vector<std::size_t> labels_without_overlap(const std::vector<double>& centres,
                                                const std::vector<std::string>& labels);

}  // namespace trainhost::report::html
