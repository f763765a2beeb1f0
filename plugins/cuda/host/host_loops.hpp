// Loops of the host's share of a step, on plain pointers: what host_loops.cpp compiles several times, for
// AVX-512, AVX2 and plain x86-64, chosen when the library is loaded. T is float or std::uint16_t holding a
// bfloat16. Threads are host_ops.hpp's.
#pragma once
#include <cstdint>

namespace trainhost::cuda::host {

using Half = std::uint16_t;  // a bfloat16 by its bits

/// -log softmax(row)[target]; row becomes (softmax - onehot) * scale.
double cross_entropy_row(std::uint64_t n, float* row, std::int64_t target, float scale);
double cross_entropy_row(std::uint64_t n, Half* row, std::int64_t target, float scale);

/// to[i] (= or +=) from[i]
void add(std::uint64_t n, const float* from, float* to);
void add(std::uint64_t n, const Half* from, float* to);
void to_half(std::uint64_t n, const float* from, Half* to);
void to_float(std::uint64_t n, const Half* from, float* to);

double squares(std::uint64_t n, const float* x);

struct Adam {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, inv_sqrt_bias2, eps;
};
struct Sgd {
  float grad_scale, momentum, decay, lr;
};
void adamw(std::uint64_t n, const float* g, float* w, float* m, float* v, const Adam& c);
void sgd(std::uint64_t n, const float* g, float* w, const Sgd& c);
void sgd_momentum(std::uint64_t n, const float* g, float* w, float* m, const Sgd& c);

}  // namespace trainhost::cuda::host
