// Random initial weights as a pure function of (seed, tensor name, element index): every trainer, on any
// device and in any order, starts from the same bits. Norms are one, biases zero, matrices N(0,
// initializer_range).
#pragma once
#include <cstdint>
#include <span>

#include "core/model/tensors.hpp"

namespace trainhost {

/// Fills out[i] with element `first + i` (row-major) of tensor `t` of model `m`.
void init_tensor(const ModelSpec& m, const TensorInfo& t, std::uint64_t seed, std::uint64_t first,
                 std::span<float> out);

}  // namespace trainhost
