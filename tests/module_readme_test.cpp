// A README lists the files of its module, so that a reader finds the file for a task there. Two rules.
// 1. A source file of core, plugins, sdk and tools is named in the nearest README of its folder or of one
// above. 2. core/README.md links every module of core, and docs/architecture.md has a row for it.
#include <fnmatch.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/files.hpp"

namespace fs = std::filesystem;

namespace {

/// Sequences of the characters of paths and patterns in a text: "`ops_*.cpp`," gives "ops_*.cpp".
std::set<std::string> path_words(std::string_view text) {
  constexpr std::string_view kChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./*-";
  std::set<std::string> out;
  for (std::size_t begin = text.find_first_of(kChars); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_not_of(kChars, begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    while (!word.empty() && (word.back() == '.' || word.back() == '/')) word.remove_suffix(1);
    if (!word.empty()) out.emplace(word);
    begin = text.find_first_of(kChars, end);
  }
  return out;
}

/// Is `file`, a path from the README's folder, named by one of its words? A header names the .cpp file of the
/// same name, "walker" and "walker.*" name both, and a folder names the files in it.
bool is_named(const std::set<std::string>& words, const fs::path& file) {
  const std::string name = file.filename(), path = file;
  for (const std::string& word : words) {
    const fs::path w(word);
    if (word.find('*') != word.npos &&
        (!fnmatch(word.c_str(), name.c_str(), 0) || !fnmatch(word.c_str(), path.c_str(), 0)))
      return true;
    const fs::path stem = w.parent_path() / w.stem();
    if (word == name || word == path || word == file.stem() || stem == file.stem() ||
        stem == file.parent_path() / file.stem())
      return true;
    for (fs::path folder = file.parent_path(); !folder.empty(); folder = folder.parent_path())
      if (word == folder) return true;
  }
  return false;
}

bool is_source(const fs::path& file) {
  static const std::set<std::string> kEndings = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".py", ".rs"};
  return kEndings.count(file.extension()) > 0;
}

/// The folder of the README that lists `file`; empty if there is none up to `root`.
fs::path readme_folder(const fs::path& root, const fs::path& file) {
  for (fs::path folder = file.parent_path(); folder != root; folder = folder.parent_path())
    if (fs::exists(folder / "README.md")) return folder;
  return {};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(module_readme)

BOOST_AUTO_TEST_CASE(every_source_file_is_named_in_the_readme_of_its_module) {
  const fs::path root = TRAINHOST_SOURCE_DIR;
  std::size_t checked = 0;
  for (const char* top : {"core", "plugins", "sdk", "tools"})
    for (const fs::directory_entry& e : fs::recursive_directory_iterator(root / top)) {
      const std::string path = e.path().lexically_relative(root);
      // Files of projects that `plugins new` writes are listed in the README of the project.
      if (!e.is_regular_file() || !is_source(e.path()) || path.starts_with("sdk/templates/")) continue;
      const fs::path folder = readme_folder(root, e.path());
      BOOST_TEST_REQUIRE(!folder.empty(), path + " belongs to no README.md");
      BOOST_TEST(is_named(path_words(trainhost::test::read_file(folder / "README.md")),
                          e.path().lexically_relative(folder)),
                 path + " is not named in " + (folder / "README.md").lexically_relative(root).string());
      ++checked;
    }
  BOOST_TEST(checked > 500u);
}

BOOST_AUTO_TEST_CASE(every_module_is_in_the_overviews) {
  const fs::path root = TRAINHOST_SOURCE_DIR;
  const std::string overview = trainhost::test::read_file(root / "core/README.md"),
                    architecture = trainhost::test::read_file(root / "docs/architecture.md");
  for (const fs::directory_entry& e : fs::directory_iterator(root / "core")) {
    if (!e.is_directory()) continue;
    const std::string module = e.path().filename();
    BOOST_TEST(overview.find("](" + module + "/README.md)") != overview.npos, "core/README.md: no " + module);
    BOOST_TEST(architecture.find("\n| `core/" + module + "` |") != architecture.npos,
               "docs/architecture.md: no row for core/" + module);
  }
}

BOOST_AUTO_TEST_CASE(a_file_is_named_by_its_header_a_stem_a_pattern_or_its_folder) {
  const std::set<std::string> words =
      path_words("| `walker.hpp`, `trace.*`, `verify`, `ops_*.cpp` | host/ |");
  for (const char* named : {"walker.cpp", "trace.hpp", "verify.cpp", "ops_rows.cpp", "host/a/b.cpp"})
    BOOST_TEST(is_named(words, named), named);
  for (const char* absent : {"walkers.cpp", "verify_table.cpp", "ops_rows.hpp", "a/b.cpp"})
    BOOST_TEST(!is_named(words, absent), absent);
}

BOOST_AUTO_TEST_SUITE_END()
