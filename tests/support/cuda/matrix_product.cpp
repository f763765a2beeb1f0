// Unpacks the operands to f32 in the order in which the inner loop over rows reads them. Four columns are
// computed at a time, so that elements of A are read once for all of them; the compiler vectorises the loop
// over rows.
#include "matrix_product.hpp"

#include <algorithm>
#include <vector>

#include "cuda_bf16.h"
#include "cuda_emulation/intrinsics.h"

namespace emu {
namespace {

float get(const Matrix& m, std::size_t i) {
  return m.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(m.at)[i])
                : static_cast<const float*>(m.at)[i];
}
void put(const Matrix& m, std::size_t i, float x) {
  void* at = const_cast<void*>(m.at);
  if (m.bf16)
    static_cast<__nv_bfloat16*>(at)[i] = __float2bfloat16_rn(x);
  else
    static_cast<float*>(at)[i] = x;
}

// An operand of a TF32 product: rounded to the nearest number with 10 of the 23 bits of the fraction, ties to
// even, as cuBLASLt rounds on an H100 (tools/gpu/accept, step tf32). Infinities and NaN do not change.
float to_tf32(float x) {
  const std::uint32_t u = __float_as_uint(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return x;
  return __uint_as_float((u + 0xfffu + (u >> 13 & 1u)) & 0xffffe000u);
}

// The matrix as [outer, inner], contiguous; rounded to TF32 if `tf32`.
std::vector<float> unpack(const Matrix& m, std::size_t outer, std::size_t outer_stride, std::size_t inner,
                          std::size_t inner_stride, bool tf32) {
  std::vector<float> out(outer * inner);
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < inner; ++i) {
      const float x = get(m, o * outer_stride + i * inner_stride);
      out[o * inner + i] = tf32 ? to_tf32(x) : x;
    }
  return out;
}

constexpr std::size_t kColumns = 4;

// sums[kColumns][m] += a[k][m] * b[kColumns][k], over inner indices [begin, end).
void add_columns(std::size_t m, std::size_t k, std::size_t begin, std::size_t end,
                 const float* __restrict__ a, const float* b, float* __restrict__ sums) {
  for (std::size_t p = begin; p < end; ++p) {
    const float b0 = b[p], b1 = b[k + p], b2 = b[2 * k + p], b3 = b[3 * k + p];
    const float* __restrict__ row = a + p * m;
    for (std::size_t i = 0; i < m; ++i) {
      sums[i] += row[i] * b0;
      sums[m + i] += row[i] * b1;
      sums[2 * m + i] += row[i] * b2;
      sums[3 * m + i] += row[i] * b3;
    }
  }
}

}  // namespace

void multiply(const Product& p) {
  const auto a = unpack(p.a, p.k, p.a.column_stride, p.m, p.a.row_stride, p.tf32);
  auto b = unpack(p.b, p.n, p.b.column_stride, p.k, p.b.row_stride, p.tf32);
  b.resize((p.n + kColumns - 1) / kColumns * kColumns * p.k);
  const Matrix bias{p.bias, p.d.bf16, 1, 1};
  std::vector<float> sums(kColumns * p.m);
  for (std::size_t j = 0; j < p.n; j += kColumns) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::size_t part = 0; part < p.splits; ++part) {
      std::vector<float> of_part(p.splits > 1 ? sums.size() : 0);
      add_columns(p.m, p.k, p.k * part / p.splits, p.k * (part + 1) / p.splits, a.data(), b.data() + j * p.k,
                  p.splits > 1 ? of_part.data() : sums.data());
      for (std::size_t i = 0; i < of_part.size(); ++i)
        sums[i] += p.round_parts && p.d.bf16 ? __bfloat162float(__float2bfloat16_rn(of_part[i])) : of_part[i];
    }
    for (std::size_t c = j; c < std::min(p.n, j + kColumns); ++c)
      for (std::size_t i = 0; i < p.m; ++i) {
        float x = p.alpha * sums[(c - j) * p.m + i];
        if (p.beta != 0) x += p.beta * get(p.c, i * p.c.row_stride + c * p.c.column_stride);
        if (p.bias) x += get(bias, i);
        put(p.d, i * p.d.row_stride + c * p.d.column_stride, x);
      }
  }
}

}  // namespace emu
