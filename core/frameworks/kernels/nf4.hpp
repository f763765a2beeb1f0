// Frozen weights in NF4 as torchao (NF4Tensor) and bitsandbytes (Params4bit) keep them: what is stored, and
// what a product with one allocates. Describes torchao 0.18, and bitsandbytes 0.42 and 0.50. FP4 of
// bitsandbytes has the same tensors.
#pragma once
#include <vector>

#include "core/frameworks/autograd/operators.hpp"

namespace trainhost::frameworks {

/// Two elements per byte, an 8-bit scale per 64 elements, and a scale of these scales per 256 of them.
struct Nf4Weight {
  Shape shape;  // [outputs, inputs]
  Element type = Element::kBF16;
  std::vector<Tensor> parts;
};

Nf4Weight nf4_weight(Tape& t, const Shape& shape, Element type, const char* module);

/// Elements of `type` that take the bytes of such a weight: FSDP2 shards and gathers each of its tensors but
/// the table and the mean.
std::int64_t elements_of_nf4(const Shape& shape, Element type);

/// The product dequantizes the weight in the forward pass and again in the backward pass; autograd keeps
/// neither the input nor the dequantized weight. `compiled`: one kernel dequantizes, without temporaries.
Tensor nf4_linear(Tape& t, const Tensor& x, const Nf4Weight& w, bool compiled);

/// doubled: the scales have 8 bits, with f32 scales per 256 of them. packed: the elements, where they are a
/// parameter that is sharded; the scales never are.
Nf4Weight bitsandbytes_weight(Tape& t, const Shape& shape, Element type, const char* module, bool doubled,
                              const Tensor& packed = {});
/// Of such a parameter, whose elements have another type than bytes (bnb_4bit_quant_storage).
Shape packed_shape(const Shape& shape, Element storage);

/// MatMul4Bit of bitsandbytes 0.42 with a weight that Fabric has quantized: in each pass one kernel
/// dequantizes it to f16, and another casts it; autograd keeps the input, although its gradient does not need
/// it.
Tensor bitsandbytes_linear(Tape& t, const Tensor& x, const Nf4Weight& w);

/// Linear4bit of bitsandbytes 0.50: computes in the type of `w` and returns the type of `x`. Nothing is
/// saved.
Tensor linear_4bit(Tape& t, const Tensor& x, const Nf4Weight& w);

}  // namespace trainhost::frameworks
