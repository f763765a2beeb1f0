// The readers of hostile bytes, each as one function that any input may be given to. Two programs drive them:
// fuzzer.cpp (libFuzzer, by `tools/dev fuzz`) and loop_test.cpp (a plain loop, in every test run). What they
// start from: seeds.hpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::fuzz {

struct Target {
  const char* name;
  const char* reads;                    // whose bytes these are
  void (*run)(std::string_view input);  // throws std::logic_error where a promise of the reader is broken
};

/// All of them, in the order in which they are run.
const std::vector<Target>& targets();

/// nullptr when there is none of that name.
const Target* find(std::string_view name);

}  // namespace trainhost::fuzz
