// Loads plugins that were built once per released minor version, with the oldest supported compiler, in the
// current host. Their numbers and notes must not change. How the files were built:
// tests/sdk/frozen/README.md.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/plugin/file_validation.hpp"
#include "core/plugin/registry.hpp"
#include "tests/support/files.hpp"

namespace fs = std::filesystem;
namespace tp = trainhost::plugin;

namespace {

const fs::path kFrozen = fs::path(TRAINHOST_SOURCE_DIR) / "tests/sdk/frozen";

using trainhost::test::read_file;

/// Copies of the plugins in a folder that only this user may write to, independent of the umask of the
/// checkout.
struct PluginCopies {
  explicit PluginCopies(const fs::path& from) {
    for (const auto& e : fs::directory_iterator(from))
      if (e.path().extension() == ".so") {
        fs::copy_file(e.path(), path / e.path().filename());
        fs::permissions(path / e.path().filename(), fs::perms(0644));
      }
  }
  trainhost::test::TemporaryDirectory directory;
  fs::path path = directory.path();
};

trainhost::ModelSpec llama() {
  trainhost::ModelSpec m;
  m.family = "llama";
  m.vocab = 100, m.hidden = 16, m.layers = 2, m.heads = 4, m.kv_heads = 2, m.head_dim = 4,
  m.intermediate = 32;
  return m;
}

trainhost::RunSpec run() {
  trainhost::RunSpec r;
  r.micro_batch = 2, r.seq_len = 8;
  return r;
}

void print_report(std::ostream& to, const trainhost::MemoryReport& r) {
  to << "  claim " << static_cast<int>(r.claim) << ", " << r.total_bytes() << " bytes\n";
  for (const trainhost::MemoryEntry& n : r.entries)
    to << "  " << n.id << " in " << n.parent << " " << n.name << " tier " << static_cast<int>(n.tier)
       << " component " << static_cast<int>(n.component) << " claim " << static_cast<int>(n.claim)
       << " phases " << n.phases << ": " << n.lo << " " << n.bytes << " " << n.hi << " [" << n.formula
       << "]\n";
  for (const std::string& note : r.notes) to << "  note: " << note << "\n";
}

/// Three updates on the same tokens. Losses are printed with five digits, which do not depend on the
/// instruction set.
void print_training(std::ostream& to, tp::Trainer& t) {
  trainhost::RunSpec r = run();
  std::unique_ptr<tp::Session> s = t.create(llama(), r);
  s->init(7);
  std::vector<std::int32_t> tokens(16), targets(16);
  for (int i = 0; i < 16; ++i)
    tokens[static_cast<std::size_t>(i)] = i * 7 % 100,
    targets[static_cast<std::size_t>(i)] = (i + 1) * 7 % 100;
  for (std::uint64_t step = 0; step < 3; ++step) {
    char line[64];
    std::snprintf(
        line, sizeof line, "  step %d: loss %.5f\n", static_cast<int>(step),
        s->step({.tokens = tokens, .targets = targets, .batch = 2, .seq = 8, .lr = 0.01, .step_index = step})
            .loss);
    to << line;
  }
  std::uint64_t tensors = 0, elements = 0;
  s->save(tp::Scope::kWeights, [&](const tp::TensorPiece& p) { ++tensors, elements += p.count; });
  to << "  saved " << tensors << " pieces of " << elements << " numbers\n";
}

std::string describe_plugins(const fs::path& folder) {
  const PluginCopies copies(folder);
  tp::Registry registry({copies.path}, {});
  registry.scan();
  registry.probe_all();
  std::ostringstream out;
  for (const tp::Candidate& c : registry.candidates()) {
    out << c.manifest.id << " " << c.manifest.version << " " << c.manifest.kind;
    if (c.status != tp::Status::kOk) {
      out << " " << c.stage << "/" << c.code << ": " << c.reason << "\n";
      continue;
    }
    if (c.manifest.kind == "trainer") {
      out << "\n";
      tp::Trainer& t = registry.trainer(c.manifest.id);
      print_report(out, t.plan(llama(), run()));
      print_training(out, t);
    } else {
      tp::Estimator& e = registry.estimator(c.manifest.id);
      out << ", match " << e.match(llama(), run()) << "\n";
      print_report(out, e.estimate(llama(), run(), nullptr));
    }
  }
  return out.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frozen)

BOOST_AUTO_TEST_CASE(plugins_of_every_released_minor_give_the_same_results) {
#if !defined(__x86_64__)
  BOOST_TEST_MESSAGE("skipped: frozen plugins (they are for x86-64)");
  return;
#endif
  int minors = 0;
  for (const auto& e : fs::directory_iterator(kFrozen)) {
    if (!e.is_directory()) continue;
    ++minors;
    const std::string actual = describe_plugins(e.path()), expected = read_file(e.path() / "expected.txt");
    const fs::path kept =
        fs::path(TRAINHOST_BINARY_DIR) / "tests" / ("frozen-" + e.path().filename().string() + ".txt");
    if (actual != expected) std::ofstream(kept, std::ios::binary) << actual;
    BOOST_TEST(actual == expected, e.path() << ": results differ: compare expected.txt with " << kept);
  }
  BOOST_TEST(minors >= 1);
}

BOOST_AUTO_TEST_CASE(the_files_are_unchanged) {
  for (const auto& e : fs::directory_iterator(kFrozen)) {
    if (!e.is_directory()) continue;
    std::istringstream lines(read_file(e.path() / "sha256"));
    int files = 0;
    for (std::string hash, name; lines >> hash >> name; ++files)
      BOOST_TEST(tp::content_hash(e.path() / name, tp::identify(e.path() / name)) == hash, name);
    BOOST_TEST(files == 5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
