// Draws stacked bands or lines over one axis; also the timeline of a step, one column per phase.
#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/report/html_chart.hpp"
#include "core/report/html_svg.hpp"

namespace trainhost::report::html {
namespace {

constexpr double kAreaFloor = 310, kAreaLeft = 78, kAreaRight = 18, kAreaTop = 34;
constexpr std::size_t kDotted = 40;            // lines with at most this many points have a dot per point
constexpr double kNames = 28, kAxisName = 22;  // height below the axis: labels of points, name of the axis

/// Maps columns or points, and values, to pixels. With steps, x is the index of a column and column i covers
/// [i, i+1]; otherwise x is the value itself and point i has no width.
struct Frame {
  const AreaChart& c;
  Scale x, y;
  double left(std::size_t i) const { return c.steps ? x(static_cast<double>(i)) : x(c.x[i]); }
  double right(std::size_t i) const { return c.steps ? x(static_cast<double>(i) + 1) : x(c.x[i]); }
  double centre(std::size_t i) const { return (left(i) + right(i)) / 2; }
};

/// Bands are stacked, lines are not. A band has a value at every x; a line may have gaps (NaN).
double highest_total(const AreaChart& c) {
  double most = 0;
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    double sum = 0;
    for (const Series& s : c.bands) sum += s.y[i];
    most = std::max(most, sum);
    for (const Series& s : c.lines)
      if (std::isfinite(s.y[i])) most = std::max(most, s.y[i]);
  }
  return most;
}

/// The path of one edge of a band: forwards for the upper edge, backwards for the lower one, so that both
/// together form a closed outline. For columns (steps), only points at which the height changes are emitted:
/// a step of 160 phases has few different heights.
std::string edge(const Frame& f, const std::vector<double>& y, bool backwards) {
  std::string out;
  const std::size_t n = y.size();
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = backwards ? n - 1 - k : k;
    // Heights are compared as they are printed; a difference below a tenth of a pixel is no corner.
    const bool same_as_next = k + 1 < n && px(f.y(y[i])) == px(f.y(y[backwards ? i - 1 : i + 1]));
    const std::string height = px(f.y(y[i])), end = px(backwards ? f.left(i) : f.right(i));
    if (!f.c.steps)
      out += (out.empty() && !backwards ? "M" : "L") + px(f.centre(i)) + " " + height;
    else {
      if (out.empty()) out += (backwards ? "L" : "M") + px(backwards ? f.right(i) : f.left(i)) + " " + height;
      if (!same_as_next) out += "H" + end + (k + 1 < n ? "V" + px(f.y(y[backwards ? i - 1 : i + 1])) : "");
    }
  }
  return out;
}

std::string bands(const Frame& f) {
  std::string out;
  // The lower edge of each band is the upper edge of the one before; the first starts at the axis.
  std::vector<double> below(f.c.x.size(), 0);
  for (const Series& s : f.c.bands) {
    std::vector<double> above = below;
    for (std::size_t i = 0; i < above.size(); ++i) above[i] += s.y[i];
    assert(s.y.size() == f.c.x.size());
    out += fmt::format("<path class=\"part {}\" d=\"{}{}Z\"/>\n", s.css, edge(f, above, false),
                       edge(f, below, true));
    below = std::move(above);
  }
  return out;
}

/// The name of each line above its last point, unless another name is there.
std::string line_names(const Frame& f) {
  std::string out;
  // Baselines of the names that are already drawn.
  std::vector<double> taken;
  for (const Series& s : f.c.lines) {
    std::size_t last = s.y.size();
    // An estimator may reject the largest values; its line ends earlier.
    while (last > 0 && !std::isfinite(s.y[last - 1])) --last;
    if (last == 0) continue;
    const double x = f.centre(last - 1) - 12, y = std::max(f.y(s.y[last - 1]) - 9, kAreaTop + 4);
    if (x < kAreaLeft + text_width(s.name) ||
        std::any_of(taken.begin(), taken.end(), [&](double t) { return std::abs(t - y) < 15; }))
      continue;
    taken.push_back(y);
    out += label(x, y, s.name, "end", "strong halo named " + s.css);
  }
  return out;
}

