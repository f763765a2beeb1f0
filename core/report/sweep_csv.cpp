// Writes a sweep as CSV: one line per point and estimator, one column per component; sizes in bytes.
#include <set>

#include "core/report/csv.hpp"
#include "core/report/plan_report.hpp"

namespace trainhost::report {
namespace {

std::uint64_t bytes_of(const planning::SweepPoint& p, Component c) {
  for (const auto& [component, bytes] : p.components)
    if (component == c) return bytes;
  return 0;
}

}  // namespace

std::string sweep_csv(const planning::SweepResult& v) {
  std::set<Component> columns;
  for (const planning::SweepCurve& c : v.curves)
    for (const planning::SweepPoint& p : c.points)
      for (const auto& part : p.components) columns.insert(part.first);
  std::string out = "estimator,kind," + csv_field(v.key) + ",total_bytes,compute_bytes,fits";
  for (Component c : columns) out += "," + std::string(name(c));
  out += ",how,error,host_bytes,verdict\n";
  for (const planning::SweepCurve& c : v.curves)
    for (const planning::SweepPoint& p : c.points) {
      const bool planned = p.error.empty();
      const auto number = [&](std::uint64_t n) { return planned ? std::to_string(n) : std::string(); };
      out += csv_field(c.estimator) + "," + std::string(name(c.claim)) + "," + csv_field(p.label) + "," +
             number(p.total) + "," + number(p.compute) + "," + (planned ? p.fits ? "true" : "false" : "");
      for (Component column : columns) out += "," + number(bytes_of(p, column));
      out += "," + csv_field(p.how) + "," + csv_field(p.error) + "," + number(p.host_bytes) + "," +
             (planned ? std::string(name(p.verdict)) : "") + "\n";
    }
  return out;
}

}  // namespace trainhost::report
