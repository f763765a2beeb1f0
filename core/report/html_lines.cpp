// Draws curves with the range of their values, and gives the script the same chart as JSON.
#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_svg.hpp"
#include "core/report/run_curves.hpp"

namespace trainhost::report::html {
namespace {

constexpr double kHeightOfLines = 320, kLinesLeft = 84, kLinesRight = 18, kLinesTop = 26, kLinesFloor = 270;

/// Calls f for every finite value that is drawn.
template <class F>
void for_values(const LineChart& c, F f) {
  for (const Line& l : c.lines)
    for (const auto* v : {&l.y, &l.low, &l.high})
      for (const double y : *v)
        if (std::isfinite(y)) f(y);
}

std::string path_of(const std::vector<double>& x, const std::vector<double>& y, const Scale& sx,
                    const Scale& sy) {
  std::string d;
  bool pen_down = false;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (std::isfinite(y[i])) d += (pen_down ? "L" : "M") + px(sx(x[i])) + " " + px(sy(y[i]));
    pen_down = std::isfinite(y[i]);
  }
  return d;
}

std::string range_of(const Line& l, const Scale& sx, const Scale& sy) {
  std::string up, down;
  for (std::size_t i = 0; i < l.low.size(); ++i) {
    if (!std::isfinite(l.low[i]) || !std::isfinite(l.high[i])) continue;
    up += (up.empty() ? "M" : "L") + px(sx(l.x[i])) + " " + px(sy(l.high[i]));
    down = "L" + px(sx(l.x[i])) + " " + px(sy(l.low[i])) + down;
  }
  return up.empty() ? up : fmt::format("<path class=\"range {}\" d=\"{}{}Z\"/>\n", l.css, up, down);
}

JsonValue numbers(const std::vector<double>& v) {
  JsonValue out = JsonValue::array();
  for (const double y : v) out.push_back(std::isfinite(y) ? JsonValue(six_digits(y)) : JsonValue());
  return out;
}

}  // namespace

std::string draw(const LineChart& c) {
  double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
  for (const Line& l : c.lines)
    if (!l.x.empty()) x0 = std::min(x0, l.x.front()), x1 = std::max(x1, l.x.back());
  for_values(c, [&](double y) { y0 = std::min(y0, y), y1 = std::max(y1, y); });
  if (!(y1 >= y0)) return {};
  if (c.zero) y0 = 0;
  const bool limit_in = c.limit.value > 0 && c.limit.value <= 3 * y1;
  if (limit_in) y1 = std::max(y1, c.limit.value * 1.02);
  const Ticks ty = c.unit == "bytes" ? byte_ticks(y1) : number_ticks(y0, y1), tx = number_ticks(x0, x1, 8);
  const Scale sx{x0, x1 > x0 ? x1 : x0 + 1, kLinesLeft, kWidth - kLinesRight};
  const Scale sy{ty.at.front(), ty.at.back(), kLinesFloor, kLinesTop};
  std::string out = open_svg(kWidth, kHeightOfLines, c.title, c.title + " over " + c.x_name);
  for (std::size_t i = 0; i < ty.at.size(); ++i)
    out += line(kLinesLeft, sy(ty.at[i]), kWidth - kLinesRight, sy(ty.at[i]), "grid") +
           label(kLinesLeft - 8, sy(ty.at[i]) + 4, ty.label[i], "end", "dim");
  for (std::size_t i = 0; i < tx.at.size(); ++i)
    if (tx.at[i] >= x0 && tx.at[i] <= x1)
      out += label(std::min(sx(tx.at[i]), kWidth - 24), kLinesFloor + 18, tx.label[i], "middle", "dim");
  out += label((kLinesLeft + kWidth - kLinesRight) / 2, kHeightOfLines - 8, c.x_name, "middle");
  for (const Line& l : c.lines) out += range_of(l, sx, sy);
  for (const Line& l : c.lines)
    out += fmt::format("<path class=\"curve {}\" d=\"{}\"/>\n", l.css, path_of(l.x, l.y, sx, sy));
  for (const Line& l : c.lines)
    if (c.lines.size() <= 4 && l.x.size() <= 40)
      for (std::size_t i = 0; i < l.x.size(); ++i)
        if (std::isfinite(l.y[i]))
          out += fmt::format("<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>\n", l.css,
                             px(sx(l.x[i])), px(sy(l.y[i])));
  if (limit_in)
    out += line(kLinesLeft, sy(c.limit.value), kWidth - kLinesRight, sy(c.limit.value), "limit") +
           label(kWidth - kLinesRight, sy(c.limit.value) + 15, c.limit.label, "end", "bad strong halo");
  return out + "</svg>\n";
}

JsonValue json_of(const LineChart& c) {
  JsonValue series = JsonValue::array();
  for (const Line& l : c.lines) {
    JsonValue s = {{"name", escaped(l.name, 80)}, {"c", l.css}, {"x", numbers(l.x)}, {"y", numbers(l.y)}};
    if (!l.low.empty()) s["low"] = numbers(l.low), s["high"] = numbers(l.high);
    series.push_back(std::move(s));
  }
  JsonValue out = {{"id", c.id},     {"title", c.title}, {"x", c.x_name},    {"unit", c.unit},
                   {"zero", c.zero}, {"log", c.log},     {"noisy", c.noisy}, {"series", std::move(series)}};
  if (c.limit.value > 0) out["limit"] = {{"value", c.limit.value}, {"label", c.limit.label}};
  return out;
}

}  // namespace trainhost::report::html
