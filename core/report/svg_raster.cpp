// Draws the SVG files of picture_svg() as pixels. A shape is polygons with the rule "nonzero"; its coverage
// is counted exactly in x and by kRows samples in y. Lines are polygons around each segment.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/report/font_outlines.hpp"
#include "core/report/picture.hpp"

namespace trainhost::report {
namespace {

struct Point {
  double x = 0, y = 0;
};
using Polygon = std::vector<Point>;
using Attributes = std::map<std::string, std::string, std::less<>>;

constexpr int kRows = 4;  // samples per pixel in y

struct Paint {
  bool none = true;
  std::uint8_t rgb[3] = {0, 0, 0};
};

Paint paint_of(std::string_view css) {
  Paint p;
  if (css.size() != 7 || css[0] != '#') return p;  // "none", "transparent"
  p.none = false;
  for (std::size_t i = 0; i < 3; ++i)
    p.rgb[i] =
        static_cast<std::uint8_t>(std::strtoul(std::string(css.substr(1 + 2 * i, 2)).c_str(), nullptr, 16));
  return p;
}

class Canvas {
 public:
  Canvas(double width, double height, double scale)
      : scale_(scale),
        width_(static_cast<std::size_t>(std::lround(width * scale))),
        height_(static_cast<std::size_t>(std::lround(height * scale))),
        rgb_(width_ * height_ * 3, 255) {}

  void fill(const std::vector<Polygon>& shape, const Paint& paint, double opacity) {
    if (paint.none || opacity <= 0) return;
    double top = INFINITY, bottom = -INFINITY;
    for (const Polygon& p : shape)
      for (const Point& q : p) top = std::min(top, q.y * scale_), bottom = std::max(bottom, q.y * scale_);
    if (!(bottom > top)) return;
    const auto first = static_cast<std::size_t>(std::max(0.0, std::floor(top)));
    const auto last = static_cast<std::size_t>(std::clamp(std::ceil(bottom), 0.0, double(height_)));
    std::vector<float> covered(width_ + 2);
    for (std::size_t y = first; y < last; ++y) {
      std::fill(covered.begin(), covered.end(), 0.0f);
      for (int k = 0; k < kRows; ++k) cover(shape, static_cast<double>(y) + (k + 0.5) / kRows, covered);
      for (std::size_t x = 0; x < width_; ++x)
        if (covered[x] > 0) blend(x, y, paint, opacity * std::min(1.0, double(covered[x])));
    }
  }
  Pixels pixels() && { return {width_, height_, std::move(rgb_)}; }

 private:
  /// Adds 1 / kRows times the covered part of each pixel on the line `y`.
  void cover(const std::vector<Polygon>& shape, double y, std::vector<float>& covered) {
    crossings_.clear();
    for (const Polygon& p : shape)
      for (std::size_t i = 0; i < p.size(); ++i) {
        const Point a = p[i], b = p[(i + 1) % p.size()];
        const double ay = a.y * scale_, by = b.y * scale_;
        if ((ay <= y) == (by <= y)) continue;
        crossings_.emplace_back((a.x + (b.x - a.x) * (y - ay) / (by - ay)) * scale_, by > ay ? 1 : -1);
      }
    std::sort(crossings_.begin(), crossings_.end());
    int winding = 0;
    for (std::size_t i = 0; i + 1 < crossings_.size(); ++i) {
      winding += crossings_[i].second;
      if (winding == 0) continue;
      const double a = std::clamp(crossings_[i].first, 0.0, double(width_)),
                   b = std::clamp(crossings_[i + 1].first, 0.0, double(width_));
      for (auto x = static_cast<std::size_t>(a); static_cast<double>(x) < b; ++x)
        covered[x] += static_cast<float>((std::min(b, double(x + 1)) - std::max(a, double(x))) / kRows);
    }
  }
  void blend(std::size_t x, std::size_t y, const Paint& paint, double part) {
    for (std::size_t c = 0; c < 3; ++c) {
      std::uint8_t& v = rgb_[(y * width_ + x) * 3 + c];
      v = static_cast<std::uint8_t>(std::lround(v + (paint.rgb[c] - v) * part));
    }
  }

