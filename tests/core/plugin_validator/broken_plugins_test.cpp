// Every check is failed by one broken plugin, which passes all other checks or skips them because of a failed
// prerequisite. broken_plugins.txt is the table; a check without a broken plugin fails here.
#include <elf.h>
#include <sys/stat.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "core/plugin_validator/runner.hpp"
#include "tests/support/files.hpp"

namespace fs = std::filesystem;
namespace tc = trainhost::plugin_validator;

namespace {

struct BrokenPlugin {
  std::string name, kind, check;
};

/// AddressSanitizer replaces malloc(), whose counters the checks of leaks read.
bool is_counted(const std::string& name) {
#ifdef __SANITIZE_ADDRESS__
  return !name.starts_with("leaks_") && name != "unreported_memory";
#else
  return !name.empty();
#endif
}

std::vector<BrokenPlugin> broken_plugins() {
  std::ifstream in(fs::path(TRAINHOST_SOURCE_DIR) / "tests/core/plugin_validator/broken_plugins.txt");
  std::vector<BrokenPlugin> all;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    BrokenPlugin a;
    if (!line.empty() && line[0] != '#' && words >> a.name >> a.kind >> a.check) all.push_back(a);
  }
  return all;
}

using trainhost::test::read_file;

/// Sets DF_TEXTREL in the dynamic section, as a library that was compiled without -fPIC has it.
void add_text_relocations(std::string& elf) {
  Elf64_Ehdr h;
  std::memcpy(&h, elf.data(), sizeof h);
  for (int i = 0; i < h.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, elf.data() + h.e_phoff + static_cast<std::size_t>(i) * sizeof p, sizeof p);
    for (std::size_t at = p.p_offset; p.p_type == PT_DYNAMIC && at < p.p_offset + p.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn d;
      std::memcpy(&d, elf.data() + at, sizeof d);
      if (d.d_tag != DT_FLAGS) continue;
      d.d_un.d_val |= DF_TEXTREL;
      std::memcpy(elf.data() + at, &d, sizeof d);
      return;
    }
  }
  BOOST_FAIL("the correct estimator has no DT_FLAGS");
}

