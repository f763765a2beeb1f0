// Every published config of a trainable family has exactly the parameter count of its published checkpoint.
// The configs are not part of the repository: the test looks for them beside the source tree and is skipped
// if absent.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/model/tensors.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
namespace fs = std::filesystem;

namespace {

const fs::path kConfigs = fs::path(TRAINHOST_SOURCE_DIR) / ".." / "shared" / "data" / "hf_configs";

using trainhost::test::read_file;

/// "config": file -> "total_params": number, picked out of PARAMS.json line by line.
std::map<std::string, std::uint64_t> published_totals() {
  std::map<std::string, std::uint64_t> totals;
  std::istringstream lines(read_file(kConfigs / "PARAMS.json"));
  std::string config;
  for (std::string line; std::getline(lines, line);) {
    if (const auto at = line.find("\"config\": \""); at != line.npos)
      config = line.substr(at + 11, line.find('"', at + 11) - at - 11);
    if (const auto at = line.find("\"total_params\": ");
        at != line.npos && std::isdigit(static_cast<unsigned char>(line[at + 16])))
      totals[config] = std::stoull(line.substr(at + 16));
  }
  return totals;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(published_configs)

BOOST_AUTO_TEST_CASE(parameter_counts_of_trainable_configs_equal_the_published_ones) {
  if (!fs::exists(kConfigs / "PARAMS.json")) {
    BOOST_TEST_MESSAGE("skipped: missing " << kConfigs);
    BOOST_TEST(true);
    return;
  }
  const auto totals = published_totals();
  std::size_t trainable = 0, others = 0;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() != ".json" || file == "PARAMS.json") continue;
    const ModelSpec m = runfile::read_model_config(entry.path());
    if (!trainable_family(m.family)) {
      ++others;
      BOOST_TEST((m.vocab > 0 && m.hidden > 0 && m.layers > 0 && m.heads > 0),
                 file << " of family " << m.family);
      continue;
    }
    ++trainable;
    BOOST_REQUIRE_MESSAGE(totals.count(file), file << " has no published total");
    BOOST_TEST(count_parameters(m).total == totals.at(file), file);
    // Writing and reading it again gives the same model.
    ModelSpec again = runfile::parse_model_config(runfile::model_config_json(m), "again.json");
    again.name = m.name, again.config_json = m.config_json;
    BOOST_TEST((again == m), file);
  }
  BOOST_TEST(trainable >= 20u);
  BOOST_TEST(others >= 20u);
}

BOOST_AUTO_TEST_CASE(presets_equal_their_published_configs) {
  // clang-format off
  const std::map<std::string, std::string> files{
      {"llama-7b", "llama-7b.json"}, {"llama-13b", "llama-13b.json"}, {"llama-2-7b", "Llama-2-7b-hf.json"},
      {"llama-2-13b", "Llama-2-13b-hf.json"}, {"llama-2-70b", "Llama-2-70b-hf.json"}, {"llama-3-8b", "Meta-Llama-3-8B.json"},
      {"llama-3-70b", "Meta-Llama-3-70B.json"}, {"llama-3.1-8b", "Llama-3.1-8B.json"}, {"llama-3.1-70b", "Llama-3.1-70B.json"},
      {"llama-3.1-405b", "Llama-3.1-405B.json"}, {"llama-3.2-3b", "Llama-3.2-3B-Instruct.json"},
      {"mistral-7b-v0.1", "Mistral-7B-v0.1.json"}, {"qwen2.5-0.5b", "Qwen2.5-0.5B.json"}, {"qwen2.5-3b", "Qwen2.5-3B-Instruct.json"},
      {"qwen2.5-7b", "Qwen2.5-7B-Instruct.json"}, {"qwen3-0.6b", "Qwen3-0.6B.json"}, {"qwen3-1.7b", "Qwen3-1.7B.json"},
      {"smollm-360m", "SmolLM-360M.json"}, {"smollm2-360m", "SmolLM2-360M.json"},
      {"tinyllama-1.1b", "TinyLlama-1.1B-Chat-v1.0.json"}, {"yi-1.5-6b", "Yi-1.5-6B.json"}};
  // clang-format on
  for (const auto& [preset, file] : files) {
    if (!fs::exists(kConfigs / file)) {
      BOOST_TEST_MESSAGE("skipped: missing " << file);
      continue;
    }
    ModelSpec m = runfile::read_model_config(kConfigs / file);
    m.name = preset, m.config_json.clear();
    BOOST_TEST((m == *find_model_preset(preset)), preset);
  }
}

BOOST_AUTO_TEST_SUITE_END()