  double scale_;
  std::size_t width_, height_;
  std::vector<std::uint8_t> rgb_;
  std::vector<std::pair<double, int>> crossings_;
};

Polygon circle(Point c, double r) {
  Polygon out;
  for (int i = 0; i < 24; ++i)
    out.push_back({c.x + r * std::cos(i * M_PI / 12), c.y + r * std::sin(i * M_PI / 12)});
  return out;
}

/// Polygons around the segments of lines, with round corners. `dashes`: lengths of line and gap in turn.
std::vector<Polygon> outline(const std::vector<Polygon>& lines, bool closed, double width,
                             const std::vector<double>& dashes) {
  std::vector<Polygon> out;
  const auto segment = [&](Point a, Point b) {
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    if (!(length > 0)) return;
    const double nx = -(b.y - a.y) / length * width / 2, ny = (b.x - a.x) / length * width / 2;
    out.push_back({{a.x + nx, a.y + ny}, {b.x + nx, b.y + ny}, {b.x - nx, b.y - ny}, {a.x - nx, a.y - ny}});
  };
  for (const Polygon& l : lines) {
    std::size_t dash = 0;
    double left = dashes.empty() ? 0 : dashes[0];
    for (std::size_t i = 0; i + (closed ? 0 : 1) < l.size(); ++i) {
      Point a = l[i];
      const Point b = l[(i + 1) % l.size()];
      if (dashes.empty()) {
        segment(a, b);
        // All polygons turn the same way, so that none cancels another.
        if (width > 1.2 && (i > 0 || closed)) out.push_back(circle(a, width / 2));
        continue;
      }
      for (double rest = std::hypot(b.x - a.x, b.y - a.y); rest > 0;) {
        const double part = std::min(left, rest);
        const Point to{a.x + (b.x - a.x) * part / rest, a.y + (b.y - a.y) * part / rest};
        if (dash % 2 == 0) segment(a, to);
        a = to, rest -= part, left -= part;
        if (left <= 1e-9) left = dashes[++dash % dashes.size()];
      }
    }
  }
  for (Polygon& p : out) {
    double area = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const Point a = p[i], b = p[(i + 1) % p.size()];
      area += a.x * b.y - b.x * a.y;
    }
    if (area < 0) std::reverse(p.begin(), p.end());
  }
  return out;
}

/// The commands M, L, H, V and Z with absolute positions.
std::vector<Polygon> path(const std::string& d) {
  std::vector<Polygon> out;
  Point at;
  for (const char* s = d.c_str(); *s;) {
    const char command = *s++;
    char* end = nullptr;
    const auto number = [&](double& v) { v = std::strtod(s, &end), s = end; };
    if (command == 'M' || command == 'L') number(at.x), number(at.y);
    if (command == 'H') number(at.x);
    if (command == 'V') number(at.y);
    if (command == 'M') out.emplace_back();
    if (std::string_view("MLHV").find(command) != std::string_view::npos && !out.empty())
      out.back().push_back(at);
  }
  return out;
}

/// The next code point of UTF-8 that html::text() has made valid, with its entities.
char32_t next_character(std::string_view& s) {
  for (const auto& [entity, c] : {std::pair<std::string_view, char32_t>{"&amp;", '&'},
                                  {"&lt;", '<'},
                                  {"&gt;", '>'},
                                  {"&quot;", '"'},
                                  {"&#39;", '\''}})
    if (s.starts_with(entity)) return s.remove_prefix(entity.size()), c;
  const auto first = static_cast<unsigned char>(s[0]);
  std::size_t n = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  n = std::min(n, s.size());
  char32_t c = n == 1 ? first : first & (0xffu >> (n + 1));
  for (std::size_t i = 1; i < n; ++i) c = c << 6 | (static_cast<unsigned char>(s[i]) & 0x3f);
  s.remove_prefix(n);
  return c;
}

const Glyph& glyph_of(char32_t c) {
  const auto all = glyphs();
  const auto at = std::lower_bound(all.begin(), all.end(), c, [](const Glyph& g, char32_t v) {
    return static_cast<char32_t>(g.character) < v;
  });
  if (at != all.end() && static_cast<char32_t>(at->character) == c) return *at;
  return glyph_of('?');
}

std::vector<Polygon> letters(std::string_view text, double x, double y, double size, double anchor) {
  std::vector<Polygon> out;
  double width = 0;
  const double unit = size / kFontUnits;
  for (std::string_view s = text; !s.empty();) width += glyph_of(next_character(s)).advance * unit;
  x -= width * anchor;
  for (std::string_view s = text; !s.empty();) {
    const Glyph& g = glyph_of(next_character(s));
    const std::int16_t* n = contours().data() + g.first;
    for (unsigned k = 0; k < g.contours; ++k) {
      Polygon p(static_cast<std::size_t>(*n++));
      for (Point& q : p) q.x = x + *n++ * unit, q.y = y - *n++ * unit;
      out.push_back(std::move(p));
    }
    x += g.advance * unit;
  }
  return out;
}

/// Rules of a style element outside of @media: selector of classes and at most one element name.
struct Rule {
  std::string element;
  std::vector<std::string> classes;
  Attributes set;
};

std::vector<std::string> split(std::string_view s, char by) {
  std::vector<std::string> out;
  while (!s.empty()) {
    const std::size_t end = std::min(s.find(by), s.size());
    if (end) out.emplace_back(s.substr(0, end));
    s.remove_prefix(std::min(end + 1, s.size()));
  }
  return out;
}

std::vector<Rule> rules_of(std::string_view css) {
  std::vector<Rule> out;
  css = css.substr(0, css.find("@media"));
  for (const std::string& rule : split(css, '}')) {
    const std::size_t brace = rule.find('{');
    if (brace == std::string::npos) continue;
    Rule r;
    const std::string selector = rule.substr(rule.find_first_not_of("\n "), brace);
    r.classes = split(std::string_view(selector).substr(0, selector.find('{')), '.');
    if (!r.classes.empty() && rule[rule.find_first_not_of("\n ")] != '.')
      r.element = r.classes.front(), r.classes.erase(r.classes.begin());
    for (const std::string& d : split(std::string_view(rule).substr(brace + 1), ';')) {
      const std::size_t colon = d.find(':');
      if (colon != std::string::npos) r.set[d.substr(0, colon)] = d.substr(colon + 1);
    }
    out.push_back(std::move(r));
  }
  return out;
}

class Drawing {
 public:
  explicit Drawing(std::string_view svg) : rest_(svg) {}

