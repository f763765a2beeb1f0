// Writes the trainhost.sweep/1 object: every point of every curve, and the crossovers.

#include "core/base/json_value.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"

namespace trainhost::report {
namespace {

using Json = JsonValue;

Json point_json(const planning::SweepPoint& p) {
  Json j = {{"x", p.x}, {"value", p.label}};
  // A point that cannot be planned has its error in place of figures; the curve continues.
  if (!p.error.empty()) {
    j["error"] = p.error;
    return j;
  }
  Json components = Json::object();
  for (const auto& [c, bytes] : p.components) components[std::string(name(c))] = bytes;
  j["total_bytes"] = p.total;
  j["compute_bytes"] = p.compute;
  j["fits"] = p.fits;
  j["verdict"] = name(p.verdict);
  j["host_bytes"] = p.host_bytes;
  j["components"] = std::move(components);
  if (!p.how.empty()) j["how"] = p.how;
  return j;
}

}  // namespace

std::string sweep_json(const planning::SweepResult& v) {
  Json curves = Json::array(), crossovers = Json::array();
  for (const planning::SweepCurve& c : v.curves) {
    Json points = Json::array();
    for (const planning::SweepPoint& p : c.points) points.push_back(point_json(p));
    curves.push_back({{"estimator", c.estimator}, {"kind", name(c.claim)}, {"points", std::move(points)}});
  }
  for (const planning::Crossover& c : v.crossovers)
    crossovers.push_back({{"estimator", c.estimator}, {"x", c.x}, {"sentence", c.sentence}});
  Json j = {{"schema", "trainhost.sweep/1"},
            {"model", v.model},
            {"run", v.run_line},
            {"key", v.key},
            {"unit", v.unit},
            {"budget_bytes", v.budget_known ? Json(v.budget_bytes) : Json(nullptr)},
            // null: no budget is known.
            {"budget_source", v.budget_source},
            {"curves", std::move(curves)},
            {"crossovers", std::move(crossovers)},
            {"notes", v.notes}};
  add_file_keys(j, v.file_keys);
  return j.dump(2);
}

}  // namespace trainhost::report
