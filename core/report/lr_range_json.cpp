// Writes the trainhost.lr_range/1 object: every step of the range test, and the suggestion.
#include <fmt/format.h>

#include "core/base/json_value.hpp"
#include "core/report/lr_range_report.hpp"

namespace trainhost::report {

std::string lr_range_json(const training::LrRangeResult& v) {
  using training::RangeEnd;
  const auto number = [](const std::optional<double>& x) { return x ? JsonValue(*x) : JsonValue(nullptr); };
  JsonValue points = JsonValue::array();
  for (std::size_t i = 0; i < v.points.size(); ++i)
    points.push_back({{"step", std::uint64_t{i + 1}},
                      {"lr", v.points[i].lr},
                      {"loss", v.points[i].loss},
                      {"smoothed", v.suggestion.smoothed[i]},
                      {"grad_norm", v.points[i].grad_norm}});
  JsonValue j = {{"schema", "trainhost.lr_range/1"},
                 {"from", v.range.from},
                 {"to", v.range.to},
                 {"steps", v.range.steps},
                 {"end", v.end == RangeEnd::kComplete   ? "complete"
                         : v.end == RangeEnd::kDiverged ? "diverged"
                                                        : "nonfinite"},
                 {"suggestion", number(v.suggestion.lr)},
                 {"set", v.suggestion.lr ? JsonValue(fmt::format("optimizer.lr={:g}", *v.suggestion.lr))
                                         : JsonValue(nullptr)},
                 {"reason", v.suggestion.reason},
                 {"steepest", number(v.suggestion.steepest)},
                 {"minimum", number(v.suggestion.minimum)},
                 {"points", std::move(points)}};
  return j.dump(2);
}

}  // namespace trainhost::report
