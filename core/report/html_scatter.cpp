// Draws a scatter plot of memory against time with its Pareto front.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/report/html_chart.hpp"
#include "core/report/html_svg.hpp"

namespace trainhost::report::html {
namespace {

constexpr double kScatterHeight = 420, kScatterLeft = 78, kScatterRight = 24, kScatterTop = 30,
                 kScatterBottom = 50;
constexpr double kScatterFloor = kScatterHeight - kScatterBottom;

std::string dot(const Dot& d, double radius, const Scale& x, const Scale& y, bool with_tip = true) {
  const std::string where = fmt::format("cx=\"{}\" cy=\"{}\" r=\"{}\"", px(x(d.x)), px(y(d.y)), px(radius));
  return with_tip ? fmt::format("<circle class=\"dot hit {}\" {}>{}</circle>\n", d.css, where, tip(d.tip))
                  : fmt::format("<circle class=\"dot {}\" {}/>\n", d.css, where);
}

/// A staircase from the least memory to the most: the shortest time that is possible within that memory.
std::string front(const std::vector<Dot>& points, double right, const Scale& x, const Scale& y) {
  std::string d;
  for (const Dot& p : points)
    d += d.empty() ? "M" + px(x(p.x)) + " " + px(y(p.y)) : "H" + px(x(p.x)) + "V" + px(y(p.y));
  if (!d.empty()) d += "H" + px(right);
  return d.empty() ? d : "<path class=\"front\" d=\"" + d + "\"/>\n";
}

/// Labels below and left of the dots of the Pareto front, where no other dot can be, unless another label is
/// there.
std::string front_labels(const ScatterChart& c, const Scale& x, const Scale& y) {
  std::string out;
  std::string before;                            // consecutive equal labels are drawn once
  std::vector<std::pair<double, double>> taken;  // right end and baseline of the labels drawn
  for (std::size_t i = 0; i < c.front.size() && i < c.front_label.size(); ++i) {
    const double width = text_width(c.front_label[i]), at = x(c.front[i].x);
    const bool fits_left = at - 8 - width > kScatterLeft;  // otherwise to the right of the dot
    const double right = fits_left ? at - 8 : at + 10 + width, base = y(c.front[i].y) + (fits_left ? 14 : 4);
    const bool free = base < kScatterFloor && std::none_of(taken.begin(), taken.end(), [&](const auto& t) {
                        return std::abs(t.second - base) < 15 && right - width < t.first + 8;
                      });
    if (!free || c.front_label[i] == before) continue;
    taken.emplace_back(right, base);
    before = c.front_label[i];
    out += label(right, base, before, "end", "halo");
  }
  return out;
}

}  // namespace

std::string draw(const ScatterChart& c) {
  // The axes cover all dots and the Pareto front, which is a subset of the dots.
  double most_x = 0, most_y = 0, least_y = std::numeric_limits<double>::infinity();
  for (const auto* set : {&c.dots, &c.front})
    for (const Dot& d : *set)
      most_x = std::max(most_x, d.x), most_y = std::max(most_y, d.y), least_y = std::min(least_y, d.y);
  if (most_y <= 0) return {};
  // A limit far to the right of all dots would squeeze them.
  const bool limit_in = c.limit.value > 0 && c.limit.value <= 3 * most_x;
  const Ticks tx = byte_ticks(limit_in ? std::max(most_x, c.limit.value) : most_x, c.width < kWidth ? 3 : 8);
  // Use a logarithmic axis where the slowest is many times slower than the fastest.
  const bool by_logarithm = least_y > 0 && most_y > 6 * least_y;
  const Ticks ty = by_logarithm ? second_ticks_log(least_y, most_y) : second_ticks(most_y, 10);
  const Scale x{0, std::max(most_x, limit_in ? c.limit.value : 0) * 1.02, kScatterLeft,
                c.width - kScatterRight};
  // Unlike bars, dots do not need an axis that starts at 0: start near the smallest value.
  std::size_t from = 0;
  while (!by_logarithm && from + 3 < ty.at.size() && ty.at[from + 1] < 0.93 * least_y) ++from;
  const Scale y{ty.at[from], ty.at.back(), kScatterFloor, kScatterTop, by_logarithm};
  std::string out = open_svg(c.width, kScatterHeight, c.title, c.description);
  for (std::size_t i = from; i < ty.at.size(); ++i)
    out += line(kScatterLeft, y(ty.at[i]), c.width - kScatterRight, y(ty.at[i]), "grid") +
           label(kScatterLeft - 8, y(ty.at[i]) + 4, ty.label[i], "end", "dim");
  for (std::size_t i = 0; i < tx.at.size() && x(tx.at[i]) <= c.width - kScatterRight + 1; ++i)
    out += line(x(tx.at[i]), kScatterTop, x(tx.at[i]), kScatterFloor, "grid") +
           label(x(tx.at[i]), kScatterFloor + 18, tx.label[i], "middle", "dim");
  out += label((kScatterLeft + c.width - kScatterRight) / 2, kScatterHeight - 8, c.x_name, "middle") +
         label(4, kScatterTop - 14, c.y_name, "start");
  if (limit_in) {
    const double at = x(c.limit.value);
    out += line(at, kScatterTop - 6, at, kScatterFloor, "limit") +
           label(std::min(at, c.width - 4), kScatterTop - 11, c.limit.label, "end", "bad strong");
  } else if (c.limit.value > 0)
    out += label(c.width - kScatterRight, kScatterTop - 11, c.limit.label + ", beyond this chart →", "end",
                 "dim");
  // Later elements cover earlier ones: all dots, the line of the Pareto front, its dots, labels.
  // On a narrow screen the small ones are too close to be touched; the table has their numbers.
  for (const Dot& d : c.dots) out += dot(d, 3.2, x, y, c.width == kWidth);
  out += front(c.front, c.width - kScatterRight, x, y);
  for (const Dot& d : c.front) out += dot(d, 5, x, y);
  out += front_labels(c, x, y);
  return out + "</svg>\n";
}

}  // namespace trainhost::report::html
