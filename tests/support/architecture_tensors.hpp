// The shape of every trained tensor of a decoder, one by one: the simple implementation that tests compare
// with the closed form of core/model/element_counts.cpp, so neither may use the other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/architecture.hpp"

namespace trainhost::model {

/// Shape of one trained tensor, or of `copies` equal ones.
struct TensorShape {
  std::string name;                              // "layers.3.attention.q"
  std::int32_t layer = -1;                       // -1: not in a layer
  std::uint64_t rows = 0, cols = 1, copies = 1;  // copies: equal tensors, one per expert
  std::uint64_t elements() const { return rows * cols * copies; }
};
std::vector<TensorShape> tensor_shapes(const Architecture& a);

}  // namespace trainhost::model
