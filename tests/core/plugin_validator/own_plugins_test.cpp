// The plugins of this repository pass the checks that outside authors must pass; selection of checks; JSON
// and JUnit.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/plugin_validator/report_output.hpp"
#include "core/plugin_validator/runner.hpp"
#include "core/plugin_validator/select_checks.hpp"

namespace fs = std::filesystem;
namespace tc = trainhost::plugin_validator;

BOOST_AUTO_TEST_SUITE(check_own_plugins)

BOOST_AUTO_TEST_CASE(each_own_plugin_passes_every_check) {
  int plugins = 0;
  for (const auto& e : fs::directory_iterator(fs::path(TRAINHOST_BINARY_DIR) / "lib/trainhost/plugins")) {
    if (e.path().extension() != ".so") continue;
    ++plugins;
    tc::Settings s;
    s.file = fs::canonical(e.path()), s.program = TRAINHOST_PROGRAM, s.level = tc::kLevels;
    const tc::Report r = tc::run_checks(s);
    // Of a communicator, those that call nothing of it.
    const bool communicator = e.path().stem() == "mpi" || e.path().stem() == "nccl";
    BOOST_TEST(r.count(tc::Outcome::kPass) > (communicator ? 30u : 50u));
    for (const tc::Result& x : r.results)
      BOOST_TEST((x.verdict.outcome == tc::Outcome::kPass || x.verdict.outcome == tc::Outcome::kSkip),
                 e.path().filename().string() << " " << x.check->id << ": " << x.verdict.reason);
  }
  BOOST_TEST(plugins >= 6);
}

BOOST_AUTO_TEST_CASE(arguments_select_checks_and_their_prerequisites) {
  const tc::Selection one = tc::select(5, {"E-014"}, {}, "estimator");
  BOOST_TEST(one.asked.size() == 1u);
  BOOST_TEST(one.plan.back()->id == "E-014");
  BOOST_TEST(one.plan.front()->id == "C-001");
  BOOST_TEST(tc::select(5, {}, {}, "").asked.count("E-014") == 0u);
  BOOST_TEST(tc::select(2, {}, {"C-020"}, "trainer").asked.count("C-020") == 0u);
  BOOST_TEST(tc::select(1, {}, {}, "trainer").asked.count("C-020") == 0u);
  BOOST_TEST(tc::select(1, {"4"}, {}, "trainer").asked.count("T-001") == 1u);
  const auto nearest = [](const trainhost::Error& e) {
    return std::string(e.what()).find("'E-014'") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(tc::select(5, {"E014"}, {}, "estimator"), trainhost::Error, nearest);
  BOOST_CHECK_THROW(tc::select(5, {"11"}, {}, "estimator"), trainhost::Error);
}

BOOST_AUTO_TEST_CASE(json_and_junit_say_the_same) {
  tc::Report r;
  r.file = "x.so", r.id = "x", r.kind = "estimator";
  r.results.push_back({tc::find("C-001"), {tc::Outcome::kPass, "", 0.1}});
  r.results.push_back({tc::find("C-002"), {tc::Outcome::kFail, "it said \"<no>\" & left", 0.1}});
  r.results.push_back({tc::find("C-003"), {tc::Outcome::kCrash, "signal", 0.1}});
  r.results.push_back({tc::find("C-004"), {tc::Outcome::kSkip, "needs C-003", 0}});
  const auto j = nlohmann::json::parse(tc::json_of(r));
  BOOST_TEST(j["failed"] == 2);
  BOOST_TEST(j["checks"][1]["reason"] == "it said \"<no>\" & left");
  BOOST_TEST(!r.all_passed());
  const std::string xml = tc::junit_of(r);
  BOOST_TEST(xml.find("failures=\"1\" errors=\"1\" skipped=\"1\"") != std::string::npos);
  BOOST_TEST(xml.find("&lt;no&gt;") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
