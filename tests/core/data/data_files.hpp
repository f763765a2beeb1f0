// Helpers of the tests of core/data: a temporary folder, files in it, and messages of expected errors.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/data/dataset.hpp"
#include "tests/support/files.hpp"

namespace trainhost::data {

class Folder : public test::TemporaryDirectory {
 public:
  std::filesystem::path text(const std::string& name, const std::string& content) const {
    return write(name, content);
  }
  /// Raw ids, little-endian.
  template <class Id>
  std::filesystem::path ids(const std::string& name, const std::vector<Id>& values) const {
    return text(name, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Id)));
  }
};

using trainhost::test::read_file;

inline std::vector<std::int32_t> all_ids(const Tokens& t) {
  std::vector<std::int32_t> ids(t.size());
  t.read(0, ids);
  return ids;
}

/// Runs `act`, which must fail with this exit code; returns place, message and hint.
template <class Act>
std::string failure(Act act, Exit code = Exit::kUsage) {
  try {
    act();
  } catch (const Error& e) {
    BOOST_TEST((e.code() == code), "exit code of: " << e.full());
    return e.full();
  }
  BOOST_ERROR("no error");
  return "";
}

inline void check_says(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    BOOST_TEST(message.find(part) != std::string::npos, "'" << part << "' in: " << message);
}

}  // namespace trainhost::data
