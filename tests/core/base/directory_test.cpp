// core/base/directory: the names of a directory, and errors.
#include "core/base/directory.hpp"

#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/support/files.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(directory)

BOOST_AUTO_TEST_CASE(every_name_is_listed_once) {
  test::TemporaryDirectory t;
  std::error_code ec = std::make_error_code(std::errc::io_error);
  BOOST_TEST(names_in_directory(t.path(), ec).empty());
  BOOST_TEST(!ec);
  std::set<std::string> wanted = {"sub", ".hidden", "link", "..."};
  for (int i = 0; i < 300; ++i) wanted.insert("file" + std::to_string(i));
  for (const std::string& name : wanted)
    if (name != "sub" && name != "link") t.write(name, "x");
  std::filesystem::create_directory(t / "sub");
  std::filesystem::create_symlink("nowhere", t / "link");
  const auto names = names_in_directory(t.path(), ec);
  BOOST_TEST((std::set<std::string>(names.begin(), names.end()) == wanted));
  BOOST_TEST(names.size() == wanted.size());
  BOOST_TEST(!ec);
  BOOST_TEST(names_in_directory(t.path(), ec, 7).size() == 7u);
}

BOOST_AUTO_TEST_CASE(a_directory_that_cannot_be_listed_sets_the_error) {
  test::TemporaryDirectory t;
  std::error_code ec;
  BOOST_TEST(names_in_directory(t / "absent", ec).empty());
  BOOST_TEST(ec.value() == ENOENT);
  names_in_directory(t.write("file", "x"), ec);
  BOOST_TEST(ec.value() == ENOTDIR);
}

BOOST_AUTO_TEST_SUITE_END()
