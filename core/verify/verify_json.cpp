// The results as JSON (keys: docs/cli.md). The table is in core/report/verify_table.cpp.
#include <cmath>

#include "core/base/json_value.hpp"
#include "core/verify/verify.hpp"

namespace trainhost::verify {
namespace {

using Json = JsonValue;

Json number(const std::optional<double>& x) { return x && std::isfinite(*x) ? Json(*x) : Json(nullptr); }

}  // namespace

std::string results_json(const std::vector<Result>& results) {
  Json all = Json::array();
  for (const Result& r : results)
    all.push_back({{"id", r.id},
                   {"status", status_name(r.status)},
                   {"measured", number(r.measured)},
                   {"bound", number(r.bound)},
                   {"detail", r.detail}});
  return Json{{"results", std::move(all)}}.dump(2);
}

}  // namespace trainhost::verify
