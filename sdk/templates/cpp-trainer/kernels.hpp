// The kernels of @NAME@. A trainer has twenty-one; those that are not here are inherited, correct but slow loops.
// Arguments of each kernel and rules for all of them: core/executor/kernels.hpp of the SDK. check.cpp
// compares them with the reference.
#pragma once
#include <cstdint>

#include "core/executor/reference_kernels.hpp"

struct @TYPE@ : trainhost::executor::ReferenceKernels {
  static constexpr const char *id = "@NAME@", *version = "0.1.0";
  // Names of the kernels below. A misspelt kernel would be inherited instead; check.cpp reports it.
  static constexpr const char* own_kernels = "linear";

  // y = x w^T (+ bias) (+ residual): rows of x times rows of w. Eight partial sums, which the compiler keeps
  // in one vector register; the inherited kernel uses a single sum in double.
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
  // Fixed order of the sum: equal arguments must give bit-identical results.
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
