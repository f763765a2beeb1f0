// The charts of a page as one picture: an SVG file, and that file as pixels.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/report/html_page.hpp"

namespace trainhost::report {

/// Title, answer and every chart of the page that is not within a collapsed part, one below the other, with
/// legends. The file has its own colours, for light and dark, and needs no other.
std::string picture_svg(const html::Page& page);

struct Pixels {
  std::size_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // 3 per pixel, rows from the top
};
/// Draws what picture_svg() writes, in light colours, `scale` pixels per unit: rectangles, circles, paths of
/// straight lines, and text of the characters in font_outlines. Elements that it does not know are left out.
Pixels rasterized(std::string_view svg, double scale);

/// A PNG file, 8 bits per channel. The same pixels give the same bytes.
std::string png_file(const Pixels& p);

/// png_file() of the picture at twice its size.
std::string picture_png(const html::Page& page);

/// Checks and writes the files of --svg and --png; "" = none.
struct PictureFiles {
  std::string svg, png;
  void require_writable() const;
  void write(const html::Page& page) const;
};

}  // namespace trainhost::report
