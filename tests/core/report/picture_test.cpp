// Pictures of pages: what the SVG file contains, which pixels it becomes, and that PNG files are valid.
#include <zlib.h>

#include <boost/test/unit_test.hpp>
#include <map>

#include "core/report/html_axis.hpp"
#include "core/report/html_style.hpp"
#include "core/report/picture.hpp"
#include "core/report/plan_report.hpp"
#include "tests/support/sample_results.hpp"

using namespace trainhost;

namespace {

bool picture_has(const std::string& all, const std::string& text) {
  return all.find(text) != std::string::npos;
}

std::string colour_at(const report::Pixels& p, std::size_t x, std::size_t y) {
  std::string out;
  for (std::size_t c = 0; c < 3; ++c) {
    constexpr const char* kDigits = "0123456789abcdef";
    const std::uint8_t v = p.rgb.at((y * p.width + x) * 3 + c);
    out += kDigits[v / 16], out += kDigits[v % 16];
  }
  return out;
}

std::string drawing(const std::string& style, const std::string& body) {
  return "<svg width=\"10\" height=\"10\"><style>" + style + "</style>" + body + "</svg>";
}

std::uint32_t number_at(const std::string& s, std::size_t at) {
  std::uint32_t v = 0;
  for (std::size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<unsigned char>(s.at(at + i));
  return v;
}

/// Data of the chunks of a PNG file by their type, with checked checksums.
std::map<std::string, std::string> png_chunks(const std::string& png) {
  std::map<std::string, std::string> out;
  BOOST_REQUIRE(png.starts_with("\x89PNG\r\n\x1a\n"));
  for (std::size_t at = 8; at < png.size();) {
    const std::uint32_t size = number_at(png, at);
    const std::string body = png.substr(at + 4, 4 + size);
    BOOST_TEST(number_at(png, at + 8 + size) ==
               crc32_z(0, reinterpret_cast<const Bytef*>(body.data()), body.size()));
    out[body.substr(0, 4)] = body.substr(4);
    at += 12 + size;
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(picture_suite)

BOOST_AUTO_TEST_CASE(a_picture_has_the_charts_of_its_page) {
  const auto plan = test::sample_plan();
  const std::string svg = report::picture_svg(report::plan_page(plan));
  BOOST_TEST(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* text : {"Memory by tier", "Memory over one step", "Memory by estimator", "Fits"})
    BOOST_TEST(picture_has(svg, text), text);
  BOOST_TEST(!picture_has(svg, "var("));  // programs for drawings know no custom properties
  const std::string sweep = report::picture_svg(report::sweep_page(test::sample_sweep()));
  BOOST_TEST(picture_has(sweep, "Total memory over"));
  const std::string search = report::picture_svg(report::search_page(test::sample_search()));
  BOOST_TEST(picture_has(search, "Memory against time"));
  BOOST_TEST(picture_has(search, "Step time by cause"));
}

BOOST_AUTO_TEST_CASE(text_from_outside_stays_text) {
  planning::PlanResult p = test::sample_plan();
  p.model.name = p.run_line = p.budget_source =
      "</svg><script>alert(1)</script>\"<figure><svg viewBox=\"0 0 960 9\">";
  const std::string svg = report::picture_svg(report::plan_page(p));
  BOOST_TEST(!picture_has(svg, "<script"));
  BOOST_TEST(svg.find("</svg>") == svg.size() - 7);
}

BOOST_AUTO_TEST_CASE(the_dark_colours_come_last) {
  const std::string style = report::html::svg_style();
  const std::size_t dark = style.find("@media(prefers-color-scheme:dark){");
  BOOST_REQUIRE(dark != std::string::npos);
  BOOST_TEST(picture_has(style.substr(0, dark), ".paper{fill:#ffffff}"));
  BOOST_TEST(picture_has(style.substr(dark), ".paper{fill:#14171c}"));
  BOOST_TEST(picture_has(style.substr(0, dark), ".curve.k0{fill:none;stroke:#2563c9"));
}

BOOST_AUTO_TEST_CASE(shapes_cover_their_pixels) {
  const std::string style =
      "rect{fill:#ff0000}.line{fill:none;stroke:#0000ff;stroke-width:2}.half{opacity:.5}";
  const report::Pixels p = report::rasterized(
      drawing(style,
              "<rect x=\"2\" y=\"2\" width=\"3.5\" height=\"3\"/><rect class=\"half\" x=\"0\" y=\"8\" "
              "width=\"2\" height=\"2\"/><g transform=\"translate(0 1)\"><path class=\"line\" d=\"M6 "
              "0V5H10\"/></g>"),
      2);
  BOOST_TEST(p.width == 20u);
  BOOST_TEST(colour_at(p, 0, 0) == "ffffff");
  BOOST_TEST(colour_at(p, 4, 4) == "ff0000");
  BOOST_TEST(colour_at(p, 3, 4) == "ffffff");
  BOOST_TEST(colour_at(p, 9, 9) == "ff0000");
  BOOST_TEST(colour_at(p, 4, 10) == "ffffff");
  BOOST_TEST(colour_at(p, 1, 17) == "ff8080");
  BOOST_TEST(colour_at(p, 12, 5) == "0000ff");   // the vertical part, moved down by 1
  BOOST_TEST(colour_at(p, 17, 12) == "0000ff");  // the horizontal part
  BOOST_TEST(colour_at(p, 17, 15) == "ffffff");
}

BOOST_AUTO_TEST_CASE(letters_are_dark_on_the_paper) {
  const report::Pixels p = report::rasterized(
      drawing("text{fill:#000000}", "<text x=\"1\" y=\"9\" font-size=\"12\">I&amp;\xe2\x82\xac</text>"), 4);
  std::size_t dark = 0;
  for (const std::uint8_t v : p.rgb) dark += v < 64;
  BOOST_TEST(dark > 100u);
  BOOST_TEST(dark < p.rgb.size() / 2);
}

BOOST_AUTO_TEST_CASE(a_png_file_has_the_pixels) {
  report::Pixels p{300, 2, {}};
  for (std::size_t i = 0; i < 300 * 2 * 3; ++i)
    p.rgb.push_back(static_cast<std::uint8_t>(i < 20 ? i * 37 : 200));
  auto chunks = png_chunks(report::png_file(p));
  BOOST_REQUIRE(chunks.size() == 3u);
  BOOST_TEST(number_at(chunks["IHDR"], 0) == 300u);
  BOOST_TEST(number_at(chunks["IHDR"], 4) == 2u);
  BOOST_TEST(chunks["IHDR"].substr(8) == std::string("\x08\x02\0\0\0", 5));  // 8 bits, RGB
  std::string rows(2 * 901, '\0');
  uLongf size = rows.size();
  const std::string& data = chunks["IDAT"];
  BOOST_REQUIRE(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                           reinterpret_cast<const Bytef*>(data.data()), data.size()) == Z_OK);
  BOOST_REQUIRE(size == 2u * 901);
  for (std::size_t y = 0; y < 2; ++y)
    for (std::size_t i = 0; i < 900; ++i) {
      const unsigned up = y ? p.rgb[i] : 0;
      BOOST_REQUIRE(((static_cast<unsigned char>(rows[y * 901 + 1 + i]) + up) & 255) == p.rgb[y * 900 + i]);
    }
}

BOOST_AUTO_TEST_CASE(a_plan_becomes_a_small_file) {
  const std::string png = report::picture_png(report::plan_page(test::sample_plan()));
  BOOST_TEST(number_at(png, 16) == 2016u);
  BOOST_TEST(png.size() < 400'000u);
  BOOST_TEST(png == report::picture_png(report::plan_page(test::sample_plan())));
}

BOOST_AUTO_TEST_SUITE_END()
