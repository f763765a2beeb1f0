// The targets of file_targets.cpp, each with its initial inputs. Part of targets() and seeds().
#pragma once
#include <string>
#include <vector>

#include "tests/fuzz/targets.hpp"

namespace trainhost::fuzz {

struct FileTarget {
  Target target;
  std::vector<std::string> (*seeds)();
};

const std::vector<FileTarget>& file_targets();

/// Words of all formats of file_targets().
std::vector<std::string> file_words();

}  // namespace trainhost::fuzz
