// Puts the charts of a page into one SVG file. They are read from the page, so that a picture has what the
// page has.
#include <cmath>

#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"
#include "core/report/html_style.hpp"
#include "core/report/html_svg.hpp"
#include "core/report/picture.hpp"

namespace trainhost::report {
namespace {

using namespace html;

constexpr double kEdge = 24, kInner = kWidth;  // margin; width of a chart
constexpr std::size_t kMostCharts = 8;

/// The text between the first `begin` and the next `end`; "" without them. Moves `all` behind it.
std::string_view take(std::string_view& all, std::string_view begin, std::string_view end) {
  const std::size_t a = all.find(begin);
  const std::size_t b = a == std::string_view::npos ? a : all.find(end, a + begin.size());
  if (b == std::string_view::npos) return all = {}, std::string_view();
  const std::string_view out = all.substr(a + begin.size(), b - a - begin.size());
  all.remove_prefix(b + end.size());
  return out;
}

/// Lines of at most `width` pixels at `size` pixels of height.
std::vector<std::string> wrapped(const std::string& plain, double size, double width) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < plain.size();) {
    const std::size_t end = std::min(plain.find(' ', at), plain.size());
    const std::string word = plain.substr(at, end - at);
    if (!lines.back().empty() && text_width(lines.back() + " " + word) * size / 12 > width)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    at = end + 1;
  }
  return lines;
}

class Picture {
 public:
  void paragraph(const std::string& plain, double size, std::string_view css) {
    for (const std::string& l : wrapped(escaped(plain, 600), size, kInner)) {
      y_ += size * 1.35;
      body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" class=\"{}\">{}</text>\n", px(kEdge),
                           px(y_), px(size), css, text(l));
    }
  }
  void space(double pixels) { y_ += pixels; }

  /// `svg`: an element of open_svg().
  void chart(std::string_view legend, std::string_view svg) {
    std::string_view rest = svg;
    const std::string_view box = take(rest, "viewBox=\"0 0 960 ", "\""), title = take(rest, "<title>", "<");
    take(rest, "<desc>", "</desc>");
    y_ += 34;
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"15\" class=\"strong\">{}</text>\n", px(kEdge),
                         px(y_), title);
    y_ += 8;
    entries(legend);
    body_ += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", px(kEdge), px(y_),
                         rest.substr(0, rest.find("</svg>")));
    y_ += std::stod(std::string(box));
  }

  std::string str(const std::string& name) const {
    const double width = kInner + 2 * kEdge, height = y_ + kEdge;
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
               "height=\"{1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
               "<rect class=\"paper\" x=\"0\" y=\"0\" width=\"{0}\" height=\"{1}\"/>\n",
               px(width), px(std::ceil(height)), text(name), svg_style()) +
           body_ + "</svg>\n";
  }

 private:
  /// Swatches with names, in rows.
  void entries(std::string_view legend) {
    double x = kEdge;
    while (!legend.empty()) {
      const std::string css(take(legend, "<i class=\"", "\">"));
      const std::string_view name = take(legend, "</i>", "</li>");
      if (css.empty()) break;
      const double width = 30 + text_width(name) * 1.05;
      if (x == kEdge) y_ += 16;
      if (x > kEdge && x + width > kEdge + kInner) x = kEdge, y_ += 19;
      body_ += fmt::format(
          "<rect class=\"part {}\" x=\"{}\" y=\"{}\" width=\"11\" height=\"11\"/>\n"
          "<text x=\"{}\" y=\"{}\">{}</text>\n",
          css, px(x), px(y_ - 10), px(x + 16), px(y_), name);
      x += width;
    }
    y_ += x > kEdge ? 12 : 0;
  }

  std::string body_;
  double y_ = kEdge - 8;
};

}  // namespace

std::string picture_svg(const Page& page) {
  Picture p;
  p.paragraph(page.title, 22, "strong");
  if (!page.subtitle.empty()) p.paragraph(page.subtitle, 12, "dim");
  p.space(8);
  p.paragraph(page.answer, 17,
              page.tone == Tone::kGood  ? "good strong"
              : page.tone == Tone::kBad ? "bad strong"
                                        : "strong");
  if (!page.detail.empty()) p.paragraph(page.detail, 12, "dim");
  std::string_view rest = page.sections;
  for (std::size_t n = 0; n < kMostCharts;) {
    const std::size_t figure = rest.find("<figure"), collapsed = rest.find("<details>");
    if (figure == std::string_view::npos) break;
    if (collapsed < figure) {
      take(rest, "<details>", "</details>");
      continue;
    }
    const std::string_view whole = take(rest, "<figure", "</figure>");
    const std::size_t svg = whole.find("<svg ");
    if (svg == std::string_view::npos) continue;
    p.chart(whole.substr(0, svg), whole.substr(svg));
    ++n;
  }
  return p.str(page.title + ": " + page.answer);
}

std::string picture_png(const Page& page) { return png_file(rasterized(picture_svg(page), 2)); }

namespace {
constexpr const char *kSvg = "--svg picture.svg", *kPng = "--png picture.png";
}

void PictureFiles::require_writable() const {
  if (!svg.empty()) checkpoint::require_writable("--svg", svg, kSvg);
  if (!png.empty()) checkpoint::require_writable("--png", png, kPng);
}

void PictureFiles::write(const Page& page) const {
  if (!svg.empty()) checkpoint::write_output("--svg", svg, picture_svg(page), kSvg);
  if (!png.empty()) checkpoint::write_output("--png", png, picture_png(page), kPng);
}

}  // namespace trainhost::report
