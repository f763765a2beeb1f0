// SVG elements that all charts use: frame, text, line. The functions return SVG text and keep no state.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/report/html_axis.hpp"
#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"

namespace trainhost::report::html {

/// Opens the SVG element; sizes in SVG units. The caller appends marks and "</svg>".
inline std::string open_svg(double width, double height, std::string_view title,
                            std::string_view description) {
  return fmt::format(
      "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\">\n<title>{}</title>\n<desc>{}</desc>\n",
      width < kWidth ? "narrow" : "wide", px(width), px(height), text(title), text(description, 1000));
}

/// anchor: "start", "middle" or "end".
inline std::string label(double x, double y, std::string_view plain, std::string_view anchor,
                         std::string_view css = {}) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", px(x), px(y), anchor,
                     css.empty() ? std::string() : fmt::format(" class=\"{}\"", css), text(plain));
}

inline std::string line(double x1, double y1, double x2, double y2, std::string_view css) {
  return fmt::format("<path class=\"{}\" d=\"M{} {}L{} {}\"/>\n", css, px(x1), px(y1), px(x2), px(y2));
}

/// The title of a mark, shown as its tooltip; line breaks are kept.
inline std::string tip(std::string_view plain) {
  std::string out = "<title>";
  for (std::size_t lines = 0; lines < 20; ++lines) {
    const std::size_t end = plain.find('\n');
    out += text(plain.substr(0, end), 160);
    if (end == std::string_view::npos) break;
    out += "\n";
    plain.remove_prefix(end + 1);
  }
  return out + "</title>";
}

}  // namespace trainhost::report::html
