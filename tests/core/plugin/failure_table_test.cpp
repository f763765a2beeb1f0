// Checks the table of failures in README.md: it has 70 rows, and each names an existing test or check. Fails
// after a test is renamed or removed until the table is updated.
#include <boost/test/unit_test.hpp>
#include <map>
#include <regex>
#include <set>

#include "plugin_fixture.hpp"

namespace {

const plugin_fixture::fs::path kTests = plugin_fixture::fs::path(TRAINHOST_SOURCE_DIR) / "tests";

std::string text(const plugin_fixture::fs::path& p) { return trainhost::test::read_file(kTests / p); }

/// Row number -> what it is shown by.
std::map<int, std::vector<std::string>> rows(const std::string& readme) {
  std::map<int, std::vector<std::string>> out;
  const std::regex row(R"(\n\| (\d+) \| [^|\n]{3,} \| ([^|\n]*) \|)");
  for (std::sregex_iterator it(readme.begin(), readme.end(), row), end; it != end; ++it) {
    std::istringstream proofs((*it)[2].str());
    std::vector<std::string>& list = out[std::stoi((*it)[1])];
    for (std::string p; std::getline(proofs >> std::ws, p, ';');) list.push_back(p);
  }
  return out;
}

/// "" or what it names that is not there.
std::string missing(const std::string& proof) {
  static const std::string broken_plugins = text("core/plugin_validator/broken_plugins.txt");
  const std::size_t colon = proof.find(": ");
  if (colon == proof.npos)
    return std::regex_match(proof, std::regex("[CET]-\\d{3}")) &&
                   broken_plugins.find(proof) != broken_plugins.npos
               ? ""
               : proof;
  std::string file = proof.substr(0, colon) + ".cpp";
  if (file.find('/') == file.npos) file = "core/plugin/" + file;
  const std::string word = proof.substr(colon + 2), source = text(file);
  const std::regex whole("(^|[^a-z_0-9])" + word + "([^a-z_0-9]|$)");
  return std::regex_search(source, whole) ? "" : proof;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rows_)

BOOST_AUTO_TEST_CASE(every_failure_is_covered_by_an_existing_test) {
  const auto table = rows(text("core/plugin/README.md"));
  for (int n = 1; n <= 70; ++n) {
    BOOST_TEST(table.count(n) == 1u, "row " << n << " is missing");
    if (!table.count(n)) continue;
    BOOST_TEST(!table.at(n).empty(), "row " << n << " is shown by nothing");
    for (const std::string& proof : table.at(n))
      BOOST_TEST(missing(proof) == "", "row " << n << ": there is no " << proof);
  }
  BOOST_TEST(table.size() == 70u);
}

BOOST_AUTO_TEST_CASE(a_missing_test_is_detected) {
  BOOST_TEST(missing("load_test: no_entry") == "");
  for (const char* wrong : {"load_test: no_entr", "nowhere_test: no_entry", "C-999", "C-01"})
    BOOST_TEST(missing(wrong) == wrong);
  BOOST_TEST(rows("x\n| 7 | a fault | C-001; T-001 |\n").at(7).size() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()
