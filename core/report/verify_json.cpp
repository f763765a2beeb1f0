// Writes the results of `trainhost verify` as JSON. The keys are documented in docs/cli.md.
#include <cmath>

#include "core/base/json_value.hpp"
#include "core/report/verify_report.hpp"

namespace trainhost::report {
namespace {

using Json = JsonValue;

Json number(const std::optional<double>& x) { return x && std::isfinite(*x) ? Json(*x) : Json(nullptr); }

}  // namespace

std::string verify_json(const std::vector<verify::Result>& results) {
  Json all = Json::array();
  for (const verify::Result& r : results)
    all.push_back({{"id", r.id},
                   {"status", verify::status_name(r.status)},
                   {"measured", number(r.measured)},
                   {"bound", number(r.bound)},
                   {"detail", r.detail}});
  return Json{{"results", std::move(all)}}.dump(2);
}

}  // namespace trainhost::report
