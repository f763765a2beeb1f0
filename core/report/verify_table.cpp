// See verify_report.hpp.
#include "core/report/verify_report.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/base/text.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {
namespace {

/// Whole numbers with all digits, everything else with four significant digits.
std::string format_figure(const std::optional<double>& x) {
  if (!x) return "-";
  const bool whole = *x >= 0 && *x < 1e15 && *x == std::floor(*x);
  return whole ? format_count(static_cast<std::uint64_t>(*x)) : fmt::format("{:.4g}", *x);
}

Style style_of(verify::Status s) {
  return s == verify::Status::kHeld        ? Style::kGood
         : s == verify::Status::kFalsified ? Style::kBad
                                           : Style::kDim;
}

}  // namespace

std::string verify_table(const std::vector<verify::Result>& results, const Terminal& t) {
  Table table("nnrrl");
  table.row({"check", "status", "measured", "bound", "contract"});
  table.rule();
  std::string details;
  for (const verify::Result& r : results) {
    table.row(
        {r.id, verify::status_name(r.status), format_figure(r.measured), format_figure(r.bound), r.title});
    details +=
        wrapped(fmt::format("  {} {}: {}", r.id, styled(t, style_of(r.status), verify::status_name(r.status)),
                            escaped(r.detail, 2000)),
                line_width(t), "    ") +
        "\n";
  }
  return table.str({.width = line_width(t), .drop = {4, 3, 2}}) + "\n" + details;
}

}  // namespace trainhost::report
