// Writes sample pages of plan, sweep and search with the numbers that they must show, for pages_test.py.
//   interop_sample_pages DIR
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/report/plan_report.hpp"
#include "tests/support/sample_results.hpp"

using namespace trainhost;
using Json = nlohmann::ordered_json;

namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

Json plan_numbers(const planning::PlanResult& v) {
  Json out = Json::parse(report::plan_json(v));
  out["timeline"] = Json::array();
  for (const planning::StepPhase& m : v.timeline) out["timeline"].push_back(m.bytes);
  return out;
}

Json sweep_numbers(const planning::SweepResult& v) {
  Json out = Json::object();
  for (const planning::SweepCurve& c : v.curves)
    for (const planning::SweepPoint& p : c.points) {
      Json row = Json::array();
      for (const auto& part : p.components) row.push_back(part.second);
      if (p.error.empty()) row.insert(row.end(), {p.compute, p.total});
      out[c.estimator][p.label] = row;
    }
  return out;
}

Json search_numbers(const planning::SearchResult& v) {
  Json out = {{"best", Json::array()}, {"pareto", Json::array()}};
  for (const auto& [name, rows] : {std::pair{"best", &v.best}, {"pareto", &v.pareto}})
    for (const planning::RankedLayout& r : *rows) out[name].push_back({r.step_seconds, r.device_bytes});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path dir = argv[1];
  const planning::PlanResult fits = test::sample_plan(), fits_not = test::sample_plan(32, 64 * test::kGiB);
  write(dir / "plan.html", report::plan_html(fits));
  write(dir / "plan.json", plan_numbers(fits).dump());
  write(dir / "plan_too_much.html", report::plan_html(fits_not));
  write(dir / "plan_too_much.json", plan_numbers(fits_not).dump());
  write(dir / "sweep.html", report::sweep_html(test::sample_sweep()));
  write(dir / "sweep.json", sweep_numbers(test::sample_sweep()).dump());
  write(dir / "search.html", report::search_html(test::sample_search()));
  write(dir / "search.json", search_numbers(test::sample_search()).dump());
}
