// A matrix product as loops: D = alpha * A * B + beta * C + bias. Arguments are checked by the caller
// (cublaslt.cpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace emu {

/// A matrix in memory: element (r, c) is at r * row_stride + c * column_stride.
struct Matrix {
  const void* at;
  bool bf16;  // else f32
  std::size_t row_stride, column_stride;
};
struct Product {
  std::uint64_t m, n, k;
  Matrix a, b, c, d;  // m x k, k x n, m x n, m x n
  const void* bias;   // [m], of the type of d; or null
  float alpha, beta;  // c is not read if beta is 0
  bool tf32;          // f32 operands are rounded to TF32
  unsigned splits;    // parts of k that are summed separately
  bool round_parts;   // to the type of d, before they are added
};
/// Sums are f32, in the order of k. Results are rounded once, unless round_parts.
void multiply(const Product& p);

}  // namespace emu
