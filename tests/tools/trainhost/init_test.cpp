// trainhost init and schema: the run file refers to the JSON Schema that is installed with the program.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(init)

BOOST_AUTO_TEST_CASE(the_first_line_names_the_installed_schema) {
  const std::string schema = run_program({"schema"}).out;
  BOOST_TEST(nlohmann::json::parse(schema)["title"] == "Run file of trainhost");
  const std::string text = run_program({"init"}).out, line = text.substr(0, text.find('\n'));
  const std::string begin = "#:schema file://";
  BOOST_REQUIRE_MESSAGE(line.starts_with(begin), line);
  BOOST_TEST(read_file(line.substr(begin.size())) == schema);
}

BOOST_AUTO_TEST_CASE(a_program_without_installed_files_names_a_schema_beside_the_run_file) {
  TemporaryDirectory tmp;
  std::filesystem::create_directories(tmp.path() / "bin");
  std::filesystem::copy_file(program(), tmp.path() / "bin/trainhost");
  RunOptions o;
  o.program = (tmp.path() / "bin/trainhost").string();
  o.directory = tmp.path();
  const Outcome r = run_program({"init", "run.toml"}, o);
  BOOST_TEST(r.code == 0);
  BOOST_TEST(read_file(tmp.path() / "run.toml").starts_with("#:schema ./run.schema.json\n"));
  BOOST_TEST(has(r.err, "trainhost schema > run.schema.json"), r.err);
  // A folder whose name a URL cannot contain.
  std::filesystem::create_directories(tmp.path() / "a b/bin");
  std::filesystem::create_directories(tmp.path() / "a b/share/trainhost");
  std::filesystem::copy_file(program(), tmp.path() / "a b/bin/trainhost");
  tmp.write("a b/share/trainhost/run.schema.json", "{}");
  o.program = (tmp.path() / "a b/bin/trainhost").string();
  const std::string text = run_program({"init"}, o).out;
  BOOST_TEST(has(text.substr(0, text.find('\n')), "/a%20b/share/trainhost/run.schema.json"),
             text.substr(0, 200));
}

BOOST_AUTO_TEST_SUITE_END()
