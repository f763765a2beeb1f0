// The kernels of @NAME@. Twenty make a trainer; those that are not here are inherited: plain loops, right and
// slow. What each of them is given, and the rules for all: core/executor/kernels.hpp of the SDK. check.cpp
// holds yours against the inherited.
#pragma once
#include <cstdint>

#include "core/executor/reference_kernels.hpp"

struct @TYPE@ : trainhost::executor::ReferenceKernels {
  static constexpr const char *id = "@NAME@", *version = "0.1.0";

  // y = x w^T (+ bias) (+ residual): rows of x times rows of w. The sum is eight sums, which the compiler
  // keeps in one vector register; the inherited kernel adds up in double, one after the other.
  void linear(const trainhost::executor::Linear& a) {
    for (std::uint64_t r = 0; r < a.rows; ++r)
      for (std::uint64_t j = 0; j < a.outputs; ++j) {
        float sum = dot(a.x + r * a.inputs, a.w + j * a.inputs, a.inputs);
        if (a.bias) sum += a.bias[j];
        if (a.residual) sum += a.residual[r * a.outputs + j];
        a.y[r * a.outputs + j] = sum;
      }
  }

 private:
  // Always in the same order: the same arguments must give the same bits.
  static float dot(const float* a, const float* b, std::uint64_t n) {
    float lane[8] = {}, sum = 0;
    std::uint64_t i = 0;
    for (; i + 8 <= n; i += 8)
      for (std::uint64_t l = 0; l < 8; ++l) lane[l] += a[i + l] * b[i + l];
    for (; i < n; ++i) sum += a[i] * b[i];
    for (float part : lane) sum += part;
    return sum;
  }
};
