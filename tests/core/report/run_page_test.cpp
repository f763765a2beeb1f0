// The page and the table of runs: curves in bounded memory, damaged and foreign folders, hostile text, size.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/report/run_page.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using report::Metric;
using report::RunRecord;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

bool shows(const std::string& page, const std::string& text) { return page.find(text) != std::string::npos; }

std::string start_line(const std::string& name, std::uint64_t steps) {
  const json plan = {
      {"schema", "trainhost.plan/1"},
      {"model", {{"name", name}, {"family", "llama"}, {"parameters", {{"total", 1000}}}}},
      {"estimates",
       {{{"tiers",
          {{{"tier", "host"},
            {"total_bytes", 3000},
            {"components",
             {{{"name", "weights"}, {"bytes", 1000}}, {{"name", "activations"}, {"bytes", 2000}}}}}}}}}},
      {"timeline", {{{"moment", "forward, layer 0"}, {"bytes", 3000}, {"components", {{"weights", 1000}}}}}}};
  return json{{"event", "start"},
              {"steps", steps},
              {"backend", "cpu"},
              {"source", {{"name", name}}},
              {"plan", plan}}
             .dump() +
         "\n";
}

std::string step_line(std::uint64_t step, double loss) {
  return R"({"event":"step","step":)" + std::to_string(step) + R"(,"loss":)" + std::to_string(loss) +
         R"(,"grad_norm":1.5,"lr":0.001,"tokens":100,"ms":10,"tokens_per_s":10000,"memory_bytes":3000})" +
         "\n";
}

