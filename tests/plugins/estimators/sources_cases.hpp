// The worked numbers of the sources as calls of the estimators' own functions, by the ids of
// tests/golden/sources.json. Compares nothing: sources_test.cpp does, and sees to it that no case is missing.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::sources {

/// The numbers of one case, members in the order of their names.
using Values = std::vector<double>;
using Compute = std::function<Values()>;

/// What the file calls `recomputed`: the truth, or what the source's formula gives where it prints something
/// else.
std::map<std::string, Compute> computed();

/// Where the source's own formula yields what it prints, and the truth is another number.
std::map<std::string, Compute> as_written();

/// Cases without a number that a formula yields here, and why.
const std::map<std::string, std::string>& listed();

/// The models of the first source by the file's names, and its own "350m".
const std::map<std::string, ModelSpec>& models();

RunSpec of_length(std::uint32_t S);

}  // namespace trainhost::sources
