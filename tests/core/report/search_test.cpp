// The renderings of a search: JSON and CSV contain every number, and the table the settings to run next.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"

using namespace trainhost;
using namespace trainhost::report;

namespace {

bool text_has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

planning::SearchResult sample() {
  planning::RankedLayout r;
  r.tensor = 8, r.sequence = true, r.pipeline = 4, r.interleave = 2, r.data = 16, r.zero = 1,
  r.micro_batch = 2, r.accumulate = 32;
  r.recompute = "full", r.recompute_every = 4, r.offload = "optimizer to cpu";
  r.device_bytes = 70'000'000'000, r.host_bytes = 5'000'000'000, r.step_seconds = 12.5,
  r.tokens_per_second = 1e6, r.utilization = 0.423, r.simulated = true, r.closed_form_seconds = 13;
  r.seconds = {{"compute", 9}, {"bubble", 2.5}, {"data", 1}};
  r.settings = {"--set parallel.tensor=8", "--set parallel.zero=1"};
  planning::SearchResult v;
  v.model = "gpt3", v.device = "h100-80gb", v.run_line = "bf16, adamw", v.devices = 512,
  v.budget_bytes = 80'000'000'000;
  v.global_batch = 1024, v.seq_len = 2048, v.layouts = 1'234'567, v.evaluated = 65'432, v.fitting = 321,
  v.simulated = 1, v.seconds = 0.0123;
  v.best = {r}, v.pareto = {r};
  v.assumptions = {"eight devices a node"}, v.notes = {"a note"};
  return v;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(search_results)

BOOST_AUTO_TEST_CASE(the_table_has_counts_overheads_and_settings) {
  const std::string t = search_table(sample(), Terminal{});
  for (const char* part : {"512 x h100-80gb", "1,234,567 layouts", "65,432 evaluated", "321 of them fit",
                           "full by 4", "optimizer to cpu", "* 12.50 s", "42.3 %", "bubble 20 %, data 8 %",
                           "--set parallel.tensor=8 --set parallel.zero=1", "eight devices a node", "a note"})
    BOOST_TEST(text_has(t, part), part << " in\n" << t);
  planning::SearchResult none = sample();
  none.best.clear(), none.pareto.clear();
  BOOST_TEST(text_has(search_table(none, Terminal{}), "no layout fits"));
}

BOOST_AUTO_TEST_CASE(a_narrow_terminal_gets_fewer_columns_and_complete_numbers) {
  planning::SearchResult v = sample();
  v.best.front().offload = v.pareto.front().offload = "weights to cpu, optimizer to cpu, activations to cpu";
  const std::string whole = search_table(v, Terminal{});
  for (unsigned width : {80u, 100u, 120u}) {
    Terminal t;
    t.width = width, t.width_known = true;
    const std::string text = search_table(v, t);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      BOOST_TEST(display_width(line) <= width, width << ": " << line);
    for (const char* number : {"12.50 s", "65.2 GiB", "2 x 32"})
      BOOST_TEST(text_has(text, number), number << " in\n" << text);
    BOOST_TEST((whole == text || text_has(text, "not shown, terminal too narrow: ") ||
                text_has(text, "weights to cpu,\n")),
               text);
    BOOST_TEST(text_has(text, "--set parallel.tensor=8"));
  }
}

// The ranks of a layout are worth more than the shares of its overheads, which are not torn apart either.
BOOST_AUTO_TEST_CASE(columns_that_are_dropped_say_their_value_if_they_have_only_one) {
  planning::SearchResult v = sample();
  v.best[0].expert = v.best[0].interleave = 1, v.best[0].offload = "";
  v.best.assign(3, v.best[0]), v.pareto = v.best;
  Terminal t;
  t.width = 80, t.width_known = true;
  std::string text = search_table(v, t);
  BOOST_TEST(text_has(text, "EP 1"), text);
  BOOST_TEST(text_has(text, "offload none"), text);
  t.width = 120;
  text = search_table(v, t);
  BOOST_TEST((text_has(text, "bubble 20 %,\n") && text_has(text, "  data 8 %\n")), text);
}

BOOST_AUTO_TEST_CASE(a_long_pareto_front_is_sampled_with_both_ends) {
  planning::SearchResult v = sample();
  v.pareto.assign(50, v.best[0]);
  for (std::size_t i = 0; i < 50; ++i) v.pareto[i].data = static_cast<std::uint32_t>(1000 + i);
  const std::string t = search_table(v, Terminal{});
  BOOST_TEST(text_has(t, "10 of 50"));
  BOOST_TEST((text_has(t, "1000") && text_has(t, "1049")), t);
  BOOST_TEST(!text_has(t, "1001"), t);
}

BOOST_AUTO_TEST_CASE(json_contains_every_number_in_full) {
  const auto j = nlohmann::json::parse(search_json(sample()));
  BOOST_TEST(j["schema"] == "trainhost.search/1");
  BOOST_TEST(j["layouts"] == 1'234'567);
  BOOST_TEST(j["evaluated"] == 65'432);
  BOOST_TEST(j["fitting"] == 321);
  const auto& r = j["best"][0];
  BOOST_TEST(r["device_bytes"] == 70'000'000'000);
  BOOST_TEST(r["host_bytes"] == 5'000'000'000);
  BOOST_TEST(r["grad_accum"] == 32);
  BOOST_TEST(r["recompute_every"] == 4);
  BOOST_TEST(r["time_from"] == "simulation");
  BOOST_TEST(r["closed_form_seconds"] == 13.0);
  BOOST_TEST(j["simulated"] == 1);
  BOOST_TEST(r["seconds"]["bubble"] == 2.5);
  BOOST_TEST(r["settings"][1] == "--set parallel.zero=1");
  BOOST_TEST(j["pareto"].size() == 1u);
}

BOOST_AUTO_TEST_CASE(csv_has_one_line_per_layout_with_as_many_fields_as_its_head) {
  std::istringstream in(search_csv(sample()));
  std::string head, line;
  std::getline(in, head);
  const auto commas = std::count(head.begin(), head.end(), ',');
  int lines = 0;
  while (std::getline(in, line)) {
    BOOST_TEST(std::count(line.begin(), line.end(), ',') == commas, line);
    ++lines;
  }
  BOOST_TEST(lines == 2);
  // "weights to cpu, optimizer to cpu" is one field.
  planning::SearchResult v = sample();
  v.best[0].offload = "weights to cpu, optimizer to cpu";
  BOOST_TEST(text_has(search_csv(v), ",\"weights to cpu, optimizer to cpu\","));
}

BOOST_AUTO_TEST_SUITE_END()
