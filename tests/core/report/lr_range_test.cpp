// The plot, the SVG file and the JSON of a range test.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/report/lr_range_report.hpp"

using namespace trainhost;
using nlohmann::json;
using training::LrRange, training::LrRangeResult, training::RangeEnd;

namespace {

/// A loss that falls around 1e-3 and explodes at 0.1.
LrRangeResult range_result(std::uint64_t points = 100, RangeEnd end = RangeEnd::kComplete) {
  LrRangeResult v{LrRange{1e-6, 1, 100}, {}, end, {}};
  for (std::uint64_t step = 0; step < points; ++step) {
    const double lr = v.range.rate(step);
    v.points.push_back({lr, lr > 0.1 ? 1e9 : 10 - 4 / (1 + std::pow(1e-3 / lr, 2)), 1});
  }
  v.suggestion = training::suggest_lr(v.range, v.points, v.end);
  return v;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lr_range_report)

BOOST_AUTO_TEST_CASE(the_plot_shows_the_fall_and_marks_the_suggestion) {
  const LrRangeResult v = range_result();
  BOOST_REQUIRE(v.suggestion.lr.has_value());
  const std::string plot = report::lr_range_plot(v, {});
  const std::vector<std::string> lines = lines_of(plot);
  BOOST_REQUIRE(lines.size() == 20u);
  // A diverged loss is at the upper border and does not stretch the axis.
  BOOST_TEST(lines[1].find("11.33 +") != std::string::npos, lines[1]);
  BOOST_TEST(lines[16].find("6 +") != std::string::npos, lines[16]);
  BOOST_TEST(lines[1].find("^^^") != std::string::npos, lines[1]);
  // The mark is above the label of its rate, 1e-3, up to rounding.
  const std::size_t mark = lines[1].find('|'), label = lines[18].find("1e-3");
  BOOST_TEST(std::abs(static_cast<double>(mark) - static_cast<double>(label)) <= 2, plot);
  for (const unsigned width : {20u, 40u, 72u, 200u})
    for (const std::string& line : lines_of(report::lr_range_plot(v, {.width = width, .width_known = true})))
      BOOST_TEST(line.size() <= std::max(50u, width), line);
}

BOOST_AUTO_TEST_CASE(a_test_without_steps_or_with_equal_losses_is_rendered) {
  const LrRangeResult none = range_result(0, RangeEnd::kNonfinite);
  BOOST_TEST(report::lr_range_plot(none, {}) == "");
  BOOST_TEST(
      report::lr_range_suggestion(none) ==
      "no suggestion: the loss is not finite after 0 of 100 steps; start the range at a smaller rate\n");
  BOOST_TEST(report::lr_range_svg(none).ends_with("</svg>\n"));
  LrRangeResult flat = range_result(20);
  for (training::LrPoint& p : flat.points) p.loss = 3;
  flat.suggestion = training::suggest_lr(flat.range, flat.points, flat.end);
  BOOST_TEST(report::lr_range_plot(flat, {}).find("3 +*****") != std::string::npos);
  BOOST_TEST(report::lr_range_svg(flat).find("nan") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(json_and_svg_have_every_step) {
  const LrRangeResult v = range_result(90, RangeEnd::kDiverged);
  const json j = json::parse(report::lr_range_json(v));
  BOOST_TEST(j["points"].size() == 90u);
  BOOST_TEST(j["points"][89]["loss"] == 1e9);
  BOOST_TEST(j["end"] == "diverged");
  BOOST_TEST(j["suggestion"] == *v.suggestion.lr);
  BOOST_TEST(j["steepest"] == *v.suggestion.steepest);
  const std::string svg = report::lr_range_svg(v);
  std::size_t marks = 0;
  for (std::size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) ++marks;
  BOOST_TEST(marks == 90u);
  BOOST_TEST(report::lr_range_suggestion(v).starts_with(
      "ended after 90 of 100 steps, at 0.25: the loss diverges\n"));
}

BOOST_AUTO_TEST_SUITE_END()
