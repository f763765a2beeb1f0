// The results as a JSON object and as a table. Texts of a plugin may be in a detail: they are escaped for
// terminals. The JSON keys are those of the interface and never change; the table may.
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

/// Bytes and counts to the last digit, everything else to four.
std::string shown(const std::optional<double>& x) {
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
                   {"status", word(r.status)},
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
    table.row({r.id, word(r.status), shown(r.measured), shown(r.bound), r.title});
    details += fmt::format("  {} {}: {}\n", r.id, report::styled(t, style_of(r.status), word(r.status)),
                           escaped(r.detail, 2000));
  }
  return table.str() + "\n" + details;
}

}  // namespace trainhost::verify
