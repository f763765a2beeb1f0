// What a rule of thumb needs to know of a model: the dimensions it names and the true number of parameters,
// for every family whose tensors are known. Decides nothing about memory.
#pragma once
#include <cstdint>

#include "core/model/model_spec.hpp"

namespace trainhost::rules {

/// Families whose parameters can be counted; only those are claimed by match().
bool countable_family(const std::string& family);

/// Distinct trained weights. Throws usage_error for a family that nobody knows, and for a config that is no
/// model.
std::uint64_t true_parameters(const ModelSpec& m);

/// Throws usage_error naming the dimension that the estimate needs and the model does not have.
void need_dimensions(const ModelSpec& m, const char* estimator);

}  // namespace trainhost::rules
