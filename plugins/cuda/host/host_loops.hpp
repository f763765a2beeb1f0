// Inner loops of the host operations, on plain pointers. host_loops.cpp compiles each of them for AVX-512,
// AVX2 and baseline x86-64; the dynamic linker chooses one when the engine is loaded. Single-threaded:
// host_ops.hpp distributes the work.
#pragma once
#include <cstdint>

#include "core/step/moment_codes.hpp"

namespace trainhost::cuda::host {

using Half = std::uint16_t;  // the bits of a bfloat16

/// Returns -log softmax(row)[target] and replaces the row [n] by (softmax - onehot(target)) * scale. A NaN or
/// +inf among the logits makes the result non-finite, and so does a row without a logit above -2^20. Logits
/// of -inf have no probability. Defined in loss_rows.cpp.
double cross_entropy_row(std::uint64_t n, float* row, std::int64_t target, float scale);
double cross_entropy_row(std::uint64_t n, Half* row, std::int64_t target, float scale);

/// to[i] += from[i]
void add(std::uint64_t n, const float* from, float* to);
void add(std::uint64_t n, const Half* from, float* to);
/// Rounds to nearest, ties to even; NaN stays NaN.
void to_half(std::uint64_t n, const float* from, Half* to);
void to_float(std::uint64_t n, const Half* from, float* to);

/// Sum of x[i]^2.
double squares(std::uint64_t n, const float* x);

/// Constants of an AdamW update. grad_scale: clip factor; decay: 1 - lr * weight_decay, or 1; step_size: lr /
/// (1 - beta1^t); inv_sqrt_bias2: 1 / sqrt(1 - beta2^t).
struct Adam {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, inv_sqrt_bias2, eps;
};
struct Sgd {
  float grad_scale, momentum, decay, lr;
};
struct Lion {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, lr;
};
/// One optimizer update of n elements: gradient g, weight w, moments m and v.
void adamw(std::uint64_t n, const float* g, float* w, float* m, float* v, const Adam& c);
void sgd(std::uint64_t n, const float* g, float* w, const Sgd& c);
void sgd_momentum(std::uint64_t n, const float* g, float* w, float* m, const Sgd& c);
void lion(std::uint64_t n, const float* g, float* w, float* m, const Lion& c);

/// m = beta m + rest g', x = rest g' + beta m, with g' = g * grad_scale.
void muon_momentum(std::uint64_t n, const float* g, float* m, float* x, float grad_scale, float beta,
                   float rest);
/// w = w * decay - step * x
void muon_apply(std::uint64_t n, const float* x, float* w, float decay, float step);

/// A block of at most 256 elements of an 8-bit moment, and the tables of its codes
/// (core/step/moment_codes.hpp).
struct Moment8bit {
  std::uint8_t* codes;
  float* scale;
  const step::MomentCodes& map;
};
/// adamw() of a block whose moments are decoded before and encoded after it.
void adamw_8bit(std::uint64_t n, const float* g, float* w, const Moment8bit& m, const Moment8bit& v,
                const Adam& c);

/// Constants of an Adafactor update: change = g * grad_scale / sqrt(max(row_factor * moment, smallest)).
struct Adafactor {
  float grad_scale, smallest, decay, step;
};
/// sums[i] += x[i]^2
void add_squares(std::uint64_t n, const float* x, double* sums);
/// Sum of the squares of the changes.
double adafactor_squares(std::uint64_t n, const float* g, const float* moment, float row_factor,
                         const Adafactor& c);
/// w = w * decay - step * change
void adafactor(std::uint64_t n, const float* g, const float* moment, float row_factor, float* w,
               const Adafactor& c);

}  // namespace trainhost::cuda::host