std::string lines(const Frame& f) {
  // Dots are appended after all curves, so that no curve covers a dot. A gap in the values interrupts the
  // curve.
  std::string out, dots;
  for (const Series& s : f.c.lines) {
    std::string d;
    bool pen_down = false;
    for (std::size_t i = 0; i < s.y.size(); ++i) {
      if (std::isfinite(s.y[i])) d += (pen_down ? "L" : "M") + px(f.centre(i)) + " " + px(f.y(s.y[i]));
      pen_down = std::isfinite(s.y[i]);
      if (pen_down && s.y.size() <= kDotted)
        dots += fmt::format("<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"3.4\"/>\n", s.css,
                            px(f.centre(i)), px(f.y(s.y[i])));
    }
    if (!d.empty()) out += fmt::format("<path class=\"curve {}\" d=\"{}\"/>\n", s.css, d);
  }
  return out + dots + line_names(f);
}

/// Transparent columns on top of everything, each with the tooltip of its phase or point. Without steps, the
/// column of a point reaches half way to its neighbours, so that the pointer never falls between two.
std::string hits(const Frame& f) {
  std::string out;
  const std::size_t n = f.c.x.size();
  // Many columns are too narrow to be touched, and the table below the chart has their numbers.
  if (f.c.width < kWidth && n > kDotted) return out;
  for (std::size_t i = 0; i < n && i < f.c.tips.size(); ++i) {
    const double a = f.c.steps || i == 0 ? f.left(i) : (f.centre(i - 1) + f.centre(i)) / 2;
    const double b = f.c.steps || i + 1 == n ? f.right(i) : (f.centre(i) + f.centre(i + 1)) / 2;
    out += fmt::format("<rect class=\"area hit\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>\n",
                       px(a), px(kAreaTop), px(std::max(b - a, 1.0)), px(kAreaFloor - kAreaTop),
                       tip(f.c.tips[i]));
  }
  return out;
}

/// Labels below the axis: phases by group ("forward" of "forward, layer 3"), points by their label.
std::string names(const Frame& f) {
  std::string out;
  std::vector<double> centres;
  std::vector<std::string> labels;
  const std::size_t n = f.c.x.size();
  // A group is a run of neighbouring columns with equal text before ", "; its label is centred below the run.
  // Without steps, every point is a group.
  for (std::size_t i = 0; i < n;) {
    std::size_t end = i + 1;
    const std::string group =
        f.c.steps ? f.c.x_label[i].substr(0, f.c.x_label[i].find(", ")) : f.c.x_label[i];
    while (f.c.steps && end < n && f.c.x_label[end].substr(0, f.c.x_label[end].find(", ")) == group) ++end;
    if (f.c.steps) out += line(f.left(i) + 1, kAreaFloor + 5, f.right(end - 1) - 1, kAreaFloor + 5, "span");
    centres.push_back((f.left(i) + f.right(end - 1)) / 2);
    labels.push_back(group);
    i = end;
  }
  for (std::size_t i : labels_without_overlap(centres, labels)) {
    // Labels at the ends are shifted inwards instead of being cut by the frame.
    const double half = text_width(labels[i]) / 2;
    out += label(std::clamp(centres[i], half, f.c.width - half - 2), kAreaFloor + 20, labels[i], "middle",
                 "dim");
  }
  if (!f.c.x_name.empty())
    out += label((kAreaLeft + f.c.width - kAreaRight) / 2, kAreaFloor + kNames + 14, f.c.x_name, "middle");
  return out;
}

