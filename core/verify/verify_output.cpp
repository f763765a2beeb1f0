// The results as JSON (keys: docs/cli.md) and as a table. A detail may contain text from a plugin, so it is
// escaped for terminals.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/report/text_table.hpp"
#include "core/verify/verify.hpp"

namespace trainhost::verify {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& x) { return x && std::isfinite(*x) ? Json(*x) : Json(nullptr); }

/// Whole numbers with all digits, everything else with four significant digits.
std::string format_figure(const std::optional<double>& x) {
  if (!x) return "-";
  const bool whole = *x >= 0 && *x < 1e15 && *x == std::floor(*x);
  return whole ? format_count(static_cast<std::uint64_t>(*x)) : fmt::format("{:.4g}", *x);
}

report::Style style_of(Status s) {
  return s == Status::kHeld        ? report::Style::kGood
         : s == Status::kFalsified ? report::Style::kBad
                                   : report::Style::kDim;
}

}  // namespace

std::string results_json(const std::vector<Result>& results) {
  Json all = Json::array();
  for (const Result& r : results)
    all.push_back({{"id", r.id},
                   {"status", status_name(r.status)},
                   {"measured", number(r.measured)},
                   {"bound", number(r.bound)},
                   {"detail", r.detail}});
  return Json{{"results", std::move(all)}}.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string results_table(const std::vector<Result>& results, const report::Terminal& t) {
  report::Table table("llrrl");
  table.row({"check", "status", "measured", "bound", "contract"});
  table.rule();
  std::string details;
  for (const Result& r : results) {
    table.row({r.id, status_name(r.status), format_figure(r.measured), format_figure(r.bound), r.title});
    details +=
        fmt::format("  {} {}: {}\n", r.id, report::styled(t, style_of(r.status), status_name(r.status)),
                    escaped(r.detail, 2000));
  }
  return table.str() + "\n" + details;
}

}  // namespace trainhost::verify
