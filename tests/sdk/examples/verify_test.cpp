// Runs `trainhost verify` for the example trainer: its results hold, and a deliberate mistake in one kernel
// is detected. The CPU trainer is the reference.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

#include "tests/support/process.hpp"

namespace trainhost {
namespace {

using namespace test;

bool has_cpu_trainer() {
  return std::filesystem::exists(TRAINHOST_BINARY_DIR "/lib/trainhost/engines/cpu-openblas.so");
}

/// Ids of the checks with that status, without MEM-002/run, which only reports a policy.
std::set<std::string> rows(const Outcome& o, const std::string& status) {
  std::set<std::string> ids;
  const nlohmann::json report = nlohmann::json::parse(o.out);
  for (const nlohmann::json& row : report.at("results"))
    if (row.at("status") == status && row.at("id") != "MEM-002/run") ids.insert(row.at("id"));
  return ids;
}

Outcome verify(const char* backend, const char* folder, const char* only) {
  return run_program(
      {"verify", "--json", std::string("--backend=") + backend, "--plugin-path", folder, "--only", only});
}

BOOST_AUTO_TEST_SUITE(plain_verified)

BOOST_AUTO_TEST_CASE(the_plain_trainer_passes_verify) {
  const Outcome o = verify("plain", EXAMPLE_PLUGINS, "MEM-001,MEM-002,MEM-004,MEM-005,GPU-006");
  BOOST_TEST(o.code == 0);
  BOOST_TEST(rows(o, "falsified").empty(), o.out);
  BOOST_TEST(rows(o, "held").size() >= 5u, o.out);
}

BOOST_AUTO_TEST_CASE(it_trains_like_the_cpu_trainer,
                     *boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
                       return has_cpu_trainer();
                     })) {
  const Outcome o = verify("plain", EXAMPLE_PLUGINS, "GPU-001,GPU-007");
  BOOST_TEST(o.code == 0);
  BOOST_TEST(rows(o, "held") == (std::set<std::string>{"GPU-001", "GPU-007"}), o.out);
}

BOOST_AUTO_TEST_CASE(a_mistake_in_one_kernel_is_detected,
                     *boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
                       return has_cpu_trainer();
                     })) {
  const Outcome o = verify("faulty", FAULTY_PLUGINS, "GPU-007");
  BOOST_TEST(o.code == 5);
  BOOST_TEST(rows(o, "falsified").count("GPU-007") == 1u, o.out);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
