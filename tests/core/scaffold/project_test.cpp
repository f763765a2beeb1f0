// Projects as lists of files: every combination is complete and filled in, names are checked with the nearest right one, and
// what stands on disk is never touched. That the projects build and run: tests/sdk/installed/scaffolds_test.sh.
#include "core/scaffold/project.hpp"

#include <boost/test/unit_test.hpp>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/base/error.hpp"
#include "core/scaffold/embedded.hpp"

namespace fs = std::filesystem;
namespace sc = trainhost::scaffold;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string message(const sc::Request& r) {
  try {
    sc::project(r);
  } catch (const trainhost::Error& e) {
    return e.full();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(scaffold)

BOOST_AUTO_TEST_CASE(what_is_embedded_is_what_lies_in_the_tree) {
  const fs::path root = fs::path(TRAINHOST_SOURCE_DIR) / "sdk";
  std::size_t templates = 0;
  for (const sc::Embedded& e : sc::templates()) {
    const std::string path(e.path);
    const bool crate = path.rfind("crate/", 0) == 0;
    BOOST_TEST(std::string(e.text) == text_of(root / (crate ? "rust" + path.substr(5) : path)), path);
    templates += !crate;
  }
  std::size_t files = 0;
  for (const auto& e : fs::recursive_directory_iterator(root / "templates")) files += e.is_regular_file();
  BOOST_TEST(templates == files - 1);  // all but its README
}

BOOST_AUTO_TEST_CASE(every_project_is_complete_and_filled_in) {
  for (const char* kind : {"estimator", "trainer"})
    for (const char* lang : {"c", "c++", "rust"}) {
      std::set<std::string> paths;
      for (const sc::File& f : sc::project({"acme-conv", kind, lang, ""})) {
        paths.insert(f.path);
        BOOST_TEST(f.executable == has(f.path, ".sh"), f.path);
        if (f.path.rfind("vendor/", 0) == 0) continue;
        for (const char* word : {"@NAME@", "@CRATE@", "@TYPE@", "@FAMILY@", "@KIND@", "@LANG@"})
          BOOST_TEST(!has(f.path + f.text, word), f.path + " still has " + word);
      }
      const std::string build = lang == std::string("rust") ? "Cargo.toml" : "CMakeLists.txt";
      for (const std::string& needed : {std::string("README.md"), std::string("ci.sh"), std::string("test.sh"), std::string("run.toml"),
                                        std::string(".github/workflows/ci.yml"), std::string(".gitignore"), build})
        BOOST_TEST(paths.count(needed) == 1u, std::string(kind) + " " + lang + " lacks " + needed);
    }
}

BOOST_AUTO_TEST_CASE(a_wrong_word_is_answered_with_the_nearest_right_one) {
  BOOST_TEST(message({"acme-conv", "estimator", "c", ""}) == "");
  BOOST_TEST(has(message({"Acme Conv!", "estimator", "c", ""}), "did you mean 'acme-conv'?"));
  BOOST_TEST(has(message({"../up", "estimator", "c", ""}), "did you mean 'up'?"));
  BOOST_TEST(has(message({"", "estimator", "c", ""}), "is not 1 to 40"));
  BOOST_TEST(has(message({"9\x1b[31m", "estimator", "c", ""}), "did you mean 'm'?"));
  BOOST_TEST(has(message({std::string(41, 'a'), "estimator", "c", ""}), "did you mean '" + std::string(40, 'a') + "'?"));
  BOOST_TEST(has(message({"all", "estimator", "c", ""}), "a word of CMake or Cargo"));
  BOOST_TEST(has(message({"x", "trainers", "c", ""}), "did you mean 'trainer'?"));
  BOOST_TEST(has(message({"x", "trainer", "cpp", ""}), "one of c, c++, rust"));
  BOOST_TEST(has(message({"x", "estimator", "c", "A\"b"}), "the family"));
}

BOOST_AUTO_TEST_CASE(what_stands_on_disk_is_never_touched) {
  const fs::path dir = fs::temp_directory_path() / ("trainhost-scaffold-" + std::to_string(::getpid()));
  fs::remove_all(dir);
  const std::vector<sc::File> files = {{"a/b.sh", "echo\n", true}, {"c", "text", false}};
  fs::create_directories(dir);
  sc::write(dir, files);  // an empty folder will do
  BOOST_TEST(text_of(dir / "a/b.sh") == "echo\n");
  BOOST_TEST(((fs::status(dir / "a/b.sh").permissions() & fs::perms::owner_exec) != fs::perms::none));
  BOOST_CHECK_THROW(sc::write(dir, {{"c", "other", false}}), trainhost::Error);
  BOOST_TEST(text_of(dir / "c") == "text");
  BOOST_CHECK_THROW(sc::write(dir / "c", files), trainhost::Error);
  fs::remove_all(dir);
}

BOOST_AUTO_TEST_SUITE_END()
