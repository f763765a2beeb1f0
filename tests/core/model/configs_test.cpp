// Parameter counts of every published config compared with the published total, or with the recomputed one if
// none is published; active parameters with the publisher's rounded figures. The configs are not part of the
// repository; the test is skipped with a message if they are not next to the source tree (totals_test.cpp
// needs no files).
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/model/architecture.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/support/architecture_tensors.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const fs::path kConfigs = fs::path(TRAINHOST_SOURCE_DIR) / ".." / "shared" / "data" / "hf_configs";

using trainhost::test::read_file;

/// The rows of PARAMS.json; empty, with a message, if it does not exist.
Json published() {
  if (fs::exists(kConfigs / "PARAMS.json"))
    return Json::parse(read_file(kConfigs / "PARAMS.json")).at("models");
  BOOST_TEST_MESSAGE("skipped: there is no " << kConfigs);
  BOOST_TEST(true);
  return Json::array();
}

model::Architecture read(const Json& row) {
  const std::string file = row.at("config");
  return model::from_config(read_file(kConfigs / file), file);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(published_configs)

BOOST_AUTO_TEST_CASE(parameters_of_every_config_equal_the_published_total) {
  const Json rows = published();
  for (const Json& row : rows) {
    const auto total = model::count(read(row)).total;
    const std::uint64_t recomputed = row.at("recomputed_total");
    const bool stated =
        row.at("total_kind") == "exact" && total == row.at("total_params").get<std::uint64_t>();
    const bool either = row.at("total_kind") != "exact" || row.at("name") == "DeepSeek-V3";
    BOOST_TEST((stated || (either && total == recomputed)),
               row.at("name").get<std::string>() << ": " << total << ", recomputed " << recomputed);
  }
  if (!rows.empty()) BOOST_TEST(rows.size() >= 47u);
}

BOOST_AUTO_TEST_CASE(active_parameters_are_those_used_by_a_token) {
  std::size_t sparse = 0;
  for (const Json& row : published()) {
    const model::Counts n = model::count(read(row));
    if (!row.contains("recomputed_active")) {
      BOOST_TEST(n.active == n.total, row.at("name").get<std::string>());
      continue;
    }
    ++sparse;
    // Publishers round, and differ in whether the embedding counts.
    BOOST_TEST(static_cast<double>(n.active) == row.at("active_stated").get<double>(),
               boost::test_tools::tolerance(0.15));
    const auto recomputed = row.at("recomputed_active").get<std::uint64_t>();
    BOOST_TEST((n.active == recomputed || n.active == recomputed + 58 * 256),
               row.at("name").get<std::string>() << ": " << n.active);
  }
  if (fs::exists(kConfigs / "PARAMS.json")) BOOST_TEST(sparse == 5u);
}

BOOST_AUTO_TEST_CASE(tensors_one_by_one_sum_to_the_closed_form) {
  for (const Json& row : published()) {
    const model::Architecture a = read(row);
    std::uint64_t sum = 0;
    for (const model::TensorShape& t : model::tensor_shapes(a)) sum += t.elements();
    BOOST_TEST(sum == model::count(a).total, row.at("name").get<std::string>());
  }
}

BOOST_AUTO_TEST_CASE(a_trainable_config_gives_the_same_architecture_as_its_fields) {
  std::size_t compared = 0;
  for (const Json& row : published()) {
    if (!trainable_family(row.at("model_type"))) continue;
    ++compared;
    const fs::path file = kConfigs / row.at("config").get<std::string>();
    const ModelSpec m = runfile::read_model_config(file);
    BOOST_TEST((model::from_model(m) == model::from_config(read_file(file), m.name)), m.name);
  }
  if (fs::exists(kConfigs / "PARAMS.json")) BOOST_TEST(compared >= 20u);
}

BOOST_AUTO_TEST_CASE(only_fields_that_change_memory_get_a_note) {
  for (const Json& row : published()) {
    const model::Architecture a = read(row);
    for (const std::string& note : a.notes) BOOST_TEST_MESSAGE(a.name << ": " << note);
    BOOST_TEST(a.notes.size() == (a.family == "deepseek_v3" ? 2u : 0u), a.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
