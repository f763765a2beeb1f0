// Frozen weights in 8 bits as bitsandbytes 0.50 keeps them for LLM.int8() (Int8Params, Linear8bitLt), and
// what a product with one allocates and keeps. 4 bits: nf4.hpp.
#pragma once
#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// One byte per element, and the largest magnitude of each row.
struct Int8Weight {
  Shape shape;  // [outputs, inputs]
  Tensor weight, row_maxima;
  /// Of the input: columns with a value of llm_int8_threshold (6.0) or more, which are multiplied in 16 bits.
  std::int64_t outliers = 0;
  /// Numbers of these columns in the last call, which the module has as an attribute.
  mutable Tensor outlier_numbers;
};

/// outliers: at most as many as the weight has inputs.
Int8Weight int8_weight(Tape& t, const Shape& shape, const char* module, std::int64_t outliers);

/// Linear8bitLt: x is quantized by rows, and the product is in 32-bit integers. Autograd saves nothing, but
/// the node has the input as an attribute, which therefore exists until the graph is freed, also where a
/// checkpoint computes it again. A bias is added in place.
Tensor linear_8bit(Tape& t, const Tensor& x, const Int8Weight& w);

}  // namespace trainhost::frameworks
