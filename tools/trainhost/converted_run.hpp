// The run file of `trainhost init --from`.
#pragma once
#include <string>

#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// A run file of trainhost's own step with what the files of --from, --set and --model say, and a comment for
/// each key that could not be carried over. `note`: set to why the run cannot be trained as it is; "" = it
/// can. Throws usage_error as `plan --from` does.
std::string converted_run(const CommonArguments& a, std::string& note);

}  // namespace trainhost::cli
