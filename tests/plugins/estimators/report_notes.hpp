// Searches the notes of a report for a text. For tests of estimators.
#pragma once
#include <boost/test/unit_test.hpp>
#include <string>

#include "core/base/memory_report.hpp"

namespace trainhost::test {

inline bool has_note(const MemoryReport& r, const std::string& part) {
  for (const std::string& n : r.notes)
    if (n.find(part) != std::string::npos) return true;
  BOOST_TEST_MESSAGE("no note with '" << part << "'");
  return false;
}

}  // namespace trainhost::test