void append(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

fs::path run_folder(const fs::path& dir, const std::string& name, std::uint64_t steps) {
  fs::create_directories(dir);
  std::string text = start_line(name, steps);
  for (std::uint64_t s = 1; s <= steps; ++s) text += step_line(s, 5.0 / static_cast<double>(s));
  append(dir / "metrics.jsonl", text + R"({"event":"eval","step":2,"loss":2.5,"tokens":9})" + "\n");
  append(dir / "run.toml",
         "[train]\nsteps = " + std::to_string(steps) + "  # run.toml\nseed = 1\n# micro_batch = 8\n");
  append(dir / "run.log", "2026-11-27T11:46:19.123Z first line of " + name + "\n");
  append(dir / "samples.jsonl", json{{"step", steps}, {"text", "once " + name}}.dump() + "\n");
  append(dir / "environment.json", json{{"host", name}, {"variables", {{"OMP_NUM_THREADS", "2"}}}}.dump());
  append(dir / "status.json", R"({"state":"finished","exit_code":0})");
  return dir;
}

report::RunRecords records(const std::vector<fs::path>& folders) {
  report::RunRecords out;
  for (const fs::path& f : folders) {
    out.push_back(std::make_unique<RunRecord>(f, report::points_of_page(folders.size())));
    out.back()->require_run();
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(run_page_suite)

BOOST_AUTO_TEST_CASE(curves_of_any_length_keep_their_extremes_in_bounded_memory) {
  report::RunCurves c(100);
  const std::uint64_t n = 200'000;
  double sum = 0;
  for (std::uint64_t s = 1; s <= n; ++s) {
    const double loss = s == 77'777 ? 1000 : s == 123'456 ? -5 : 2 + std::sin(static_cast<double>(s));
    sum += loss;
    c.add(s, {loss, NAN, 1, 1, 1});
  }
  BOOST_TEST(c.groups().size() <= 100u);
  BOOST_TEST(c.groups().size() >= 50u);
  std::uint64_t count = 0;
  double least = 1e9, most = -1e9, total = 0;
  for (const auto& g : c.groups()) {
    const auto& p = g.parts[0];
    count += p.count, total += p.sum, least = std::min(least, p.least), most = std::max(most, p.most);
  }
  BOOST_TEST(count == n);
  BOOST_TEST(least == -5);
  BOOST_TEST(most == 1000);
  BOOST_TEST(total == sum, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(c.groups().back().last_step == n);
  BOOST_TEST(c.whole(Metric::kGradNorm).count == 0u);
  const json j = json::parse(c.json().dump());
  BOOST_TEST(j["loss"]["low"].size() == c.groups().size());
  BOOST_TEST(!j.contains("grad_norm"));
}

BOOST_AUTO_TEST_CASE(a_file_that_grows_is_read_once_and_a_torn_line_when_it_is_complete) {
  test::TemporaryDirectory tmp;
  const fs::path dir = tmp / "run", file = dir / "metrics.jsonl";
  fs::create_directories(dir);
  append(file, start_line("m", 9) + step_line(1, 3));
  RunRecord r(dir);
  BOOST_TEST(r.update());
  BOOST_TEST(r.step() == 1u);
  BOOST_TEST(r.steps() == 9u);
  const std::string next = step_line(2, 2);
  append(file, next.substr(0, 30));
  r.update();
  BOOST_TEST(r.step() == 1u);
  append(file, next.substr(30) + "not json\n{\"event\":\"step\",\"step\":7,\"lo\n" + step_line(3, 1));
  BOOST_TEST(r.update());
  BOOST_TEST(r.step() == 3u);
  BOOST_TEST(r.curves().groups().size() == 3u);
  BOOST_TEST(!r.update());
  // A rollback to step 1 cuts the file and writes step 2 again.
  fs::resize_file(file, (start_line("m", 9) + step_line(1, 3)).size());
  append(file, step_line(2, 8));
  BOOST_TEST(r.update());
  BOOST_TEST(r.step() == 2u);
  BOOST_TEST(r.curves().whole(Metric::kLoss).most == 8);
  // The same where the file has grown beyond its former length before it is read again.
  std::string longer = start_line("m", 9) + step_line(1, 3);
  fs::resize_file(file, longer.size());
  for (std::uint64_t s = 2; s <= 6; ++s) append(file, step_line(s, 1));
  r.update();
  r.update();
  BOOST_TEST(r.step() == 6u);
}

BOOST_AUTO_TEST_CASE(a_file_that_has_a_step_twice_is_read_to_its_end) {
  test::TemporaryDirectory tmp;
  const fs::path dir = tmp / "run", file = dir / "metrics.jsonl";
  fs::create_directories(dir);
  std::string text = start_line("m", 90'000);
  const std::string line = step_line(1, 1);
  std::uint64_t s = 1;
  for (; text.size() < (3u << 20); ++s) text += step_line(s, 1) + (s == 5 || s == 20'000 ? line : "");
  append(file, text);
  RunRecord once(dir), grown(dir);
  once.update();
  BOOST_TEST(once.step() == s - 1);
  append(file, step_line(s, 2));
  grown.update();
  BOOST_TEST(once.update());
  BOOST_TEST(once.step() == s);
  BOOST_TEST(once.curves().json().dump() == grown.curves().json().dump());
  BOOST_TEST(!once.update());
}

BOOST_AUTO_TEST_CASE(a_line_longer_than_any_event_is_left_out) {
  test::TemporaryDirectory tmp;
  const fs::path dir = tmp / "run";
  fs::create_directories(dir);
  const auto note = [](std::size_t bytes) {
    return R"({"event":"note","text":")" + std::string(bytes, 'x') + "\"}\n";
  };
  append(dir / "metrics.jsonl",
         start_line("m", 9) + note(1 << 20) + step_line(1, 3) + note(6 << 20) + note(10) + step_line(2, 2));
  RunRecord r(dir);
  r.update();
  BOOST_TEST(r.step() == 2u);
  BOOST_TEST(r.events().size() == 2u);
}

// Bytes beyond any memory have made the axis of a chart endless; counts that fit no integer are undefined as
// one.
BOOST_AUTO_TEST_CASE(numbers_that_no_run_has_are_not_drawn) {
  test::TemporaryDirectory tmp;
  const fs::path dir = tmp / "run";
  fs::create_directories(dir);
  std::string text = start_line("m", 9);
  int step = 0;
  for (const char* number : {"1.797e308", "-1e308", "1e19", "-5", "inf", "1e-320"})
    text += "{\"event\":\"step\",\"step\":" + std::to_string(++step) + ",\"loss\":" + number +
            ",\"tokens\":" + number + ",\"ms\":" + number + ",\"memory_bytes\":" + number + "}\n";
  append(dir / "metrics.jsonl", text + "{\"event\":\"step\",\"step\":1e300,\"loss\":1}\n");
  const auto runs = records({dir});
  BOOST_TEST(runs[0]->step() == 6u);
  BOOST_TEST(runs[0]->tokens() == 0u);
  BOOST_TEST(runs[0]->curves().whole(Metric::kMemory).most < 1);
  BOOST_TEST(report::run_html(runs, "").size() < 300'000u);
  BOOST_TEST(json::parse(report::run_update(runs, {}))["charts"].size() > 0u);
}

BOOST_AUTO_TEST_CASE(the_state_of_a_run_is_printed_without_control_characters) {
  test::TemporaryDirectory tmp;
  const fs::path dir = run_folder(tmp / "run", "m", 3);
  append(dir / "run.toml", "\x1b[2Jkey = 1\n");
  fs::remove(dir / "status.json");
  append(dir / "status.json", json{{"state", "\x1b[2Jfin"}, {"reason", "\x1b]0;x\x07"}}.dump());
  const auto runs = records({dir, run_folder(tmp / "other", "m", 3)});
  const std::string table = report::compare_table(runs, report::Terminal{});
  BOOST_TEST(shows(table, "2Jkey"));
  BOOST_TEST(!shows(table, "\x1b"));
  BOOST_TEST(shows(table, "\\x1b[2Jfin"), table);
  BOOST_TEST(!shows(runs[0]->reason(), "\x1b"));
  BOOST_TEST(!runs[0]->update());
}

BOOST_AUTO_TEST_CASE(a_folder_of_another_program_is_refused_with_its_reason) {
  test::TemporaryDirectory tmp;
  const auto message = [](const fs::path& dir) -> std::string {
    try {
      RunRecord(dir).require_run();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  BOOST_TEST(shows(message(tmp / "none"), "does not exist"));
  fs::create_directories(tmp / "empty");
  BOOST_TEST(shows(message(tmp / "empty"), "has no metrics.jsonl"));
  append(tmp / "empty" / "metrics.jsonl", "{\"loss\": 3}\n\x01\x02\n");
  BOOST_TEST(shows(message(tmp / "empty"), "no event of trainhost"));
  BOOST_TEST(message(run_folder(tmp / "run", "a", 3)) == "");
}

BOOST_AUTO_TEST_CASE(a_folder_is_recognized_by_the_beginning_of_a_long_file) {
  test::TemporaryDirectory tmp;
  RunRecord r(run_folder(tmp / "run", "a", 1000));
  r.require_run(2000);
  BOOST_TEST(r.step() > 0u);
  BOOST_TEST(r.step() < 100u);
  r.update();
  BOOST_TEST(r.step() == 1000u);
}

/// After a rollback or a resume the text of the later attempt counts.
BOOST_AUTO_TEST_CASE(a_sample_replaces_those_of_the_same_step_and_of_later_ones) {
  test::TemporaryDirectory tmp;
  const fs::path dir = run_folder(tmp / "run", "a", 4);  // has a sample of step 4
  for (const int step : {2, 3, 2})
    append(dir / "samples.jsonl", json{{"step", step}, {"text", "of " + std::to_string(step)}}.dump() + "\n");
  RunRecord r(dir);
  r.update();
  BOOST_REQUIRE(r.samples().size() == 1u);
  BOOST_TEST(r.samples()[0].first == 2u);
}

BOOST_AUTO_TEST_CASE(the_page_of_a_run_has_its_numbers_and_no_text_becomes_markup) {
  test::TemporaryDirectory tmp;
  const std::string attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>";
  const std::string page = report::run_html(records({run_folder(tmp / "run", attack, 50)}), attack);
  BOOST_TEST(!shows(page, "<script>alert"));
  BOOST_TEST(!shows(page, "<img"));
  for (const char* text :
       {"Finished: step 50 of 50", "2.5000", "Memory: plan against measurement", "OMP_NUM_THREADS",
        "first line of", "once ", "seed = 1", "data-chart=\"loss\"", "forward"})
    BOOST_TEST(shows(page, text), text);
  // The curves are drawn without the script, and it gets them as JSON.
  BOOST_TEST(shows(page.substr(page.find("data-chart=\"loss\"")), "<path class=\"curve k0\""));
  const std::size_t at = page.find("id=\"data\">") + 10;
  const json j = json::parse(page.substr(at, page.find("</script>", at) - at));
  BOOST_TEST(j["charts"][0]["series"][0]["y"].size() == 50u);
  BOOST_TEST(j["charts"][0]["series"][1]["name"] == "validation");
}

BOOST_AUTO_TEST_CASE(pages_stay_below_their_limit_whatever_the_runs_contain) {
  test::TemporaryDirectory tmp;
  std::vector<fs::path> folders;
  for (int i = 0; i < 32; ++i) {
    folders.push_back(run_folder(tmp / ("run" + std::to_string(i)), "model" + std::to_string(i), 2000));
    for (int k = 0; k < 500; ++k)
      append(folders.back() / "run.log", "2026-11-27T11:46:19.123Z " + std::string(150, 'x') + "\n");
    append(folders.back() / "samples.jsonl",
           json{{"step", 1}, {"text", std::string(9000, 'y')}}.dump() + "\n");
    append(folders.back() / "run.toml",
           "[data]\nx = \"" + std::string(300, 'a') + std::to_string(i) + "\"\n");
  }
  BOOST_TEST(report::run_html(records({folders[0]}), "").size() < 300'000u);
  BOOST_TEST(report::run_html(records({folders[0], folders[1], folders[2]}), "").size() < 300'000u);
  const std::string all = report::run_html(records(folders), "");
  BOOST_TEST(all.size() < 300'000u);
  BOOST_TEST(shows(all, "32 runs"));
}

BOOST_AUTO_TEST_CASE(compare_states_results_and_the_settings_that_differ) {
  test::TemporaryDirectory tmp;
  const std::vector<fs::path> folders = {run_folder(tmp / "a", "m", 10), run_folder(tmp / "b", "m", 20)};
  append(folders[0] / "run.toml", "[optimizer]\n# lr = 4e-3\neps = 1e-8\n");
  append(folders[1] / "run.toml", "[optimizer]\nlr = 0.004  # --set\neps = 1e-6\n");
  const auto runs = records(folders);
  const std::string table = report::compare_table(runs, report::Terminal{});
  BOOST_TEST(!shows(table, "optimizer.lr"), table);  // the same number in another spelling
  BOOST_TEST(shows(table, "1e-06"), table);
  for (const char* text : {"10/10", "20/20", "0.5000", "0.2500", "train.steps"})
    BOOST_TEST(shows(table, text), table);
  BOOST_TEST(!shows(table, "train.seed"));
  BOOST_TEST(!shows(table, "# run.toml"));
  const json j = json::parse(report::compare_json(runs));
  BOOST_TEST(j["schema"] == "trainhost.compare/1");
  BOOST_TEST(j["runs"][1]["loss"] == 0.25);
  BOOST_TEST(j["runs"][1]["curves"]["loss"]["y"].size() == 20u);
  BOOST_TEST(j["differences"].size() == 2u);
  BOOST_TEST(j["differences"][1]["key"] == "train.steps");
  BOOST_TEST(j["differences"][1]["values"][1] == "20");
}

BOOST_AUTO_TEST_CASE(a_run_without_steps_or_other_files_has_a_page) {
  test::TemporaryDirectory tmp;
  fs::create_directories(tmp / "run");
  append(tmp / "run" / "metrics.jsonl", start_line("m", 9));
  const std::string page = report::run_html(records({tmp / "run"}), "");
  BOOST_TEST(shows(page, "no step yet"));
  const json update = json::parse(report::run_update(records({tmp / "run"}), {}));
  BOOST_TEST(update["charts"].empty());
  BOOST_TEST(update["ended"] == false);
}

BOOST_AUTO_TEST_SUITE_END()
