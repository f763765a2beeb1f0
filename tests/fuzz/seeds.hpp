// What the fuzzers start from, made when it is wanted and never kept in the tree: a real plugin cut to its
// headers, plugin manifests, small examples of every format. And words that a mutation may put in. Used
// by fuzzer.cpp and loop_test.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::fuzz {

/// Valid inputs, or nearly so, of the target of this name; each is less than 16 kB.
std::vector<std::string> seeds(std::string_view target);

/// Words of its format.
std::vector<std::string> words(std::string_view target);

/// A shared library with everything left out that no reader looks at: headers, dynamic section and its names,
/// symbols, the manifest and section names, one after the other. Throws std::out_of_range when `elf` is no
/// library of ours.
std::string headers_of(const std::string& elf);

}  // namespace trainhost::fuzz
