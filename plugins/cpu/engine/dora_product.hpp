// The loops of DoRA over m rows of any operation: those of a product (ops_dora.cpp), and a chunk of the head
// (ops_head.cpp). T: float or Bf16.
#pragma once
#include <cstdint>

#include "core/model/adapters.hpp"
#include "plugins/cpu/engine/op_context.hpp"

namespace trainhost::cpu {

/// y = (factor - less) * x (+ bias) (+ residual), [m, outputs]; bias and residual may be null. x and residual
/// may be y.
template <class T>
void multiply_by_factors(OpContext& ctx, std::uint64_t m, std::uint64_t outputs, const T* x,
                         const float* factor, float less, const T* bias, const T* residual, T* y);
/// grad (= or +=) the column sums of dy * x, times 1 / n of the output; then x = factor * dy, and unless it
/// is null, product = (factor - 1) * dy. scale: factors, then 1 / n, of all outputs. product may be dy.
template <class T>
void magnitude_gradient(OpContext& ctx, const AdapterBlocks& blocks, std::uint64_t m, const T* dy,
                        const float* scale, bool overwrite, T* x, T* product, float* grad);

}  // namespace trainhost::cpu
