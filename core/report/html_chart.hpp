// The charts of the HTML reports as SVG: stacked bars, stacked areas or lines over one axis, and a scatter
// plot with a Pareto front. Every mark has a title, which is its tooltip; every chart has a title and a
// description. All texts are plain and are escaped when drawn.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_value.hpp"

namespace trainhost::report::html {

// Widths of a chart in SVG units, about pixels: for screens wider than 560 pixels, and for others. The style
// sheet shows one of the two and scales it.
inline constexpr double kWidth = 960, kNarrowWidth = 360;

enum class Unit { kBytes, kSeconds };

/// A line that values are compared with: the budget. value 0 = none.
struct Limit {
  double value = 0;
  std::string label;  // "budget 74.5 GiB"
};

struct Part {
  std::string css, name;
  double value = 0;
  std::string tip;
};
struct Bar {
  std::string label;
  std::vector<Part> parts;  // from left to right
  std::string total;        // text at the end of the bar
  bool strong = false;
};
struct BarChart {
  std::string title, description;
  Unit unit = Unit::kBytes;
  std::vector<Bar> bars;
  Limit limit;
  std::size_t limited = SIZE_MAX;  // the limit applies to this many bars from the top
  double width = kWidth;
};
std::string draw(const BarChart& c);

struct Series {
  std::string css, name;
  std::vector<double> y;  // one per x; NaN = no value (lines only)
};
struct Mark {
  double x = 0;
  std::string label;  // short: "1"
  std::string tip;
};
/// Over x: stacked bands and separate lines.
/// x may be a number or a phase; y in bytes.
struct AreaChart {
  std::string title, description, x_name;
  std::vector<double> x;                   // ascending
  std::vector<std::string> x_label, tips;  // one per x
  bool log_x = false;
  bool steps = false;  // x are phases, one column each, grouped by the text before ", "
  std::vector<Series> bands, lines;
  Limit limit;
  std::vector<Mark> marks;          // vertical lines
  std::optional<std::size_t> peak;  // index of x
  std::string peak_label;
  double width = kWidth;
};
std::string draw(const AreaChart& c);

/// A curve with the range of what each point stands for; `low` and `high` may be empty. NaN = no value.
struct Line {
  std::string css, name;
  std::vector<double> x, y, low, high;
};
/// Curves over the steps of runs. The script draws them again, in the width of the window.
struct LineChart {
  std::string id, title, x_name;
  std::string unit;    // "bytes", "%"; "" = a number
  bool zero = false;   // the axis starts at 0
  bool log = false;    // may be drawn on a logarithmic axis
  bool noisy = false;  // may be smoothed
  std::vector<Line> lines;
  Limit limit;
};
std::string draw(const LineChart& c);
/// The chart as the script reads it.
JsonValue json_of(const LineChart& c);

struct Dot {
  double x = 0, y = 0;  // bytes, seconds
  std::string css, tip;
};
struct ScatterChart {
  std::string title, description, x_name, y_name;
  std::vector<Dot> dots;
  std::vector<Dot> front;  // connected; ascending x
  std::vector<std::string> front_label;
  Limit limit;  // of x
  double width = kWidth;
};
std::string draw(const ScatterChart& c);

/// The chart for wide screens and for narrow ones.
template <class Chart>
std::string draw_both(Chart c) {
  const std::string wide = draw(c);
  c.width = kNarrowWidth;
  return wide + draw(c);
}

}  // namespace trainhost::report::html
