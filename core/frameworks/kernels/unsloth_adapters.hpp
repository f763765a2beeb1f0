// Parts of the functions of Unsloth that unsloth.cpp and unsloth_dropout.cpp share: sizes of the matrices,
// and what their passes allocate. Included by these two files only.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/kernels/adapter_kernels.hpp"

namespace trainhost::frameworks::unsloth_adapters {

/// Of a linear layer with its adapter, for the backward pass.
struct Sizes {
  Shape shape;  // [outputs, inputs]
  std::int64_t rank = 0;
  std::optional<Element> dequantized;  // type, where the weight is packed
};

inline Sizes sizes_of(const AdaptedWeights& w) {
  Sizes s{w.quantized ? w.quantized->shape : w.weight->shape, w.a->shape[0], {}};
  if (w.quantized) s.dequantized = w.quantized->type;
  return s;
}

inline std::int64_t rows_of(const Tensor& x) {
  return static_cast<std::int64_t>(x->shape.count()) / x->shape[-1];
}

/// fast_dequantize() without the buffer that is kept: one kernel, which needs no copy of the scales.
inline Tensor dequantized(Tape& t, const Sizes& s) {
  return s.dequantized ? t.make(s.shape, *s.dequantized, "dequantized weight") : Tensor();
}

inline Tensor cast_adapter(Tape& t, const Tensor& matrix, Element type) {
  return matrix->type == type ? matrix : t.make(matrix->shape, type, "adapter, cast");
}

/// The adapters of a function in the type of its products, which are variables of its backward pass.
inline std::vector<Tensor> cast_adapters(Tape& t, std::span<const Sizes> sizes, Element type, Element own) {
  std::vector<Tensor> out;
  for (const Sizes& s : sizes) {
    if (own == type) break;
    out.push_back(t.make({s.rank, s.shape[1]}, type, "adapter, cast"));
    out.push_back(t.make({s.shape[0], s.rank}, type, "adapter, cast"));
  }
  return out;
}

inline Tensor as_rows(Tape& t, const Tensor& g) {
  return reshaped_gradient(t, g, {rows_of(g), g->shape[-1]});
}

}  // namespace trainhost::frameworks::unsloth_adapters
