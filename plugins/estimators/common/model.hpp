// Facts about the model that rule-of-thumb estimators need: the true number of parameters and the presence of
// dimensions. Computes no memory.
#pragma once
#include <cstdint>

#include "core/model/model_spec.hpp"

namespace trainhost::rules {

/// Whether the parameters of this family can be counted; match() accepts only such families.
bool countable_family(const std::string& family);

/// Distinct trained weights. Throws usage_error for an unknown family and for an invalid config.
std::uint64_t true_parameters(const ModelSpec& m);

/// Throws usage_error with the name of the first missing dimension among H, L and A.
void need_dimensions(const ModelSpec& m, const char* estimator);

}  // namespace trainhost::rules
