// The worked numbers of the sources as calls of the estimators' functions, by the ids of
// tests/golden/sources.json. sources_test.cpp compares them with the file.
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

/// The `recomputed` values of the file: true values, or results of the source's formula where it prints
/// another value.
std::map<std::string, Compute> computed();

/// Values that follow from the source's formula although the true value differs.
std::map<std::string, Compute> as_written();

/// Cases that no formula computes, with the reason.
const std::map<std::string, std::string>& listed();

/// Models of the first source by their names in the file, and its "350m".
const std::map<std::string, ModelSpec>& models();

RunSpec of_length(std::uint32_t S);

}  // namespace trainhost::sources
