// The program from outside: help, lists, plan, exit codes.
#include <boost/test/unit_test.hpp>

#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
const std::vector<std::string> kCommands = {"train", "plan", "sweep", "verify", "generate", "data", "plugins", "models", "devices", "init"};
}  // namespace

BOOST_AUTO_TEST_SUITE(cli)

BOOST_AUTO_TEST_CASE(every_command_has_help_with_an_example) {
  for (const std::string& c : kCommands) {
    Outcome r = run_program({c, "--help"});
    BOOST_TEST(r.code == 0, c);
    BOOST_TEST(has(r.out, "Example"), c + ": " + r.out);
  }
  Outcome r = run_program({"--help"});
  BOOST_TEST(r.code == 0);
  for (const std::string& c : kCommands) BOOST_TEST(has(r.out, c), c);
}

BOOST_AUTO_TEST_CASE(init_writes_a_file_that_plans) {
  TempDir tmp;
  RunOptions o;
  o.directory = tmp.path();
  BOOST_TEST(run_program({"init", "run.toml"}, o).code == 0);
  Outcome r = run_program({"plan", "run.toml"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "exact"));
  r = run_program({"init", "run.toml"}, o);
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "exists already"), r.err);
}

BOOST_AUTO_TEST_CASE(the_value_of_an_option_is_not_taken_for_a_misspelt_command) {
  Outcome r = run_program({"--plugin-path", "plug", "--backend=no-such"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "--plugin-path: 'plug' is no directory"), r.err);
  r = run_program({"trian"});
  BOOST_TEST(has(r.err, "did you mean 'train'?"), r.err);
}

BOOST_AUTO_TEST_CASE(models_and_devices_are_listed) {
  Outcome r = run_program({"models"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.out, "llama-3-8b"));
  BOOST_TEST(has(r.out, "8,030,261,248"));
  r = run_program({"devices", "--json"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.out, "\"h100-80gb\""));
}

BOOST_AUTO_TEST_CASE(a_model_too_large_for_its_budget_exits_3_and_says_by_how_much) {
  Outcome r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--set", "plugin.cuda.mode=resident"});
  BOOST_TEST(r.code == 3, r.err);
  BOOST_TEST(has(r.out, "does not fit"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "mode streamed: everything resident needs"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--budget=2GB"});
  BOOST_TEST(r.code == 3, r.err);
}

BOOST_AUTO_TEST_CASE(a_405b_plan_is_instant_and_small) {
  Outcome r = run_program({"plan", "--model=llama-3.1-405b", "--budget=100TB"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "405,853,388,800"), r.out);
#ifndef __SANITIZE_ADDRESS__  // its shadow memory is no part of the program
  BOOST_TEST(r.max_rss_bytes < 50u * 1000 * 1000);
#endif
}

BOOST_AUTO_TEST_CASE(all_estimators_stand_side_by_side) {
  Outcome r = run_program({"plan", "--estimator=all"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "estimator llama (exact)"), r.out);
  BOOST_TEST(has(r.out, "estimator contract (upper_bound)"), r.out);
}

BOOST_AUTO_TEST_CASE(plugins_are_listed_with_their_state) {
  Outcome r = run_program({"plugins", "list", "--json"});
  BOOST_TEST(r.code == 0, r.err);
  for (const char* name : {"\"cpu\"", "\"llama\"", "\"contract\""}) BOOST_TEST(has(r.out, name), r.out);
  r = run_program({"plugins", "info", "cpu"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "trainer"));
}

BOOST_AUTO_TEST_SUITE_END()
