// The profile table and its JSON; the Chrome trace is parsed again and its slices are nested correctly.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "core/report/profile_report.hpp"
#include "core/report/terminal.hpp"
#include "core/training/chrome_trace.hpp"

using namespace trainhost;
using nlohmann::json;

namespace {

training::ProfileResult two_steps() {
  training::ProfileResult v;
  v.steps = 2, v.step_ns = 2'000'000, v.without_first = true;
  v.kinds = {{"linear", false, 8, 1'000'000, 150'000'000, 12'000'000},
             {"rope", true, 4, 100'000, 0, 2'000'000},
             {"rms_norm", true, 4, 300'000, 0, 3'000'000},
             {"adamw", false, 2, 500'000, 0, 20'000'000}};
  v.layer_ns = {400'000, 600'000, 800'000};
  v.phases = {{"before_forward", 1 << 20, 4 << 20, 2 << 20, 8 << 20},
              {"after_update", 0, 4 << 20, 3 << 20, 8 << 20}};
  for (std::int32_t l : {-1, 0, 1, 2}) v.peak.push_back({l, Component::kWeights, l == 2 ? 300u : 100u});
  v.peak.push_back({-1, Component::kLogits, 400});
  v.peak_at = "head_loss head (backward)";
  v.allocated_bytes = 1200, v.used_bytes = 1080;
  v.trace = "t.json", v.traced_first = 2, v.traced_last = 3;
  return v;
}

void has(const std::string& text, const char* line) {
  BOOST_CHECK_MESSAGE(text.find(line) != std::string::npos, "no \"" << line << "\" in\n" << text);
}

plugin::OpTiming op(std::string_view name, Phase phase, std::uint32_t micro, std::uint64_t start,
                    std::uint64_t ns) {
  return {"kind", name, phase, 0, micro, start, ns, 2'000, 500, 77};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(profile_report)

BOOST_AUTO_TEST_CASE(severity_has_the_documented_bounds) {
  const std::pair<double, const char*> cases[] = {
      {0, "normal"},  {0.0499, "normal"}, {0.05, "moderate"},   {0.1499, "moderate"},
      {0.15, "high"}, {0.25, "high"},     {0.2501, "critical"}, {1, "critical"}};
  for (const auto& [ratio, word] : cases) BOOST_TEST(training::fragmentation_severity(ratio) == word, ratio);
}

BOOST_AUTO_TEST_CASE(operations_are_sorted_by_time_with_rates_and_the_time_between) {
  const std::string t = report::profile_table(two_steps(), {});
  has(t, "profile of 2 steps, without the first");
  has(t, "linear                     4        0.500  50.0 %    150.0  12.0");
  has(t, "adamw                      1        0.250  25.0 %           40.0");
  has(t, "norms and elementwise      4        0.200  20.0 %           12.5");  // rope and rms_norm
  has(t, "between operations                  0.050   5.0 %");
  has(t, "one step                   9        1.000             75.0  18.5");
  BOOST_TEST(t.find("rope") == std::string::npos);
  BOOST_TEST(t.find("adamw") < t.find("norms and elementwise"));
}

BOOST_AUTO_TEST_CASE(memory_is_shown_by_phase_layer_and_component) {
  const std::string t = report::profile_table(two_steps(), {});
  has(t, "before forward            1.00 MiB  25.0 %  4.00 MiB              2.00 MiB   8.00 MiB");
  has(t,
      "after update                     -          4.00 MiB              3.00 MiB   8.00 MiB");  // not known
  has(t, "layers 0-1, each    100 B           100 B   10.0 %        0.250");
  has(t, "layer 2             300 B           300 B   30.0 %        0.400");
  has(t, "outside layers      100 B   400 B   500 B   50.0 %");
  has(t, "fragmentation 10.00 % of 1.17 KiB allocated (120 bytes): moderate");
  has(t, "peak at head_loss head (backward); plus 80 B of host buffers");
  has(t, "steps 2 to 3 in t.json");
}

BOOST_AUTO_TEST_CASE(json_has_every_kind_and_the_same_numbers) {
  const json j = json::parse(report::profile_json(two_steps()));
  BOOST_TEST(j["steps"] == 2);
  BOOST_TEST(j["step_ms"] == 1.0);
  BOOST_TEST(j["between_ms"].get<double>() == 0.05, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(j["kinds"].size() == 4u);
  BOOST_TEST(j["kinds"][0]["gflops_per_s"] == 150.0);
  BOOST_TEST(j["kinds"][1]["kind"] == "rope");
  BOOST_TEST(j["memory"][0]["planned_bytes"] == 1 << 20);
  BOOST_TEST(j["layer_ms"][2].get<double>() == 0.4, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(j["fragmentation"]["severity"] == "moderate");
}

BOOST_AUTO_TEST_CASE(a_profile_without_steps_does_not_divide_by_zero) {
  training::ProfileResult none;
  has(report::profile_table(none, {}), "no step was executed");
  BOOST_TEST(json::parse(report::profile_json(none))["step_ms"] == 0);
}

BOOST_AUTO_TEST_CASE(a_trace_is_json_with_slices_inside_slices) {
  training::ChromeTrace t("trainhost \"x\"\n", "cpu step");
  std::string text;
  for (std::uint64_t s : {1, 2}) {
    const std::uint64_t at = 5'000'000'000'000'000 + s * 10'000;
    t.begin_step(s, at, at + 9'001);
    t.op(op("embed", kForward, 0, at + 10, 1'000));
    t.op(op("\"quoted\\", kForward, 0, at + 1'010, 999));
    t.op(op("b", kBackward, 0, at + 2'100, 900));
    t.op(op("embed", kForward, 1, at + 3'500, 500));
    t.op(op("b", kBackward, 1, at + 4'000, 1'000));
    t.op(op("adamw", kUpdate, 1, at + 8'000, 1'001));
    t.end_step();
    t.memory(at + 5'000, 111, 222);
    text += t.take();
  }
  t.finish();
  t.end();
  const json j = json::parse(text + t.take());
  std::vector<std::pair<std::int64_t, std::int64_t>> open;  // begin and end in ns
  std::int64_t before = 0;
  std::map<std::string, int> categories, counters;
  for (const json& e : j["traceEvents"]) {
    BOOST_TEST(e["pid"] == 1);
    if (e["ph"] == "C") ++counters[e["name"]];
    if (e["ph"] != "X") continue;
    const auto begin = std::llround(e["ts"].get<double>() * 1000),
               end = begin + std::llround(e["dur"].get<double>() * 1000);
    BOOST_TEST(begin >= before);
    before = begin;
    while (!open.empty() && open.back().second <= begin) open.pop_back();
    if (!open.empty()) BOOST_TEST(end <= open.back().second);
    open.emplace_back(begin, end);
    BOOST_TEST(open.size() == (e["cat"] == "step" ? 1u : e["cat"] == "phase" ? 2u : 3u), e.dump());
    ++categories[e["cat"]];
  }
  BOOST_TEST(categories["step"] == 2);
  BOOST_TEST(categories["phase"] == 10);  // forward, backward, forward, backward, update
  BOOST_TEST(categories["operation"] == 12);
  BOOST_TEST(t.ops() == 12u);
  BOOST_TEST(counters["planned live bytes"] == 1);  // its value never changes
  BOOST_TEST(counters["held bytes (ledger)"] == 2);
  BOOST_TEST(counters["resident bytes (process)"] == 2);
  BOOST_TEST(j["traceEvents"][0]["args"]["name"] == "trainhost \"x\"\n");
  const json& first = j["traceEvents"][5];
  BOOST_TEST(first["name"] == "embed");
  BOOST_TEST(first["ts"] == 0.010);
  BOOST_TEST(first["args"]["GFLOP/s"] == 2.0);
  BOOST_TEST(first["args"]["GB/s"] == 0.5);
  BOOST_TEST(first["args"]["phase"] == "forward");
}

BOOST_AUTO_TEST_SUITE_END()
