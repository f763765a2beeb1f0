// trainhost check: errors as text and as JSON, exit codes, plugins.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

struct Check {
  TemporaryDirectory folder;
  Outcome run(const std::string& toml, std::vector<std::string> more = {}) {
    folder.write("run.toml", toml);
    RunOptions o;
    o.directory = folder.path();
    more.insert(more.begin(), {"check", "run.toml"});
    return run_program(more, o);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(check_command, Check)

BOOST_AUTO_TEST_CASE(a_valid_file_is_ok) {
  const Outcome r = run("[train]\nsteps = 5\n");
  BOOST_TEST(r.out == "run.toml: ok\n", r.out);
  BOOST_TEST(r.code == 0);
  BOOST_TEST(run("", {"-q"}).out == "");
  // Plans accept what training does not.
  const Outcome planned = run("[parallel]\ntensor = 2\n");
  BOOST_TEST(planned.code == 0);
  BOOST_TEST(
      planned.out ==
          "run.toml:2:10: parallel.tensor = 2 needs 2 processes, but this one was started alone (mpirun "
          "-n 2 trainhost ...; or set parallel.tensor = 1)\nrun.toml: ok\n",
      planned.out);
}

BOOST_AUTO_TEST_CASE(all_errors_are_printed_like_those_of_a_compiler) {
  const Outcome r = run("[train]\nmicro_bach = 8\nsteps = -1\n[plugin.cpu]\nzzz = 1\n[plugin.nope]\na = 1\n",
                        {"--set", "optimizer.lr=fast"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err == "");
  BOOST_TEST(
      r.out ==
          "run.toml:2:1: unknown key 'train.micro_bach'; did you mean 'train.micro_batch'?\n"
          "run.toml:3:9: train.steps = -1: expected a whole number from 1\n"
          "run.toml:5:7: plugin.cpu.zzz: the plugin has no such option (it has no options)\n"
          "run.toml:7:5: [plugin.nope]: no plugin of that name is installed (see trainhost plugins list)\n"
          "--set optimizer.lr = \"fast\": expected a number from 0 to 100, got a string\n"
          "run.toml: 5 errors\n",
      r.out);
}

BOOST_AUTO_TEST_CASE(other_commands_report_all_errors_too) {
  folder.write("run.toml", "[train]\nmicro_bach = 8\nsteps = -1\n");
  RunOptions o;
  o.directory = folder.path();
  const std::string in_file =
                        "trainhost: run.toml:2:1: unknown key 'train.micro_bach'; did you mean "
                        "'train.micro_batch'?\ntrainhost: run.toml:3:9: train.steps = -1: expected a whole "
                        "number from 1\n",
                    set =
                        "trainhost: --set train.stepz: unknown key 'train.stepz'; did you mean "
                        "'train.steps'?\n",
                    rate =
                        "trainhost: --set optimizer.lr = \"fast\": expected a number from 0 "
                        "to 100, got a string\n";
  const std::vector<std::string> sets = {"--set", "train.stepz=3", "--set", "optimizer.lr=fast"};
  for (const char* command : {"train", "plan"}) {
    std::vector<std::string> file = {command, "run.toml"}, builtin = {command}, model = {command};
    file.insert(file.end(), sets.begin(), sets.end());
    builtin.insert(builtin.end(), sets.begin(), sets.end());
    model.push_back("--model=llama-3-8b");
    model.insert(model.end(), sets.begin(), sets.end());
    const Outcome of_file = run_program(file, o), of_builtin = run_program(builtin, o),
                  of_model = run_program(model, o);
    BOOST_TEST((of_file.code == 2 && of_builtin.code == 2 && of_model.code == 2));
    BOOST_TEST(of_file.err == in_file + set + rate, of_file.err);
    BOOST_TEST(of_builtin.err == set + rate, of_builtin.err);
    BOOST_TEST(of_model.err == set + rate, of_model.err);
  }
  // One error is printed as before.
  const Outcome one = run_program({"train", "--set", "train.stepz=3"}, o);
  BOOST_TEST((one.code == 2 && one.err == set), one.err);
}

BOOST_AUTO_TEST_CASE(names_of_plugins_are_checked) {
  const Outcome r =
      run("[memory]\nestimator = [\"lama\", \"transformer\"]\n[train]\nbackend = \"gpuu\"\n[plugins]\norder "
          "= [\"cpuu\"]\n");
  BOOST_TEST(r.code == 2);
  BOOST_TEST(
      has(r.out,
          "run.toml:2:13: memory.estimator: no plugin provides the estimator 'lama'; did you mean 'llama'?"),
      r.out);
  BOOST_TEST(has(r.out, "run.toml:4:11: no plugin provides the backend 'gpuu'"), r.out);
  BOOST_TEST(
      has(r.out, "run.toml:6:9: plugins.order: no plugin provides the backend 'cpuu'; did you mean 'cpu'?"),
      r.out);
  BOOST_TEST(has(r.out, "run.toml: 3 errors\n"), r.out);
}

BOOST_AUTO_TEST_CASE(errors_in_json) {
  const Outcome r = run("[train]\nmicro_bach = 8\n", {"--json"});
  BOOST_TEST(r.code == 2);
  const auto j = nlohmann::json::parse(r.out);
  BOOST_TEST(j["errors"].size() == 1u);
  const auto& e = j["errors"][0];
  BOOST_TEST(e["file"] == "run.toml");
  BOOST_TEST(e["line"] == 2);
  BOOST_TEST(e["column"] == 1);
  BOOST_TEST(e["key"] == "train.micro_bach");
  BOOST_TEST(e["nearest_key"] == "train.micro_batch");
  BOOST_TEST(e["message"] == "unknown key 'train.micro_bach'; did you mean 'train.micro_batch'?");
  BOOST_TEST(nlohmann::json::parse(run("", {"--json"}).out)["errors"].empty());
}

BOOST_AUTO_TEST_CASE(data_is_not_read) {
  folder.write("data.jsonl", "this is no JSON\n");
  BOOST_TEST(run("[data]\ntrain = \"data.jsonl\"\n").code == 0);
  BOOST_TEST(run("[data]\ntrain = \"dta.jsonl\"\n").code == 2);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_read_is_an_error) {
  RunOptions o;
  o.directory = folder.path();
  const Outcome r = run_program({"check", "none.toml"}, o);
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.out, "does not exist"), r.out);
  BOOST_TEST(run("[train\n").code == 2);
}

BOOST_AUTO_TEST_SUITE_END()
