// The targets of file_targets.cpp and run_targets.cpp, each with its initial inputs. Part of targets() and
// seeds().
#pragma once
#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"

namespace trainhost::fuzz {

struct FileTarget {
  Target target;
  std::vector<std::string> (*seeds)();
  std::vector<std::string> (*words)() = nullptr;  // of its format; nullptr: file_words()
};

/// Those of run_targets.cpp too.
const std::vector<FileTarget>& file_targets();
std::vector<FileTarget> run_targets();

/// Words of all formats of file_targets.cpp.
std::vector<std::string> file_words();

}  // namespace trainhost::fuzz
