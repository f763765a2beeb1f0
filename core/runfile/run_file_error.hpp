// One error of a run file, and all errors of one, which `trainhost check` and the commands with a run report.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

struct RunFileError {
  Error error;
  std::string key = {};          // in question: "train.micro_bach"; "" = none, or not known
  std::string nearest_key = {};  // of an unknown key: the valid one that is most similar; "" = none is
};

/// Two or more errors of one run, in the order of sort_errors(); as an Error it is the first of them.
class RunFileErrors : public Error {
 public:
  /// `errors`: not empty.
  explicit RunFileErrors(std::vector<RunFileError> errors)
      : Error(errors.front().error), errors_(std::move(errors)) {}

  const std::vector<RunFileError>& errors() const noexcept { return errors_; }

 private:
  std::vector<RunFileError> errors_;
};

/// Those in a file by position, then those without one and those of options.
void sort_errors(std::vector<RunFileError>& errors);

}  // namespace trainhost::runfile
