// One error of a run file, for `trainhost check`, which reports all of them.
#pragma once
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

struct RunFileError {
  Error error;
  std::string key = {};          // in question: "train.micro_bach"; "" = none, or not known
  std::string nearest_key = {};  // of an unknown key: the valid one that is most similar; "" = none is
};

/// Those in a file by position, then those without one and those of options.
void sort_errors(std::vector<RunFileError>& errors);

}  // namespace trainhost::runfile
