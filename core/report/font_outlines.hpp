// Outlines of the characters that charts use, so that a picture needs no font of the machine.
#pragma once
#include <cstdint>
#include <span>

namespace trainhost::report {

/// Units of an em; y rises from the baseline.
inline constexpr double kFontUnits = 1024;

struct Glyph {
  std::int16_t character, advance;  // code point; width in units
  std::uint16_t first, contours;    // first number in contours(), number of contours
};
/// By character.
std::span<const Glyph> glyphs();
/// Each contour: number of points, then x and y of each; the last point is connected to the first.
std::span<const std::int16_t> contours();

}  // namespace trainhost::report
