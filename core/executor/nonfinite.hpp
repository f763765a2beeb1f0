// Where the first value of an update that is not finite comes from. A trainer whose loss or gradient norm is
// not finite computes the micro-batches again, looks at the outputs of every operation with
// first_nonfinite(), and says in its error which operation made the first one. Used by Walker and by
// the engine of plugins/cuda.
#pragma once
#include <cstdint>
#include <string>

#include "core/step/program.hpp"

namespace trainhost::executor {

/// Index of the first of `count` elements that is NaN or infinite; `count` if there is none, or if `type` is
/// none of f32, bf16, f16 and f64.
std::uint64_t first_nonfinite(DType type, const void* data, std::uint64_t count);

/// For the error of an update: "the first value that is not finite is in layers.3.gate_up, made by 'layers.3
/// linear gate_up' in micro-batch 2 of 4". `micro` counts from 0.
std::string describe_nonfinite(const step::Program& program, const step::Op& op, step::BufferId output,
                               std::uint64_t micro);

/// The same if this rank has computed finite values only.
inline constexpr const char* kOnAnotherRank = "the first value that is not finite is on another rank";

/// The same if all values of the second computation were finite: the failure cannot be repeated.
std::string describe_not_repeated();

}  // namespace trainhost::executor