/// A temporary directory for files made from the correct estimator.
struct FileVariants {
  FileVariants() {
    std::string pattern = (fs::temp_directory_path() / "trainhost-plugins-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
  }
  ~FileVariants() { fs::remove_all(root); }
  fs::path file(const std::string& name) {
    const fs::path directory = root / name, file = directory / "sample.so";
    fs::create_directory(directory);
    std::string elf = read_file(fs::path(TEST_PLUGINS_DIR) / "estimator-none.so");
    if (name == "a_directory") return fs::create_directory(file), file;
    if (name == "not_a_library") elf = "This is a text file.\n";
    if (name == "truncated") elf.resize(elf.size() / 4);
    if (name == "text_relocations") add_text_relocations(elf);
    std::ofstream(file, std::ios::binary) << elf;
    ::chmod(file.c_str(), name == "writable_by_all" ? 0666 : 0755);
    if (name == "writable_directory") ::chmod(directory.c_str(), 0777);
    return file;
  }
  fs::path root;
};

/// Checks that compare with a reference. The models of estimator.c and trainer.c differ from it, so these
/// checks run only for the plugins that must fail one of them.
const std::vector<std::string> kReferenceChecks = {"T-050", "T-064", "T-065", "T-066", "E-023"};
bool compares_with_reference(const std::string& check) {
  return std::find(kReferenceChecks.begin(), kReferenceChecks.end(), check) != kReferenceChecks.end();
}

/// Seconds for one check. The short deadline suits plugins that hang; with the long one only a stalled
/// machine is late.
constexpr double kShortDeadline = 10, kLongDeadline = 60;

tc::Settings settings_for(const fs::path& file, double deadline) {
  tc::Settings s;
  s.file = file, s.program = TRAINHOST_PROGRAM, s.level = tc::kLevels, s.deadline = deadline;
  s.skip = kReferenceChecks;
  return s;
}

/// The checks of a broken plugin: those up to the level of its fault and at least the default ones, with
/// processes of their own only on that level. The rest takes most of the time and repeats what lower levels
/// do; the correct plugins pass all of it. Prerequisites are always run. With the environment variable
/// TRAINHOST_ALL_LEVELS every broken plugin is checked on every level.
tc::Settings settings_for(const BrokenPlugin& a, const fs::path& file, double deadline) {
  tc::Settings s = settings_for(file, deadline);
  if (compares_with_reference(a.check)) {
    s.reference_estimator = fs::path(OWN_PLUGINS) / "llama.so";
    s.skip.clear();
  }
  if (std::getenv("TRAINHOST_ALL_LEVELS")) return s;
  const int level = tc::find(a.check)->level;
  s.level = std::max(tc::kDefaultLevel, level);
  for (const tc::Check& c : tc::checks())
    if (c.own_process && c.level != level) s.skip.push_back(c.id);
  return s;
}

bool failed_check(tc::Outcome o) {
  return o == tc::Outcome::kFail || o == tc::Outcome::kCrash || o == tc::Outcome::kTimeout;
}

/// The difference between the report and the row of broken_plugins.txt; "" if there is none.
std::string difference_from_row(const BrokenPlugin& a, const tc::Report& r) {
  std::string wrong;
  bool failed = false;
  for (const tc::Result& x : r.results) {
    const bool own = x.check->id == a.check;
    failed = failed || (own && failed_check(x.verdict.outcome));
    if (!own && failed_check(x.verdict.outcome))
      wrong += " also fails " + x.check->id + ": " + x.verdict.reason + ";";
    if (x.verdict.outcome == tc::Outcome::kSkip && x.verdict.reason.empty())
      wrong += " skips " + x.check->id + " without a reason;";
    if (own && x.verdict.reason.empty()) wrong += " fails it without a reason;";
  }
  if (!failed) wrong += " does not fail " + a.check + ";";
  return wrong;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(broken_plugins_matrix)

BOOST_AUTO_TEST_CASE(the_correct_plugins_pass_everything) {
  for (const char* name : {"estimator-none.so", "trainer-none.so"}) {
    const tc::Report r = tc::run_checks(settings_for(fs::path(TEST_PLUGINS_DIR) / name, kLongDeadline));
    BOOST_TEST(r.results.size() > 60u);
    for (const tc::Result& x : r.results)
      BOOST_TEST((x.verdict.outcome == tc::Outcome::kPass || compares_with_reference(x.check->id)),
                 name << " " << x.check->id << ": " << x.verdict.reason);
  }
}

BOOST_AUTO_TEST_CASE(every_check_is_failed_by_a_broken_plugin) {
  std::set<std::string> failed;
  for (const BrokenPlugin& a : broken_plugins()) {
    BOOST_TEST((tc::find(a.check) != nullptr), a.name << " fails " << a.check << ", which is no check");
    failed.insert(a.check);
  }
  for (const tc::Check& c : tc::checks())
    BOOST_TEST(failed.count(c.id) == 1u, c.id << " has no broken plugin in broken_plugins.txt");
}

BOOST_AUTO_TEST_CASE(each_broken_plugin_fails_its_check_and_no_other) {
  std::vector<BrokenPlugin> all = broken_plugins();
  std::erase_if(all, [](const BrokenPlugin& p) { return !is_counted(p.name); });
  FileVariants variants;
  std::vector<fs::path> files;
  for (const BrokenPlugin& a : all)
    files.push_back(a.kind == "file" ? variants.file(a.name)
                                     : fs::path(TEST_PLUGINS_DIR) / (a.kind + "-" + a.name + ".so"));
  std::atomic<std::size_t> next{0};
  std::vector<std::string> wrong(all.size());
  const auto work = [&] {
    for (std::size_t i; (i = next++) < all.size();)
      for (const double deadline :
           {kShortDeadline, kLongDeadline})  // retried in case the machine was stalled
        if (wrong[i] = difference_from_row(all[i], tc::run_checks(settings_for(all[i], files[i], deadline)));
            wrong[i].empty())
          break;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back(work);
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < all.size(); ++i)
    BOOST_TEST(wrong[i] == "", all[i].kind << " " << all[i].name << wrong[i]);
}

BOOST_AUTO_TEST_SUITE_END()