  Pixels draw(double scale) {
    std::vector<Rule> rules;
    std::vector<Point> moved = {{0, 0}};
    std::string name;
    Attributes a;
    std::optional<Canvas> canvas;
    while (next(name, a)) {
      if (name == "svg")
        canvas.emplace(number(a, "width"), number(a, "height"), scale);
      else if (name == "style")
        rules = rules_of(content());
      else if (name == "title" || name == "desc")
        content();
      else if (name == "g") {
        Point by = moved.back();
        if (const auto t = a.find("transform"); t != a.end()) {
          const std::vector<std::string> parts = split(std::string_view(t->second).substr(10), ' ');
          by.x += std::strtod(parts[0].c_str(), nullptr), by.y += std::strtod(parts[1].c_str(), nullptr);
        }
        moved.push_back(by);
      } else if (name == "/g")
        moved.pop_back();
      else if (canvas)
        element(*canvas, rules, name, a, moved.back());
    }
    return canvas ? std::move(*canvas).pixels() : Pixels{};
  }

 private:
  static double number(const Attributes& a, std::string_view key, double otherwise = 0) {
    const auto at = a.find(key);
    return at == a.end() ? otherwise : std::strtod(at->second.c_str(), nullptr);
  }

  /// The next tag; its name has a "/" where it ends an element.
  bool next(std::string& name, Attributes& a) {
    const std::size_t begin = rest_.find('<'), end = rest_.find('>', begin);
    if (end == std::string_view::npos) return false;
    std::string_view tag = rest_.substr(begin + 1, end - begin - 1);
    rest_.remove_prefix(end + 1);
    if (tag.ends_with('/')) tag.remove_suffix(1);
    name = tag.substr(0, tag.find(' '));
    a.clear();
    tag.remove_prefix(name.size());
    for (std::size_t eq; (eq = tag.find("=\"")) != std::string_view::npos;) {
      const std::size_t close = tag.find('"', eq + 2);
      a[std::string(tag.substr(1, eq - 1))] = tag.substr(eq + 2, close - eq - 2);
      tag.remove_prefix(close + 1);
    }
    return true;
  }
  /// The text up to the next tag.
  std::string_view content() {
    const std::string_view out = rest_.substr(0, rest_.find('<'));
    rest_.remove_prefix(out.size());
    return out;
  }