std::string limit(const Frame& f, bool drawn) {
  const Limit& l = f.c.limit;
  if (!(l.value > 0)) return {};
  if (!drawn)
    return label(f.c.width - kAreaRight, kAreaTop - 10, l.label + ", above this chart ↑", "end", "dim");
  const double y = f.y(l.value);
  // A wide line in the background colour below the dashed one separates the limit from the bands.
  return line(kAreaLeft, y, f.c.width - kAreaRight, y, "under") +
         line(kAreaLeft, y, f.c.width - kAreaRight, y, "limit") +
         label(kAreaLeft + 6, y - 6, l.label, "start", "bad strong halo");
}

std::string marks(const Frame& f) {
  std::string out;
  // Numbers of marks are moved to the right where two crossovers are closer than one badge; the vertical line
  // stays at its exact x.
  double taken = -100;
  for (const Mark& m : f.c.marks) {
    if (!(m.x >= f.x.from && m.x <= f.x.to)) continue;
    const double x = f.x(m.x), badge = std::max(x, taken + 19);
    taken = badge;
    out += line(x, kAreaTop - 4, x, kAreaFloor, "cross");
    out += fmt::format("<g class=\"hit\">{}<circle class=\"peak\" cx=\"{}\" cy=\"{}\" r=\"8.5\"/>{}</g>\n",
                       tip(m.tip), px(badge), px(kAreaTop - 13),
                       label(badge, kAreaTop - 9, m.label, "middle", "strong"));
  }
  return out;
}

std::string peak(const Frame& f) {
  if (!f.c.peak) return {};
  const std::size_t i = *f.c.peak;
  double sum = 0;
  for (const Series& s : f.c.bands) sum += s.y[i];
  const double plot = f.c.width - kAreaRight - kAreaLeft;
  // "peak: 12.2 GiB in backward, layer 31" without its phase where that does not fit.
  const std::string full = f.c.peak_label;
  const std::string shown = text_width(full) <= plot ? full : full.substr(0, full.find(" in "));
  const double x = f.centre(i), y = f.y(sum), half = std::min(text_width(shown), plot) / 2;
  return fmt::format("<circle class=\"peak\" cx=\"{}\" cy=\"{}\" r=\"4\"/>\n", px(x), px(y)) +
         label(std::clamp(x, kAreaLeft + half, f.c.width - kAreaRight - half), y - 10, shown, "middle",
               "strong halo");
}

}  // namespace

std::string draw(const AreaChart& c) {
  if (c.x.empty()) return {};
  const double most = highest_total(c);
  // A limit far above the curve would flatten the chart. It is then named in a corner instead of drawn.
  const bool limit_in = c.limit.value > 0 && c.limit.value <= 3 * most;
  // Leave space above the peak for its label.
  const Ticks ticks = byte_ticks(
      std::max(limit_in ? std::max(most, c.limit.value * 1.04) : most, most * (c.peak ? 1.09 : 1.0)));
  const double n = static_cast<double>(c.x.size());
  Frame f{c,
          {c.steps ? 0 : c.x.front(), c.steps ? n : c.x.back(), kAreaLeft, c.width - kAreaRight, c.log_x},
          {0, ticks.at.back(), kAreaFloor, kAreaTop}};
  std::string out =
      open_svg(c.width, kAreaFloor + kNames + (c.x_name.empty() ? 0 : kAxisName), c.title, c.description);
  for (std::size_t i = 0; i < ticks.at.size(); ++i) {
    const double y = f.y(ticks.at[i]);
    out += line(kAreaLeft, y, c.width - kAreaRight, y, "grid") +
           label(kAreaLeft - 8, y + 4, ticks.label[i], "end", "dim");
  }
  // Painter's order: later elements cover earlier ones. Tooltip columns are above the curves but below the
  // marks, which have tooltips of their own.
  out += bands(f) + lines(f) + limit(f, limit_in) + names(f) + hits(f) + marks(f) + peak(f);
  return out + "</svg>\n";
}

}  // namespace trainhost::report::html
