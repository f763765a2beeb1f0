// The table of checks is consistent, and every check has a documentation page.
#include <boost/test/unit_test.hpp>
#include <set>
#include <string>

#include "core/plugin_validator/check_pages.hpp"
#include "core/plugin_validator/validator_check.hpp"

namespace tc = trainhost::plugin_validator;

BOOST_AUTO_TEST_SUITE(check_table)

BOOST_AUTO_TEST_CASE(ids_are_unique_and_prerequisites_come_first) {
  std::set<std::string> seen;
  for (const tc::Check& c : tc::checks()) {
    BOOST_TEST(seen.count(c.id) == 0u, c.id << " stands twice");
    BOOST_TEST(c.id.size() == 5u);
    BOOST_TEST((c.level >= 1 && c.level <= tc::kLevels));
    BOOST_TEST((c.run != nullptr && !c.title.empty() && c.why.size() > 40), c.id << " says too little");
    for (const std::string& need : c.needs)
      BOOST_TEST(seen.count(need) == 1u, c.id << " needs " << need << ", which comes later");
    seen.insert(c.id);
  }
  BOOST_TEST(seen.size() >= 55u);
}

BOOST_AUTO_TEST_CASE(every_explanation_ends_with_a_fix) {
  for (const tc::Check& c : tc::checks()) {
    const std::size_t fix = c.why.find(" Fix: ");
    BOOST_REQUIRE_MESSAGE(fix != std::string::npos, c.id << " has no fix");
    BOOST_TEST(c.why.find("Fix: ", fix + 5) == std::string::npos, c.id << " has two");
    BOOST_TEST(c.why.size() - fix > 20u, c.id);
    BOOST_TEST(c.why.back() == '.', c.id);
    BOOST_TEST(tc::explain(c).find("\n\nFix: ") != std::string::npos, c.id);
  }
}

BOOST_AUTO_TEST_CASE(every_check_has_a_page_and_a_line_in_the_index) {
  const auto pages = tc::pages();
  BOOST_TEST(pages.size() == tc::checks().size() + 1);
  for (const tc::Check& c : tc::checks()) {
    BOOST_REQUIRE(pages.count(c.id + ".md") == 1u);
    const std::string& page = pages.at(c.id + ".md");
    BOOST_TEST(page.find("# " + c.id + ": " + c.title) == 0u);
    BOOST_TEST(page.find(c.why.substr(0, c.why.find(' '))) != std::string::npos, c.id << ": no explanation");
    for (const std::string& need : c.needs)
      BOOST_TEST(page.find("(" + need + ".md)") != std::string::npos, c.id << ": no link to " << need);
    BOOST_TEST(pages.at("README.md").find("(" + c.id + ".md) " + c.title) != std::string::npos, c.id);
  }
}

BOOST_AUTO_TEST_SUITE_END()
