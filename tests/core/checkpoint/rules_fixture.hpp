// Writes files that violate one rule each, and checks that the error has the rule, the file and the byte.
#pragma once
#include <algorithm>

#include "core/checkpoint/safetensors.hpp"
#include "tests/core/checkpoint/fixtures.hpp"

namespace trainhost::test {

using checkpoint::SafetensorsFile;
using checkpoint::TensorEntry;

/// Number of files that violate a rule, over all cases.
inline int files_broken = 0;

struct Rules {
  TempDir dir;
  fs::path file = dir / "hostile.safetensors";

  std::string error(const std::string& bytes) {
    ++files_broken;
    put(file, bytes);
    return message_of([&] { SafetensorsFile f(file); });
  }

  /// The file must be rejected by that rule; `token`, if given, must be at the reported byte.
  void breaks(int rule, const std::string& bytes, const std::string& token = {}) {
    std::string m = error(bytes);
    std::string shown = bytes.size() < 300 ? bytes.substr(std::min<std::size_t>(8, bytes.size())) : "(long)";
    std::string named = "rule " + std::to_string(rule);
    BOOST_TEST(says(m, " [" + named + "]"), named << ": " << shown << " gave: " << m);
    BOOST_TEST(says(m, file.string()), m);
    if (token.empty()) return;
    auto at = m.rfind("byte ");
    BOOST_REQUIRE(at != m.npos);
    std::size_t byte = std::stoull(m.substr(at + 5));
    BOOST_TEST(bytes.substr(byte, token.size()) == token, m << " does not point at " << token);
  }

  void opens(const std::string& bytes, std::size_t tensors) {
    put(file, bytes);
    std::string m = message_of([&] { BOOST_TEST(SafetensorsFile(file).tensors().size() == tensors); });
    BOOST_TEST(m == "");
  }
};

inline const std::string kGood = "{" + entry("a", "\"F32\"", "[2]", "[0,8]") + "}";

}  // namespace trainhost::test
