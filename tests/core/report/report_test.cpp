// Tables are aligned, JSON has the documented keys, durations and rates are readable.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "core/report/comparison.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/progress.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/training/throughput.hpp"

using namespace trainhost;

namespace {

planning::PlanResult small_plan() {
  planning::PlanResult v;
  v.model.name = "tiny";
  v.parameters.total = 12345;
  v.budget_bytes = 3000;
  v.budget_source = "memory.budget";
  planning::Estimate e;
  e.report.source = "llama";
  auto add_entry = [&](Component c, std::uint64_t bytes, std::uint64_t at_peak) {
    MemoryEntry n;
    n.id = static_cast<std::uint32_t>(e.report.entries.size() + 1);
    n.component = c;
    n.bytes = n.lo = n.hi = bytes;
    n.bytes_at_peak = at_peak;
    n.has_at_peak = true;
    e.report.entries.push_back(n);
  };
  add_entry(Component::kWeights, 1000, 1000);
  add_entry(Component::kActivations, 900, 0);
  add_entry(Component::kActivations, 2500, 2500);
  e.report.tiers = {{Tier::kHost, 3500, kBackward}};
  e.total_bytes = e.compute_bytes = 3500;
  e.fits = false;
  v.estimates.push_back(e);
  return v;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report_suite)

BOOST_AUTO_TEST_CASE(columns_are_aligned_and_numbers_are_right_aligned) {
  report::Table t("lr");
  t.row({"a", "1"});
  t.row({"größer", "123"});
  BOOST_TEST(t.str({.indent = ""}) == "a         1\ngrößer  123\n");
}

BOOST_AUTO_TEST_CASE(text_is_wrapped_at_spaces_with_an_indent) {
  BOOST_TEST(report::wrapped("  note: one two three", 0, "    ") == "  note: one two three");
  BOOST_TEST(report::wrapped("  note:  one two three", 13, "    ") == "  note:  one\n    two three");
  BOOST_TEST(report::wrapped("  a averylongword b", 6, " ") == "  a\n avery\n longw\n ord b");
  BOOST_TEST(report::wrapped("in /a/path/of/names", 10, "") == "in\n/a/path/\nof/names");
  BOOST_TEST(report::wrapped("  ─── ───", 9, "") == "  ─── ───");
}

BOOST_AUTO_TEST_CASE(a_bar_is_as_long_as_its_share) {
  BOOST_TEST(report::bar(0, 8) == "");
  BOOST_TEST(report::bar(1, 2) == "██");
  BOOST_TEST(report::bar(0.5, 1) == "▌");
  BOOST_TEST(report::bar(7, 2) == "██");
}

BOOST_AUTO_TEST_CASE(active_and_trained_parameters_default_to_the_total) {
  planning::PlanResult v = small_plan();
  auto parameters = [&] { return nlohmann::json::parse(report::plan_json(v)).at("model").at("parameters"); };
  BOOST_TEST(parameters().at("active") == 12345);
  BOOST_TEST(parameters().at("trainable") == 12345);
  v.active_parameters = 99, v.trained_parameters = 7;
  BOOST_TEST(parameters().at("total") == 12345);
  BOOST_TEST(parameters().at("active") == 99);
  BOOST_TEST(parameters().at("trainable") == 7);
}

BOOST_AUTO_TEST_CASE(plan_json_has_the_documented_keys) {
  auto j = nlohmann::json::parse(report::plan_json(small_plan(), -1));
  BOOST_TEST(j["schema"] == "trainhost.plan/1");
  BOOST_TEST(j["model"]["parameters"]["total"] == 12345);
  auto& e = j["estimates"][0];
  BOOST_TEST(e["estimator"] == "llama");
  BOOST_TEST(e["kind"] == "exact");
  BOOST_TEST(e["total_bytes"] == 3500);
  BOOST_TEST(e["fits"] == false);
  BOOST_TEST(e["tiers"][0]["tier"] == "host");
  BOOST_TEST(e["tiers"][0]["peak_at"] == "backward");
  std::uint64_t sum = 0;
  for (auto& c : e["tiers"][0]["components"]) sum += c["bytes"].get<std::uint64_t>();
  BOOST_TEST(sum == 3500u);
}

BOOST_AUTO_TEST_CASE(the_table_states_by_how_much_a_run_exceeds_the_budget) {
  std::string text = report::memory_table(small_plan(), {});
  BOOST_TEST(
      text.find("does not fit in 2.93 KiB (memory.budget): 500 B over the budget") != std::string::npos,
      text);
  BOOST_TEST(text.find("peak in backward") != std::string::npos);
  BOOST_TEST(text.find('\x1b') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(several_estimates_are_compared_with_reasons) {
  planning::PlanResult v = small_plan();
  BOOST_TEST(report::memory_table(v, {}).find("comparison of the estimates") ==
             std::string::npos);  // a single estimate is not compared
  planning::Estimate rule = v.estimates[0];
  rule.report.source = "thumb", rule.report.claim = Claim::kApproximation;
  rule.report.notes = {"A rule of thumb: 16 bytes a parameter; logits are not in it.", "Another."};
  rule.total_bytes = 4900;
  v.estimates.push_back(rule);
  rule.report.source = "mute", rule.report.notes.clear(), rule.total_bytes = 3500;
  v.estimates.push_back(rule);
  const std::string text = report::memory_table(v, {});
  BOOST_TEST(text.find("comparison of the estimates") != std::string::npos);
  const std::string table = report::comparison_table(v, {});
  for (const char* row :
       {"  llama      exact          3.42 KiB                      the others are compared with this one\n",
        "  thumb      approximation  4.79 KiB  +1.37 KiB, +40.0 %  a rule of thumb: 16 bytes a parameter\n",
        "  mute       approximation  3.42 KiB            the same\n"})
    BOOST_TEST(table.find(row) != std::string::npos, table);
  BOOST_TEST(text.find(table) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_reason_keeps_its_symbols) {
  planning::Estimate e;
  BOOST_TEST(report::first_note_clause(e) == "");
  e.report.notes = {"K = 10 is no upper bound."};
  BOOST_TEST(report::first_note_clause(e) == "K = 10 is no upper bound");
  e.report.notes = {"The formula knows one rank; sharding is not in it."};
  BOOST_TEST(report::first_note_clause(e) == "the formula knows one rank");
}

BOOST_AUTO_TEST_CASE(hostile_names_are_printed_escaped) {
  planning::PlanResult v = small_plan();
  v.model.name = "a\x1b[31m";
  BOOST_TEST(report::memory_table(v, {}).find('\x1b') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(durations_and_rates_are_readable) {
  BOOST_TEST(training::format_duration(65) == "1:05");
  BOOST_TEST(training::format_duration(7387) == "2:03:07");
  BOOST_TEST(training::format_duration(273600) == "3d 4h");
  BOOST_TEST(training::format_rate(98123) == "98.1K");
  BOOST_TEST(training::format_rate(2.314e6) == "2.31M");
  BOOST_TEST(training::format_rate(613) == "613");
}

BOOST_AUTO_TEST_CASE(a_narrow_table_wraps_text_then_drops_columns_in_order) {
  report::Table t("lrrl");
  t.row({"name", "bytes", "share", "why"});
  t.row({"weights", "1,234,567", "50 %", "one two three four five six seven eight"});
  std::vector<std::string> dropped;
  const auto fitted = [&](std::size_t width) {
    dropped.clear();
    return t.str({.width = width, .drop = {2, 1}, .dropped = &dropped});
  };
  BOOST_TEST(fitted(0) == t.str());
  BOOST_TEST(fitted(200) == t.str());
  const std::string narrow = fitted(50);
  BOOST_TEST(dropped.empty());
  BOOST_TEST(narrow ==
                 "  name         bytes  share  why\n  weights  1,234,567   50 %  one two three four\n        "
                 "                     five six seven eight\n",
             narrow);
  const std::string narrower = fitted(34);
  BOOST_TEST(dropped == std::vector<std::string>{"share"}, boost::test_tools::per_element());
  BOOST_TEST(narrower.find("1,234,567") != std::string::npos);
  BOOST_TEST(t.str({.width = 34, .drop = {2, 1}, .see = "--csv"}) ==
             narrower + "  not shown, terminal too narrow:\n    share; see --csv\n");
}

BOOST_AUTO_TEST_CASE(no_table_is_wider_than_the_terminal) {
  report::Table t("lrl");
  t.row({"file", "bytes", "formula"});
  t.rule();
  t.row({"/a/folder/with/a/long/name/model.safetensors", "16,060,522,496", "32*2*14336*4096*4"});
  t.row({"größer/模型/日本語の名前.toml", "1", "a ─ b"});
  for (std::size_t width = 10; width < 90; ++width)
    for (const std::vector<std::size_t>& drop : {std::vector<std::size_t>{}, {1, 2}}) {
      std::istringstream lines(t.str({.width = width, .drop = drop}));
      for (std::string line; std::getline(lines, line);)
        BOOST_TEST(report::display_width(line) <= width, width << ": " << line);
    }
  // Whole words while columns may be dropped in place of dividing them, and everything is kept.
  std::string first;
  std::istringstream lines(t.str({.width = 30, .drop = {1, 2}}));
  for (std::string line; std::getline(lines, line);)
    first += line.substr(std::min<std::size_t>(line.size(), 2));
  BOOST_TEST(first.find("/a/folder/with/a/long/name/model.safetensors") != std::string::npos, first);
}

BOOST_AUTO_TEST_CASE(width_is_that_of_a_terminal) {
  BOOST_TEST(report::display_width("größer") == 6u);
  BOOST_TEST(report::display_width("e\u0301") == 1u);  // e and a combining accent
  BOOST_TEST(report::display_width("日本") == 4u);
  BOOST_TEST(report::display_width("\U0001F600") == 2u);
  BOOST_TEST(report::display_width("\x1b[31mred\x1b[0m") == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
