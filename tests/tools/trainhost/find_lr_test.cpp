// trainhost train --find-lr: the range test of a run, its output, and that it leaves the folder of the run
// alone. Which rate losses suggest: tests/core/training/lr_range_test.cpp.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

struct FindLr {
  TemporaryDirectory tmp;
  fs::path out = tmp / "run";
  Outcome train(std::vector<std::string> more, const RunOptions& o = {}) const {
    std::vector<std::string> a = {"train", "--backend=cpu", "--set", "output.dir=" + out.string()};
    for (const std::string& option : small_model_options()) a.push_back(option);
    a.insert(a.end(), more.begin(), more.end());
    return run_program(a, o);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

BOOST_FIXTURE_TEST_SUITE(find_lr, FindLr)

BOOST_AUTO_TEST_CASE(a_rate_is_suggested_plotted_and_usable) {
  const Outcome r = train({"--find-lr=1e-5:10:120"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(holds(r.err, "range test: 120 steps with learning rates from 1e-05 to 10"), r.err);
  BOOST_TEST((files() == std::vector<std::string>{"lock", "lr_range.json", "lr_range.svg"}));
  const json result = json::parse(read_file(out / "lr_range.json"));
  BOOST_TEST(result["schema"] == "trainhost.lr_range/1");
  BOOST_TEST(result["points"][0]["lr"] == 1e-5);
  const double lr = result["suggestion"].get<double>();
  // A byte model of this size trains with rates of about 1e-2 and diverges above 1e-1.
  BOOST_TEST(lr > 5e-4);
  BOOST_TEST(lr < 0.1);
  const std::string setting = "optimizer.lr=" + json(lr).dump();
  BOOST_TEST(holds(r.out, "suggested learning rate "), r.out);
  BOOST_TEST(holds(r.out, "--set " + result["set"].get<std::string>() + "\n"), r.out);
  BOOST_TEST(holds(r.out, ". of a step, * smoothed, | suggestion"), r.out);
  for (const char* tick : {"1e-5", "1e-3", "1e1"}) BOOST_TEST(holds(r.out, tick), r.out);
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);)
    if (!holds(line, "suggested")) BOOST_TEST(line.size() <= 80u, line);
  const std::string svg = read_file(out / "lr_range.svg");
  BOOST_TEST(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  std::size_t marks = 0;
  for (std::size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1)) ++marks;
  BOOST_TEST(marks == result["points"].size());
  BOOST_TEST(holds(svg, "class=\"pick\""));
  // The folder is free for the run, which takes the setting.
  const Outcome run = train({"-q", "--steps=2", "--set", result["set"].get<std::string>()});
  BOOST_REQUIRE_MESSAGE(run.code == 0, run.err);
  BOOST_TEST(holds(read_file(out / "run.toml"), result["set"].get<std::string>().substr(13)));
  BOOST_TEST(fs::exists(out / "lr_range.json"));
}

BOOST_AUTO_TEST_CASE(json_is_the_file_and_steps_are_those_of_the_run) {
  const Outcome r = train({"--find-lr=1e-4:1e-3:20", "--json", "-q"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(r.err == "");
  BOOST_TEST(r.out == read_file(out / "lr_range.json"));
  const json range = json::parse(r.out);
  BOOST_TEST(range["end"] == "complete");
  BOOST_REQUIRE(range["points"].size() == 20u);
  // The first step of a run with that rate has the same loss and gradient, and so has the second after it.
  fs::remove_all(out);
  const Outcome run = train({"--json", "--steps=2", "--set", "optimizer.schedule=constant", "--set",
                             "optimizer.warmup_steps=0", "--set", "optimizer.lr=1e-4"});
  BOOST_REQUIRE_MESSAGE(run.code == 0, run.err);
  std::istringstream lines(run.out);
  std::vector<json> steps;
  for (std::string line; std::getline(lines, line);)
    if (const json event = json::parse(line); event["event"] == "step") steps.push_back(event);
  BOOST_REQUIRE(steps.size() == 2u);
  for (std::size_t i = 0; i < 2; ++i) BOOST_TEST(steps[i]["loss"] == range["points"][i]["loss"]);
  BOOST_TEST(steps[0]["grad_norm"] == range["points"][0]["grad_norm"]);
}

BOOST_AUTO_TEST_CASE(a_finished_run_is_not_touched) {
  BOOST_REQUIRE(train({"-q", "--steps=2", "--set", "output.checkpoint_every=1"}).code == 0);
  const std::vector<std::string> before = files();
  const std::string weights = read_file(out / "model/model.safetensors"),
                    metrics = read_file(out / "metrics.jsonl"), status = read_file(out / "status.json");
  const Outcome r = train({"--find-lr=1e-6:1e-5:20"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(holds(r.out, "no suggestion: "), r.out);
  BOOST_TEST(files().size() == before.size() + 2);
  BOOST_TEST((read_file(out / "model/model.safetensors") == weights));
  BOOST_TEST(read_file(out / "metrics.jsonl") == metrics);
  BOOST_TEST(read_file(out / "status.json") == status);
  BOOST_TEST(json::parse(read_file(out / "lr_range.json"))["suggestion"].is_null());
}

BOOST_AUTO_TEST_CASE(adapters_have_a_range_of_their_own_and_fine_tuning_a_smaller_one) {
  BOOST_REQUIRE(train({"-q", "--steps=2"}).code == 0);
  const fs::path text = tmp.write("t.txt", std::string(32 * 40 + 1, 'a'));
  const auto range = [&](std::vector<std::string> more) {
    std::vector<std::string> a = {"finetune",
                                  (out / "model").string(),
                                  text.string(),
                                  "--find-lr",
                                  "--json",
                                  "-q",
                                  "--backend=cpu",
                                  "--set",
                                  "data.tokenizer=bytes",
                                  "--set",
                                  "data.seq_len=32",
                                  "--set",
                                  "output.dir=" + (tmp / "tuned").string()};
    a.insert(a.end(), more.begin(), more.end());
    const Outcome r = run_program(a);
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const json j = json::parse(r.out);
    BOOST_TEST(j["steps"] == 100);
    BOOST_TEST(j["from"].get<double>() * 1e6 == j["to"].get<double>(), boost::test_tools::tolerance(1e-12));
    return j["to"].get<double>();
  };
  BOOST_TEST(range({}) == 0.1);
  BOOST_TEST(range({"--lora"}) == 1.0);
  BOOST_TEST(range({"--qlora", "--set", "lora.double_quant=false"}) == 1.0);
  BOOST_TEST(range({"--set", "optimizer.name=sgd"}) == 10.0);
  BOOST_TEST(!fs::exists(tmp / "tuned/model"));
  BOOST_TEST(!fs::exists(tmp / "tuned/adapter"));
}

BOOST_AUTO_TEST_CASE(contradictions_are_refused_and_leave_no_folder) {
  const auto message = [&](std::vector<std::string> more) {
    const Outcome r = train(more);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(!fs::exists(out));
    return r.err;
  };
  for (const char* other : {"--resume", "--overwrite", "--steps=5", "--profile=x.json"})
    BOOST_TEST(holds(message({"--find-lr", other}), "--find-lr cannot be combined with --"), other);
  BOOST_TEST(holds(message({"--find-lr", "--steps=5"}), "--find-lr=FROM:TO:STEPS sets the steps"));
  BOOST_TEST(holds(message({"--find-lr=1:2:3"}), "STEPS is a whole number from 20 to 10,000"));
  BOOST_TEST(
      holds(message({"--find-lr", "--set", "data.train=" + tmp.write("s.txt", "x").string()}), "needs 33"));
}

BOOST_AUTO_TEST_CASE(a_signal_ends_the_test_and_leaves_nothing) {
  RunOptions o;
  bool sent = false;
  o.watch_err = [&](pid_t pid, const std::string& err) {
    if (!sent && holds(err, "step     1/10000")) sent = kill(pid, SIGINT) == 0;
  };
  const Outcome r = train({"--find-lr=1e-6:1e-5:10000"}, o);
  BOOST_TEST(r.code == 75);
  BOOST_TEST(holds(r.err, "range test stopped by SIGINT; nothing was written"), r.err);
  BOOST_TEST(!fs::exists(out));
}

BOOST_AUTO_TEST_SUITE_END()
