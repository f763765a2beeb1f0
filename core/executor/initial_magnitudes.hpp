// The magnitudes with which DoRA starts: the norms of the rows of W + scale * B A, so that an adapter whose B
// is 0 has no effect. W is that of which the run computes, in NF4 with its dequantized values.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/model/tensors.hpp"
#include "core/step/program.hpp"

namespace trainhost::executor {

/// Passes the elements of a tensor of the whole model to `to`, a part at a time, in order.
using ReadTensor = std::function<void(
    std::size_t tensor, const std::function<void(std::uint64_t first, std::span<const float> values)>& to)>;
/// Calls f(0) .. f(count - 1), in any order and on any threads, and returns after the last one.
using ForEach = std::function<void(std::uint32_t count, const std::function<void(std::uint32_t)>& f)>;

/// The magnitudes of tensor `tensor` of `whole`, the tensors of the whole model, in f32, summed in double.
/// Reads the adapted matrix, A and B. The rows of a part are computed by for_each; the bits do not depend on
/// parts or threads.
std::vector<float> initial_magnitudes(const step::Program& program, std::span<const TensorInfo> whole,
                                      std::size_t tensor, const ReadTensor& read, const ForEach& for_each);

}  // namespace trainhost::executor
