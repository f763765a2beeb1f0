// Notes of the calculon plugin on every published config: every config is estimated, every total is in a
// note, no note is empty or unfinished. The configs are not part of the repository; the test is skipped with
// a message without them.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/calculon/report.hpp"

using namespace trainhost;
namespace fs = std::filesystem;

namespace {

const fs::path kConfigs = fs::path(TRAINHOST_SOURCE_DIR) / ".." / "shared" / "data" / "hf_configs";

std::vector<fs::path> configs() {
  std::vector<fs::path> out;
  if (fs::exists(kConfigs))
    for (const auto& f : fs::directory_iterator(kConfigs))
      if (f.path().extension() == ".json" && f.path().filename() != "PARAMS.json") out.push_back(f.path());
  if (out.empty()) BOOST_TEST_MESSAGE("skipped: there is no " << kConfigs);
  BOOST_TEST(true);
  return out;
}

ModelSpec read(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return model::outline(model::from_config(text.str(), file.stem().string()), text.str());
}

RunSpec all_bf16() {
  RunSpec r;
  r.seq_len = 2048, r.micro_batch = 2, r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  return r;
}

bool says(const MemoryReport& r, const char* part) {
  for (const std::string& note : r.notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(calculon_configs)

BOOST_AUTO_TEST_CASE(every_published_config_is_estimated_with_a_note_of_its_true_total) {
  const auto files = configs();
  for (const fs::path& file : files) {
    const ModelSpec m = read(file);
    BOOST_REQUIRE_MESSAGE(calculon::has_dimensions(m), file.stem());
    for (RunMode mode : {RunMode::kFull, RunMode::kInference}) {
      RunSpec r = all_bf16();
      r.mode = mode;
      const MemoryReport report = calculon::report(m, r, {}, Tier::kDevice);
      const std::uint64_t truth = model::count(model::from_model(m)).total;
      const std::uint64_t form = calculon::form_parameters(m, {}, calculon::map(m, r, {}));
      bool named = truth == form;
      for (const std::string& note : report.notes) {
        BOOST_TEST_MESSAGE(file.stem().string() << ": " << note);
        BOOST_TEST((note.size() > 30 && note.back() == '.'), note);
        named |= note.find("True parameters: " + format_count(truth) + ";") != std::string::npos;
      }
      BOOST_TEST(named, file.stem());
      // 61 layers * 2 * 2048 tokens * (512 + 64) * 2 bytes: the latent cache of the real model.
      if (file.stem() == "DeepSeek-V3" && mode == RunMode::kInference)
        BOOST_TEST((says(report, "no latent attention") && says(report, "it would take 287,834,112 bytes")));
      BOOST_TEST(report.total_bytes() > 0u);
    }
  }
  if (!files.empty()) BOOST_TEST(files.size() >= 47u);
}

BOOST_AUTO_TEST_SUITE_END()
