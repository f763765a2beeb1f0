// The readers of untrusted bytes, each as one function that accepts any input. They are run by fuzzer.cpp
// (libFuzzer, `tools/dev fuzz`) and loop_test.cpp (a loop in every test run). Initial inputs: seeds.hpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::fuzz {

struct Target {
  const char* name;
  const char* reads;                    // what the input is
  void (*run)(std::string_view input);  // throws std::logic_error if a guarantee of the reader is violated
  int slowness = 1;                     // time of an input, in multiples of what most targets take
};

/// All targets, in the order in which they are run.
const std::vector<Target>& targets();

/// nullptr if there is no target with this name.
const Target* find(std::string_view name);

}  // namespace trainhost::fuzz
