// One matrix product as loops: D = alpha * A * B + beta * C + bias. Knows nothing of streams and of what is
// allowed.
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
  const void* bias;   // m of them, of d's type; or null
  float alpha, beta;  // c is read only where beta is not 0
  bool tf32;          // f32 operands lose the bits that tf32 has not
};
/// Sums are f32, in the order of k. The results are rounded once.
void multiply(const Product& p);

}  // namespace emu
