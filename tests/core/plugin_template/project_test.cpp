// Projects as lists of files: every combination is complete, names are checked with the nearest valid one,
// and existing files are never changed. tests/sdk/installed/scaffolds_test.sh builds and runs the projects.
#include "core/plugin_template/project.hpp"

#include <unistd.h>
#include <boost/test/unit_test.hpp>

#include <fstream>
#include <set>

#include "core/base/error.hpp"
#include "core/plugin_template/embedded.hpp"
#include "tests/support/files.hpp"
#include "tests/support/text_patterns.hpp"

namespace fs = std::filesystem;
using trainhost::test::has;
namespace sc = trainhost::plugin_template;

namespace {

using trainhost::test::read_file;

std::string message(const sc::Request& r) {
  try {
    sc::project(r);
  } catch (const trainhost::Error& e) {
    return e.full();
  }
  return "";
}

/// How often the projects' own sources say `part`, as words that end there.
std::size_t times(const std::vector<sc::File>& files, const std::string& part) {
  std::size_t n = 0;
  for (const sc::File& f : files)
    for (std::size_t at = 0; f.path.rfind("vendor/", 0) != 0 && (at = f.text.find(part, at)) != f.text.npos;
         at += part.size())
      n += at + part.size() == f.text.size() ||
           !std::isalpha(static_cast<unsigned char>(f.text[at + part.size()]));
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scaffold)

BOOST_AUTO_TEST_CASE(the_embedded_files_equal_those_in_the_tree) {
  const fs::path root = fs::path(TRAINHOST_SOURCE_DIR) / "sdk";
  std::size_t templates = 0;
  for (const sc::Embedded& e : sc::templates()) {
    const std::string path(e.path);
    const bool crate = path.rfind("crate/", 0) == 0;
    BOOST_TEST(std::string(e.text) == read_file(root / (crate ? "rust" + path.substr(5) : path)), path);
    templates += !crate;
  }
  std::size_t files = 0;
  for (const auto& e : fs::recursive_directory_iterator(root / "templates")) files += e.is_regular_file();
  BOOST_TEST(templates == files - 2);  // all but README.md and .clang-format
}

BOOST_AUTO_TEST_CASE(every_project_is_complete_and_filled_in) {
  for (const char* kind : {"estimator", "trainer"})
    for (const char* lang : {"c", "c++", "rust"}) {
      std::set<std::string> paths;
      for (const sc::File& f : sc::project({"acme-conv", kind, lang, ""})) {
        paths.insert(f.path);
        BOOST_TEST(f.executable == has(f.path, ".sh"), f.path);
        if (f.path.rfind("vendor/", 0) == 0) continue;
        for (const char* word : {"@NAME@", "@CRATE@", "@TYPE@", "@FAMILY@", "@KIND@", "@LANG@", "@CC@",
                                 "@COMPILER@", "@GCC@", "@CLANG@"})
          BOOST_TEST(!has(f.path + f.text, word), f.path + " still has " + word);
      }
      const std::string build = lang == std::string("rust") ? "Cargo.toml" : "CMakeLists.txt";
      for (const std::string& needed :
           {std::string("README.md"), std::string("ci.sh"), std::string("test.sh"), std::string("run.toml"),
            std::string(".github/workflows/ci.yml"), std::string(".gitignore"), build})
        BOOST_TEST(paths.count(needed) == 1u, std::string(kind) + " " + lang + " lacks " + needed);
    }
}

BOOST_AUTO_TEST_CASE(an_invalid_value_is_answered_with_the_nearest_valid_one) {
  BOOST_TEST(message({"acme-conv", "estimator", "c", ""}) == "");
  BOOST_TEST(has(message({"Acme Conv!", "estimator", "c", ""}), "did you mean 'acme-conv'?"));
  BOOST_TEST(has(message({"../up", "estimator", "c", ""}), "did you mean 'up'?"));
  BOOST_TEST(has(message({"", "estimator", "c", ""}), "must be 1 to 40"));
  BOOST_TEST(has(message({"9\x1b[31m", "estimator", "c", ""}), "did you mean 'm'?"));
  BOOST_TEST(has(message({std::string(41, 'a'), "estimator", "c", ""}),
                 "did you mean '" + std::string(40, 'a') + "'?"));
  for (const char* name : {"all", "m", "preinstall"})
    BOOST_TEST(has(message({name, "trainer", "c", ""}), "is reserved by CMake, Cargo or the project"), name);
  BOOST_TEST(has(message({"x", "trainers", "c", ""}), "did you mean 'trainer'?"));
  for (const char* meant : {"cpp", "CXX", "cc", "C++"})
    BOOST_TEST(has(message({"x", "trainer", meant, ""}), "did you mean 'c++'?"), meant);
  BOOST_TEST(has(message({"x", "trainer", "rs", ""}), "did you mean 'rust'?"));
  BOOST_TEST(has(message({"x", "trainer", "python", ""}), "'python' is unknown (one of c, c++, rust)"));
  BOOST_TEST(has(message({"x", "estimator", "c", "A\"b"}), "the family"));
}

// Against the sources themselves: a type that the crate or a template declares, or that Rust has everywhere,
// is never that of a project. `Host` in Rust would stand before the crate's Host, and the project would not
// compile.
BOOST_AUTO_TEST_CASE(no_name_takes_a_type_that_the_sources_use) {
  std::set<std::string> types = {"Self", "Option", "Result", "Vec", "String",
                                 "Box",  "Some",   "None",   "Ok",  "Err"};
  for (const sc::Embedded& e : sc::templates())
    for (const trainhost::test::Match& m : trainhost::test::find_patterns(
             std::string(e.text), "\\b(?:struct|trait|enum|type|union) ([A-Z][A-Za-z]*)"))
      types.insert(m[1]);
  BOOST_TEST(types.count("Host") == 1u);  // the search finds what it is for
  for (const std::string& type : types) {
    std::string name;
    for (char c : type)
      name += (c >= 'A' && c <= 'Z') ? std::string(name.empty() ? "" : "-") + static_cast<char>(c - 'A' + 'a')
                                     : std::string(1, c);
    for (const char* kind : {"estimator", "trainer"})
      for (const char* lang : {"c++", "rust"})  // C has no type of a project's own
        BOOST_TEST(times(sc::project({name, kind, lang, ""}), "struct " + type) ==
                       times(sc::project({"zz", kind, lang, ""}), "struct " + type),
                   name + ": a " + kind + " in " + lang + " declares " + type);
  }
}

// Two templates of one path would leave a project with a file less.
BOOST_AUTO_TEST_CASE(no_name_hides_a_file_of_its_project) {
  BOOST_TEST(has(message({"check", "trainer", "c++", ""}), "is reserved by CMake, Cargo or the project"));
  const auto files = [](const char* name, const char* kind, const char* lang) {
    return sc::project({name, kind, lang, ""}).size();
  };
  for (const char* kind : {"estimator", "trainer"})
    for (const char* lang : {"c", "c++", "rust"})
      for (const char* name : {"kernels", "tensors", "lib", "model", "run", "ci"})
        BOOST_TEST(files(name, kind, lang) == files("acme-conv", kind, lang),
                   std::string(name) + " " + kind + " " + lang);
}

BOOST_AUTO_TEST_CASE(existing_files_are_never_changed) {
  const fs::path dir = fs::temp_directory_path() / ("trainhost-scaffold-" + std::to_string(::getpid()));
  fs::remove_all(dir);
  const std::vector<sc::File> files = {{"a/b.sh", "echo\n", true}, {"c", "text", false}};
  fs::create_directories(dir);
  sc::write(dir, files);  // an empty folder is accepted
  BOOST_TEST(read_file(dir / "a/b.sh") == "echo\n");
  BOOST_TEST(((fs::status(dir / "a/b.sh").permissions() & fs::perms::owner_exec) != fs::perms::none));
  BOOST_CHECK_THROW(sc::write(dir, {{"c", "other", false}}), trainhost::Error);
  BOOST_TEST(read_file(dir / "c") == "text");
  BOOST_CHECK_THROW(sc::write(dir / "c", files), trainhost::Error);
  // The message names the folder as given, with a hint.
  BOOST_CHECK_EXCEPTION(sc::write(dir / "c/below", files), trainhost::Error, [&](const trainhost::Error& e) {
    return has(e.full(), "cannot create the directory '" + (dir / "c/below").string() + "'") &&
           has(e.full(), "--dir");
  });
  fs::remove_all(dir);
}

BOOST_AUTO_TEST_SUITE_END()
