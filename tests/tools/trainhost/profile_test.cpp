// trainhost train --profile as a user runs it: the trace, the tables, the JSON, and rejections before
// training.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using trainhost::test::read_file;

std::vector<std::string> profiled_run(const fs::path& dir, std::vector<std::string> more = {}) {
  std::vector<std::string> w = {"train", "--json", "--set", "output.dir=" + (dir / "out").string()};
  const std::vector<std::string> model = small_model_options();
  w.insert(w.end(), model.begin(), model.end());
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

json last_event(const std::string& lines, const std::string& kind) {
  std::istringstream in(lines);
  json found;
  for (std::string line; std::getline(in, line);)
    if (json j = json::parse(line); j["event"] == kind) found = j;
  return found;
}

/// Slices by category; checks that they are nested.
std::map<std::string, std::vector<json>> slices(const fs::path& trace) {
  std::map<std::string, std::vector<json>> out;
  std::vector<std::int64_t> open;
  std::int64_t before = 0;
  const json j = json::parse(read_file(trace));
  for (const json& e : j["traceEvents"]) {
    if (e["ph"] != "X") {
      out[e["ph"].get<std::string>()].push_back(e);
      continue;
    }
    const std::int64_t begin = std::llround(e["ts"].get<double>() * 1e3),
                       end = begin + std::llround(e["dur"].get<double>() * 1e3);
    BOOST_REQUIRE(begin >= before);
    before = begin;
    while (!open.empty() && open.back() <= begin) open.pop_back();
    BOOST_REQUIRE((open.empty() || end <= open.back()));
    open.push_back(end);
    BOOST_REQUIRE(open.size() == (e["cat"] == "step" ? 1u : e["cat"] == "phase" ? 2u : 3u));
    out[e["cat"].get<std::string>()].push_back(e);
  }
  return out;
}

void check_rejected(const fs::path& dir, std::vector<std::string> arguments, const char* why) {
  Outcome r = run_program(profiled_run(dir, std::move(arguments)));
  BOOST_TEST(r.code == 2, r.err);
  BOOST_TEST(r.err.find(why) != std::string::npos, "no \"" << why << "\" in " << r.err);
  BOOST_TEST(std::count(r.err.begin(), r.err.end(), '\n') == 1, r.err);  // one clear error
  BOOST_TEST(r.out.empty());
  BOOST_TEST(!fs::exists(dir / "out"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(profiled_runs)

BOOST_AUTO_TEST_CASE(a_profiled_run_writes_trace_tables_and_json_and_its_memory_was_predicted) {
  for (const char* recompute : {"none", "full"}) {
    TemporaryDirectory tmp;
    const fs::path trace = tmp.path() / "trace.json";
    Outcome r = run_program(
        profiled_run(tmp.path(), {"--profile", trace.string(), "--steps", "14", "--set", "train.grad_accum=2",
                                  "--set", std::string("train.recompute=") + recompute}));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const json start = last_event(r.out, "start"), done = last_event(r.out, "done");
    BOOST_TEST(done["memory"]["predicted_bytes"] == done["memory"]["measured_bytes"]);
    BOOST_TEST(done["memory"]["predicted_bytes"] == start["plan"]["estimates"][0]["total_bytes"]);

    auto s = slices(trace);
    BOOST_TEST(s["step"].size() == 10u);
    BOOST_TEST(s["step"][0]["name"] == "step 2");
    BOOST_TEST(s["step"][9]["name"] == "step 11");
    BOOST_TEST(s["phase"].size() == 10u * 5);  // forward and backward of two micro-batches, update
    BOOST_TEST(s["M"].size() == 3u);
    std::map<std::string, int> names;
    for (const json& op : s["operation"]) ++names[op["name"]];
    BOOST_TEST(names["layers.1 linear qkv"] == 20);
    BOOST_TEST(names["layers.1 linear qkv again"] == (std::string(recompute) == "full" ? 20 : 0));
    std::map<std::string, int> counters;
    for (const json& c : s["C"]) ++counters[c["name"]];
    BOOST_TEST(counters["held bytes (ledger)"] ==
               10 * 6);  // twice before and after forward, after backward, after update
    BOOST_TEST(counters["planned live bytes"] > 10);

    const json p = done["profile"];
    BOOST_TEST(p["steps"] == 13);  // the first is left out
    double share = 0;
    for (const json& k : p["kinds"]) share += k["share"].get<double>();
    BOOST_TEST(share <= 1.0);
    BOOST_TEST(share + p["between_ms"].get<double>() / p["step_ms"].get<double>() == 1.0,
               boost::test_tools::tolerance(1e-6));
    std::uint64_t peak = 0;
    for (const json& c : p["peak"]) peak += c["bytes"].get<std::uint64_t>();
    BOOST_TEST(peak > 0u);
    BOOST_TEST(peak < done["memory"]["measured_bytes"].get<std::uint64_t>());
    const json &before = p["memory"][0], &after = p["memory"][1];
    BOOST_TEST(before["moment"] == "before_forward");
    BOOST_TEST(before["planned_bytes"].get<std::uint64_t>() < after["planned_bytes"].get<std::uint64_t>());
    BOOST_TEST(after["planned_bytes"].get<std::uint64_t>() <= peak);
    BOOST_TEST(after["held_bytes"] == done["memory"]["measured_bytes"]);
    BOOST_TEST(after["resident_bytes"].get<std::uint64_t>() > 1'000'000u);
    BOOST_TEST(p["fragmentation"]["severity"] == "normal");
    BOOST_TEST(json::parse(read_file(tmp.path() / "out/summary.json"))["profile"] == p);
    for (const char* text : {"GFLOP/s", "norms and elementwise", "between operations", "after backward",
                             "outside layers", "fragmentation"})
      BOOST_TEST(r.err.find(text) != std::string::npos, text);
    BOOST_TEST(std::distance(fs::directory_iterator(tmp.path()), {}) == 2);  // no temporary file is left
  }
}

BOOST_AUTO_TEST_CASE(profiling_does_not_change_the_trained_weights) {
  TemporaryDirectory a, b;
  Outcome plain = run_program(profiled_run(a.path(), {"-q", "--steps", "3"}));
  Outcome profiled = run_program(
      profiled_run(b.path(), {"-q", "--steps", "3", "--profile", (b.path() / "t.json").string()}));
  BOOST_REQUIRE_MESSAGE(profiled.code == 0, profiled.err);
  BOOST_TEST(profiled.err.empty(), profiled.err);
  BOOST_TEST((read_file(a.path() / "out/model/model.safetensors") ==
              read_file(b.path() / "out/model/model.safetensors")));
  BOOST_TEST(last_event(plain.out, "done")["profile"].is_null());
}

BOOST_AUTO_TEST_CASE(the_trace_of_a_one_step_run_has_that_step_and_replaces_an_old_file) {
  TemporaryDirectory tmp;
  const fs::path trace = tmp.write("t.json", "old");
  Outcome r = run_program(profiled_run(tmp.path(), {"-q", "--steps", "1", "--profile", trace.string()}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  auto s = slices(trace);
  BOOST_REQUIRE(s["step"].size() == 1u);
  BOOST_TEST(s["step"][0]["name"] == "step 1");
  BOOST_TEST(last_event(r.out, "done")["profile"]["steps"] == 1);
}

BOOST_AUTO_TEST_CASE(a_stopped_run_keeps_the_trace_so_far) {
  TemporaryDirectory tmp;
  RunOptions o;
  bool sent = false;
  o.watch = [&](pid_t pid, const std::string& out) {
    if (!sent && out.find("\"step\":5,") != std::string::npos) sent = kill(pid, SIGINT) == 0;
  };
  Outcome r = run_program(
      profiled_run(tmp.path(), {"-q", "--steps", "100000", "--profile", (tmp.path() / "t.json").string()}),
      o);
  BOOST_TEST(r.code == 75, r.err);
  BOOST_TEST(slices(tmp.path() / "t.json")["step"].size() >= 4u);
}

BOOST_AUTO_TEST_CASE(a_trace_file_that_cannot_be_written_is_rejected_before_training) {
  TemporaryDirectory tmp;
  tmp.write("plain", "");
  check_rejected(tmp.path(), {"--profile", (tmp.path() / "missing/t.json").string()}, "does not exist");
  check_rejected(tmp.path(), {"--profile", (tmp.path() / "plain/t.json").string()}, "is not a directory");
  check_rejected(tmp.path(), {"--profile", tmp.path().string()}, "it is a directory");
  check_rejected(tmp.path(), {"--profile", tmp.path().string() + "/"}, "this is not a file name");
  check_rejected(tmp.path(), {"--profile", "/dev/null"}, "not a regular file");
  check_rejected(tmp.path(), {"--profile", ""}, "--profile: no file is given");
  check_rejected(tmp.path(), {"--profile", (tmp.path() / std::string(250, 'x')).string()},
                 "File name too long");
  BOOST_TEST(std::distance(fs::directory_iterator(tmp.path()), {}) == 1);
}

BOOST_AUTO_TEST_CASE(a_trainer_without_timing_is_rejected_by_name) {
  TemporaryDirectory tmp;
  fs::create_directory(tmp.path() / "plugins");
  fs::copy_file(TEST_PLUGINS_DIR "/toy.so", tmp.path() / "plugins/toy.so");
  check_rejected(tmp.path(),
                 {"--plugin-path", (tmp.path() / "plugins").string(), "--backend=toy", "--profile",
                  (tmp.path() / "t.json").string()},
                 "the trainer 'toy' cannot be profiled");
  BOOST_TEST(!fs::exists(tmp.path() / "t.json"));
}

BOOST_AUTO_TEST_CASE(a_run_that_does_not_fit_leaves_no_trace_file) {
  TemporaryDirectory tmp;
  Outcome r = run_program(profiled_run(
      tmp.path(), {"-q", "--set", "memory.budget=100KB", "--profile", (tmp.path() / "t.json").string()}));
  BOOST_TEST(r.code == 3, r.err);
  BOOST_TEST(fs::is_empty(tmp.path()));
}

BOOST_AUTO_TEST_SUITE_END()
