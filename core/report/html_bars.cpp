// Draws horizontal stacked bars. A part is labelled where its label fits. Lengths are in pixels of the SVG's
// own coordinates (kWidth wide); values in bytes or seconds.
#include <algorithm>
#include <cmath>

#include "core/report/html_chart.hpp"
#include "core/report/html_svg.hpp"

namespace trainhost::report::html {
namespace {

constexpr double kRow = 44, kThick = 28, kBarTop = 26, kBarBottom = 26, kBarRight = 12, kNameMax = 230;
constexpr double kNarrowNameMax = 150;

double total(const Bar& b) {
  double sum = 0;
  for (const Part& p : b.parts) sum += p.value;
  return sum;
}

/// `crossed`: where a vertical line crosses the bar; names of parts keep clear of it.
std::string bar(const Bar& b, double y, const Scale& x, double crossed) {
  std::string out;
  double before = 0;
  for (const Part& p : b.parts) {
    // Also skips NaN.
    if (!(p.value > 0)) continue;
    const double a = x(before), w = x(before + p.value) - a;
    before += p.value;
    // A part is at least 1.6 pixels wide, so that small ones can be seen and pointed at.
    out += fmt::format("<rect class=\"part hit {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">{}</rect>\n",
                       p.css, px(a), px(y), px(std::max(w, 1.6)), px(kThick), tip(p.tip));
    // 10 pixels: a margin of 5 on each side.
    const double text = text_width(p.name) + 10;
    double from = a, to = a + w;
    if (crossed > a && crossed < to && std::abs(crossed - (a + to) / 2) < text / 2)
      crossed - from > to - crossed ? to = crossed : from = crossed;
    if (to - from > text) out += label((from + to) / 2, y + kThick / 2 + 4, p.name, "middle", "on");
  }
  return out;
}

}  // namespace

std::string draw(const BarChart& c) {
  double most = 0, names = 0, ends = 0;
  for (const Bar& b : c.bars) {
    most = std::max(most, total(b));
    names = std::max(names, text_width(b.label));
    ends = std::max(ends, text_width(b.total));
  }
  // A limit far beyond the bars would make them unreadable; it is then only mentioned.
  const bool limit_in = c.limit.value > 0 && c.limit.value <= 4 * most;
  const double range = limit_in ? std::max(most, c.limit.value) : most;
  const bool narrow = c.width < kWidth;
  const double left = std::min(names, narrow ? kNarrowNameMax : kNameMax) + 14,
               bottom = kBarTop + kRow * static_cast<double>(c.bars.size());
  const Ticks ticks =
      c.unit == Unit::kBytes ? byte_ticks(range, narrow ? 3 : 8) : second_ticks(range, narrow ? 3 : 8);
  // Reserve space for the total after the longest bar.
  // 0.1 % more than the range, so that the last grid line is inside; never 0, which Scale divides by.
  const Scale x{0, std::max(range * 1.001, 1e-30), left,
                c.width - kBarRight - std::max(8.0, most >= range * 0.8 ? ends + 12 : 0.0)};
  std::string out = open_svg(c.width, bottom + kBarBottom, c.title, c.description);
  for (std::size_t i = 0; i < ticks.at.size(); ++i) {
    const double at = x(ticks.at[i]);
    if (at > c.width - kBarRight - 4) break;
    // A label that would be cut at the right edge ends there.
    const bool cut = at + text_width(ticks.label[i]) / 2 > c.width;
    out += line(at, kBarTop - 4, at, bottom, "grid") +
           label(cut ? c.width : at, bottom + 16, ticks.label[i], cut ? "end" : "middle", "dim");
  }
  const double limit_at = limit_in ? x(c.limit.value) : -100;
  const std::size_t limited = limit_in ? std::min(c.limited, c.bars.size()) : 0;
  for (std::size_t i = 0; i < c.bars.size(); ++i) {
    const Bar& b = c.bars[i];
    const double y = kBarTop + kRow * static_cast<double>(i) + (kRow - kThick) / 2;
    const double crossed = i < limited ? limit_at : -100;
    out += label(left - 10, y + kThick / 2 + 4, b.label, "end", b.strong ? "strong" : "") +
           bar(b, y, x, crossed);
    // The total is behind the bar, and behind the limit where that would cross it.
    double at = x(total(b)) + 8;
    if (crossed > at - 6 && crossed < at + text_width(b.total) + 4) at = crossed + 8;
    if (at + text_width(b.total) > c.width)
      out += label(std::min(x(total(b)), crossed > 0 ? crossed : c.width) - 8, y - 2, b.total, "end",
                   "strong halo");
    else
      out += label(at, y + kThick / 2 + 4, b.total, "start", "strong halo");
  }
  if (limit_in) {
    const double bottom_of_line = kBarTop + kRow * static_cast<double>(limited);
    // Near the right edge the label ends there instead of being centred.
    const bool beside = limit_at + text_width(c.limit.label) / 2 > c.width - 4;
    out += line(limit_at, kBarTop - 6, limit_at, bottom_of_line, "limit") +
           label(beside ? c.width - 4 : limit_at, kBarTop - 11, c.limit.label, beside ? "end" : "middle",
                 "bad strong");
  } else if (c.limit.value > 0)
    out += label(c.width - 4, kBarTop - 11, c.limit.label + ", beyond this chart →", "end", "dim");
  return out + "</svg>\n";
}

}  // namespace trainhost::report::html
