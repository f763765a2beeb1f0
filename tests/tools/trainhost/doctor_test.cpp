// trainhost doctor on this machine: every line has a state, warnings and errors say what to do.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

nlohmann::json doctor_json(const RunOptions& o, std::vector<std::string> more, int* code) {
  more.insert(more.begin(), {"doctor", "--json"});
  const Outcome r = run_program(more, o);
  *code = r.code;
  return nlohmann::json::parse(r.out);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(doctor)

BOOST_AUTO_TEST_CASE(every_part_of_the_machine_is_judged) {
  RunOptions o;
  o.environment = {{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}};
  int code = -1;
  const nlohmann::json j = doctor_json(o, {}, &code);
  std::set<std::string> names;
  int errors = 0, warnings = 0;
  for (const auto& f : j["findings"]) {
    names.insert(f["group"].get<std::string>() + "/" + f["name"].get<std::string>());
    const std::string state = f["state"], hint = f["hint"];
    BOOST_TEST((state == "ok" || state == "warning" || state == "error"), state);
    BOOST_TEST((state == "ok") == hint.empty(), f["name"]);
    errors += state == "error", warnings += state == "warning";
  }
  for (const char* name :
       {"cpu/processor",     "cpu/instruction sets", "cpu/CPU limit",       "cpu/caches",
        "cpu/NUMA",          "memory/memory",        "memory/memory limit", "memory/shared memory",
        "disk/runs",         "disk/cache",           "libraries/BLAS",      "cuda/CUDA driver",
        "cuda/CUDA runtime", "libraries/NCCL",       "libraries/MPI",       "plugins/cpu",
        "plugins/cuda",      "plugins/llama",        "system/locale",       "limits/open files"})
    BOOST_TEST(names.count(name) == 1u, name);
  BOOST_TEST(j["errors"] == errors);
  BOOST_TEST(j["warnings"] == warnings);
  BOOST_TEST(code == (errors ? 5 : 0));
  for (const auto& f : j["findings"])
    if (f["name"] == "BLAS") BOOST_TEST(f["data"]["kernel"].get<std::string>() != "");
}

BOOST_AUTO_TEST_CASE(the_table_ends_with_the_counts) {
  const Outcome r = run_program({"doctor"});
  BOOST_TEST(r.out.find("instruction sets") != std::string::npos, r.out);
  BOOST_TEST(r.out.find(" error") != std::string::npos, r.out);
  BOOST_TEST(r.out.ends_with("warnings\n") + r.out.ends_with("warning\n") == 1, r.out);
}

BOOST_AUTO_TEST_CASE(a_rejected_plugin_is_a_warning_and_a_broken_trainer_an_error) {
  TemporaryDirectory tmp;
  tmp.write("broken.so", "not a library");
  int code = -1;
  for (const auto& f : doctor_json({}, {"--plugin-path", tmp.path().string()}, &code)["findings"])
    if (f["name"] == "broken.so") BOOST_TEST(f["state"] == "warning");
  // A program without plugins.
  std::filesystem::create_directories(tmp.path() / "bin");
  std::filesystem::copy_file(program(), tmp.path() / "bin/trainhost");
  RunOptions o;
  o.program = (tmp.path() / "bin/trainhost").string();
  const Outcome r = run_program({"doctor", "-q"}, o);
  BOOST_TEST(r.code == 5);
  BOOST_TEST(r.out.find("no trainer can be used") != std::string::npos, r.out);
  BOOST_TEST(r.out.find("instruction sets") == std::string::npos, r.out);
}

BOOST_AUTO_TEST_SUITE_END()