  void element(Canvas& canvas, const std::vector<Rule>& rules, const std::string& name, const Attributes& a,
               Point by) {
    Attributes style;
    const auto has = a.find("class");
    const std::vector<std::string> classes = split(has == a.end() ? "" : has->second, ' ');
    for (const Rule& r : rules)
      if ((r.element.empty() || r.element == name) &&
          std::all_of(r.classes.begin(), r.classes.end(), [&](const std::string& c) {
            return std::find(classes.begin(), classes.end(), c) != classes.end();
          }))
        for (const auto& [key, value] : r.set) style[key] = value;
    std::vector<Polygon> shape;
    bool closed = true;
    if (name == "rect") {
      const double x = number(a, "x"), y = number(a, "y"), w = number(a, "width"), h = number(a, "height");
      shape = {{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}};
    } else if (name == "circle") {
      shape = {circle({number(a, "cx"), number(a, "cy")}, number(a, "r"))};
    } else if (name == "path") {
      shape = path(a.at("d"));
      closed = a.at("d").ends_with('Z');
    } else if (name == "text") {
      const auto anchor = a.find("text-anchor");
      const double shift = anchor == a.end() || anchor->second == "start" ? 0
                           : anchor->second == "middle"                   ? 0.5
                                                                          : 1;
      // A font of a browser is narrower, which text_width() reckons with.
      shape = letters(content(), number(a, "x"), number(a, "y"), number(a, "font-size", 12) * 0.94, shift);
    } else {
      return;
    }
    for (Polygon& p : shape)
      for (Point& q : p) q.x += by.x, q.y += by.y;
    const auto text_of = [&](const char* key, const char* otherwise) {
      const auto at = style.find(key);
      return at == style.end() ? std::string(otherwise) : at->second;
    };
    const Paint fill = paint_of(text_of("fill", "#000000")), stroke = paint_of(text_of("stroke", "none"));
    const double opacity = number(style, "opacity", 1);
    const auto stroked = [&] {
      if (stroke.none) return;
      std::vector<double> dashes;
      for (const std::string& d : split(text_of("stroke-dasharray", ""), ' '))
        dashes.push_back(std::strtod(d.c_str(), nullptr));
      canvas.fill(outline(shape, closed, number(style, "stroke-width", 1), dashes), stroke, opacity);
    };
    if (name == "text") {
      stroked();  // the halo is below the letters
      canvas.fill(shape, fill, opacity);
      if (style.contains("font-weight")) canvas.fill(outline(shape, true, 0.55, {}), fill, opacity);
      return;
    }
    canvas.fill(shape, fill, opacity * number(style, "fill-opacity", 1));
    stroked();
  }

  std::string_view rest_;
};

}  // namespace

Pixels rasterized(std::string_view svg, double scale) { return Drawing(svg).draw(scale); }

}  // namespace trainhost::report
