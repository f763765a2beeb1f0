// The table holds together, and the pages of sdk/checks are those that it gives.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/plugin_validator/check_pages.hpp"
#include "core/plugin_validator/validator_check.hpp"

namespace fs = std::filesystem;
namespace tc = trainhost::plugin_validator;

BOOST_AUTO_TEST_SUITE(check_table)

BOOST_AUTO_TEST_CASE(ids_are_unique_and_needs_come_first) {
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

BOOST_AUTO_TEST_CASE(the_pages_are_current) {
  const fs::path folder = fs::path(TRAINHOST_SOURCE_DIR) / "sdk/checks";
  const auto pages = tc::pages();
  for (const auto& [name, text] : pages) {
    std::ifstream in(folder / name, std::ios::binary);
    const std::string there((std::istreambuf_iterator<char>(in)), {});
    BOOST_TEST((there == text), name << " differs: trainhost plugins check --pages sdk/checks");
  }
  for (const auto& e : fs::directory_iterator(folder))
    BOOST_TEST(pages.count(e.path().filename().string()) == 1u, e.path().filename().string()
                                                                    << " belongs to no check");
}

BOOST_AUTO_TEST_SUITE_END()
