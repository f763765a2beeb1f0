// The renderings of a sweep (table, JSON, CSV, HTML) have the same content.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"

using namespace trainhost;

namespace {

planning::SweepResult small() {
  planning::SweepResult v;
  v.model = "tiny", v.key = "data.seq_len", v.unit = "tokens", v.budget_known = true, v.budget_bytes = 3000,
  v.budget_source = "memory.budget";
  v.curves.push_back(
      {"llama",
       Claim::kExact,
       {{512, "512", 2000, 2000, true, "", {{Component::kWeights, 1500}, {Component::kActivations, 500}}},
        {1024, "1024", 3500, 3500, false, "", {{Component::kWeights, 1500}, {Component::kActivations, 2000}}},
        {2048, "2048", 0, 0, false, "no, \"really\"", {}}}});
  v.crossovers.push_back({"llama", "no longer fits the budget from data.seq_len = 853", 853});
  return v;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sweep_report)

BOOST_AUTO_TEST_CASE(json_has_every_point_or_the_reason_why_it_is_not_valid) {
  const auto j = nlohmann::json::parse(report::sweep_json(small()));
  BOOST_TEST(j["schema"] == "trainhost.sweep/1");
  const auto& points = j["curves"][0]["points"];
  BOOST_TEST(points[1]["total_bytes"] == 3500);
  BOOST_TEST(points[1]["components"]["activations"] == 2000);
  BOOST_TEST(points[2]["error"] == "no, \"really\"");
  BOOST_TEST(!points[2].contains("total_bytes"));
  BOOST_TEST(j["crossovers"][0]["x"] == 853);
}

BOOST_AUTO_TEST_CASE(csv_quotes_what_needs_it_and_leaves_unplanned_cells_empty) {
  BOOST_TEST(
      report::sweep_csv(small()) ==
      "estimator,kind,data.seq_len,total_bytes,compute_bytes,fits,weights,activations,how,error,host_bytes,"
      "verdict\n"
      "llama,exact,512,2000,2000,true,1500,500,,,0,fits\n"
      "llama,exact,1024,3500,3500,false,1500,2000,,,0,fits\n"
      "llama,exact,2048,,,,,,,\"no, \"\"really\"\"\",,\n");
}

BOOST_AUTO_TEST_CASE(different_automatic_settings_are_shown_in_table_page_and_csv) {
  planning::SweepResult v = small();
  BOOST_TEST(report::sweep_html(v).find(">settings<") == std::string::npos);
  v.curves[0].points[1].how = "streamed, recompute none";
  for (const std::string& text : {report::sweep_table(v, {}), report::sweep_html(v), report::sweep_csv(v)})
    BOOST_TEST(text.find("streamed, recompute none") != std::string::npos, text);
  BOOST_TEST(report::sweep_html(v).find(">settings<") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_table_marks_points_that_do_not_fit_and_lists_crossovers) {
  const std::string text = report::sweep_table(small(), {});
  BOOST_TEST(text.find("3.42 KiB !") != std::string::npos, text);
  BOOST_TEST(text.find("1.95 KiB !") == std::string::npos, text);
  BOOST_TEST(text.find("! does not fit in 2.93 KiB (memory.budget)") != std::string::npos, text);
  BOOST_TEST(text.find("from data.seq_len = 853") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(the_table_judges_the_memory_of_the_device_and_not_that_of_all_tiers) {
  planning::SweepResult v = small();
  BOOST_TEST(report::sweep_table(v, {}).find("on device") == std::string::npos);
  planning::SweepPoint& first = v.curves[0].points[0];
  first.total = 9000, first.host_bytes = 7000, first.verdict = planning::Verdict::kFitsDevice;
  std::string text = report::sweep_table(v, {});
  for (const char* part : {"all tiers", "on device", "8.79 KiB", "1.95 KiB ?", "3.42 KiB !"})
    BOOST_TEST(text.find(part) != std::string::npos, part << " in\n" << text);
  v.curves.push_back(v.curves[0]);
  text = report::sweep_table(v, {});
  BOOST_TEST(text.find("8.79 KiB") == std::string::npos, text);
  BOOST_TEST(text.find("memory on the device; --csv has that of all tiers") != std::string::npos, text);
}

BOOST_AUTO_TEST_SUITE_END()
