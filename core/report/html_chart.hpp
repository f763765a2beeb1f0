// The charts of the HTML reports as SVG: stacked bars, a stacked area (or lines) over one axis, dots with a
// front line. They draw what they are given and decide nothing; every mark has a title of its own, which is
// its tooltip, and every chart a title and a description. Names and labels are plain text here and are
// escaped on their way out.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainhost::report::html {

enum class Unit { kBytes, kSeconds };

/// A line that values are held against: the budget. value 0 = none.
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
  std::vector<Part> parts;  // from the left
  std::string total;        // written at its end
  bool strong = false;
};
struct BarChart {
  std::string title, description;
  Unit unit = Unit::kBytes;
  std::vector<Bar> bars;
  Limit limit;
  std::size_t limited = SIZE_MAX;  // how many bars from the top are held against the limit
};
std::string draw(const BarChart& c);

struct Series {
  std::string css, name;
  std::vector<double> y;  // one for each x; NaN = nothing there (lines only)
};
struct Mark {
  double x = 0;
  std::string label;  // short: "1"
  std::string tip;
};
/// Over x: bands on each other and lines that stand for themselves.
struct AreaChart {
  std::string title, description, x_name;
  std::vector<double> x;                   // rising
  std::vector<std::string> x_label, tips;  // one for each x
  bool log_x = false;
  bool steps = false;  // x are moments, one column each, named in groups by what stands before ", "
  std::vector<Series> bands, lines;
  Limit limit;
  std::vector<Mark> marks;          // upright lines
  std::optional<std::size_t> peak;  // index of x
  std::string peak_label;
};
std::string draw(const AreaChart& c);

struct Dot {
  double x = 0, y = 0;  // bytes, seconds
  std::string css, tip;
};
struct ScatterChart {
  std::string title, description, x_name, y_name;
  std::vector<Dot> dots;
  std::vector<Dot> front;  // joined; by rising x
  std::vector<std::string> front_label;
  Limit limit;  // of x
};
std::string draw(const ScatterChart& c);

}  // namespace trainhost::report::html
