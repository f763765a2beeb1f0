// Initial inputs of the fuzzers, generated on demand and not stored in the tree: a real plugin reduced to its
// headers, plugin manifests, small examples of every format; and words for mutations. Used by fuzzer.cpp and
// loop_test.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::fuzz {

/// Valid or nearly valid inputs of the target; each is smaller than 16 kB.
std::vector<std::string> seeds(std::string_view target);

/// Words of the target's format.
std::vector<std::string> words(std::string_view target);

/// A shared library reduced to what the readers use: headers, dynamic section and its names, symbols, the
/// manifest and section names. Throws std::out_of_range if `elf` is not such a library.
std::string headers_of(const std::string& elf);

}  // namespace trainhost::fuzz
