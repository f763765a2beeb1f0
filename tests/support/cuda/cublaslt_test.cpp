// Products of the emulated cuBLASLt compared with simple loops, and invalid arguments that it rejects.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "cublasLt.h"
#include "cuda_bf16.h"
#include "emu.hpp"

namespace {

#define OK(expression) BOOST_REQUIRE_EQUAL(static_cast<int>(expression), 0)

struct Fixture {
  cublasLtHandle_t handle;
  cublasLtMatmulPreference_t preference;
  char* memory;  // four matrices of 4 KiB, then bias, then workspace
  std::uint64_t workspace = 1024;
  Fixture() {
    emu::reset();
    OK(cublasLtCreate(&handle));
    OK(cublasLtMatmulPreferenceCreate(&preference));
    OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                            sizeof workspace));
    OK(cudaMalloc(&memory, 6 * 4096));
  }
  ~Fixture() {
    cublasLtDestroy(handle), cublasLtMatmulPreferenceDestroy(preference), cudaFree(memory);
    BOOST_TEST(emu::outstanding().nothing());
  }
};

/// Column-major D[m, n] = op(A) op(B) + beta C, + bias.
struct Case {
  std::uint64_t m = 9, n = 7, k = 5;
  cudaDataType in = CUDA_R_32F, out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool ta = false, tb = false, bias = false;
  float beta = 0;
  std::int64_t short_ld = 0;
  std::size_t shift = 0;  // bytes, of A
  std::size_t given = 1024;
};

float value(int i) { return static_cast<float>((i * 37) % 29 - 14) / 16 + (i % 5 == 0 ? 0x1p-13f : 0.0f); }
// x rounded to TF32, ties to even.
double eleven_bits(float x) {
  int e = 0;
  const double m = std::frexp(x, &e);
  return std::ldexp(std::nearbyint(std::ldexp(m, 11)), e - 11);
}
float read(const char* at, cudaDataType t, std::size_t i) {
  return t == CUDA_R_32F ? reinterpret_cast<const float*>(at)[i]
                         : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(at)[i]);
}
void fill(char* at, cudaDataType t, int n) {
  for (int i = 0; i < n; ++i)
    if (t == CUDA_R_32F)
      reinterpret_cast<float*>(at)[i] = value(i);
    else
      reinterpret_cast<__nv_bfloat16*>(at)[i] = __float2bfloat16_rn(value(i));
}

/// Computes a product and compares it with loops. Returns the first status that is not success.
cublasStatus_t try_case(Fixture& r, const Case& c) {
  char *a = r.memory + c.shift, *b = r.memory + 4096, *cc = b + 4096, *d = cc + 4096, *bias = d + 4096,
       *work = bias + 4096;
  fill(a, c.in, 64), fill(b, c.in, 64), fill(cc, c.out, 64), fill(bias, c.out, 16);
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t la, lb, lc, ld;
  OK(cublasLtMatmulDescCreate(&desc, c.compute, CUDA_R_32F));
  const std::int32_t ta = c.ta, tb = c.tb;
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
  OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
  if (c.bias) {
    const cublasLtEpilogue_t e = CUBLASLT_EPILOGUE_BIAS;
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
    OK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  }
  const std::uint64_t ar = c.ta ? c.k : c.m, ac = c.ta ? c.m : c.k, br = c.tb ? c.n : c.k,
                      bc = c.tb ? c.k : c.n;
  OK(cublasLtMatrixLayoutCreate(&la, c.in, ar, ac, static_cast<std::int64_t>(ar) - c.short_ld));
  OK(cublasLtMatrixLayoutCreate(&lb, c.in, br, bc, static_cast<std::int64_t>(br)));
  OK(cublasLtMatrixLayoutCreate(&lc, c.out, c.m, c.n, static_cast<std::int64_t>(c.m)));
  OK(cublasLtMatrixLayoutCreate(&ld, c.out, c.m, c.n, static_cast<std::int64_t>(c.m)));
  cublasLtMatmulHeuristicResult_t found;
  int n = 0;
  const float one = 1;
  cublasStatus_t s =
      cublasLtMatmulAlgoGetHeuristic(r.handle, desc, la, lb, lc, ld, r.preference, 1, &found, &n);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = cublasLtMatmul(r.handle, desc, &one, a, la, b, lb, &c.beta, cc, lc, d, ld, &found.algo, work, c.given,
                       nullptr);
  cublasLtMatmulDescDestroy(desc);
  for (cublasLtMatrixLayout_t l : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(l);
  if (s != CUBLAS_STATUS_SUCCESS) return s;

  BOOST_TEST(std::isnan(read(d, c.out, 0)));  // queued, not executed
  OK(cudaDeviceSynchronize());
  BOOST_TEST(std::isnan(read(work, CUDA_R_32F, 0)));
  for (std::size_t j = 0; j < c.n; ++j)
    for (std::size_t i = 0; i < c.m; ++i) {
      double want = 0;
      for (std::size_t p = 0; p < c.k; ++p) {
        const float x = read(a, c.in, c.ta ? i * c.k + p : p * c.m + i),
                    y = read(b, c.in, c.tb ? p * c.n + j : j * c.k + p);
        const bool tf32 = c.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        want += tf32 ? eleven_bits(x) * eleven_bits(y) : static_cast<double>(x) * y;
      }
      if (c.beta != 0) want += c.beta * read(cc, c.out, j * c.m + i);
      if (c.bias) want += read(bias, c.out, i);
      const double slack = c.out == CUDA_R_32F ? 1e-5 : 0.02;
      BOOST_TEST(std::abs(read(d, c.out, j * c.m + i) - want) < slack, "row " << i << " column " << j);
    }
  for (std::size_t i = 0; i < 4096; ++i) r.memory[3 * 4096 + i] = static_cast<char>(0xff);
  return s;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_products, Fixture)

BOOST_AUTO_TEST_CASE(every_product_that_the_trainer_uses_agrees_with_loops) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (bool bias : {false, true})
        for (float beta : {0.0f, 1.0f}) {
          Case c;
          c.ta = ta, c.tb = tb, c.bias = bias, c.beta = beta;
          OK(try_case(*this, c));
          c.in = CUDA_R_16BF;
          OK(try_case(*this, c));
          c.out = CUDA_R_16BF;
          OK(try_case(*this, c));
        }
}

BOOST_AUTO_TEST_CASE(tf32_products_round_their_operands) {
  Case c;
  c.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  OK(try_case(*this, c));
}

BOOST_AUTO_TEST_CASE(invalid_products_are_rejected_as_by_the_library) {
  Case c;
  c.short_ld = 1;
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_INVALID_VALUE);
  c = {};
  c.shift = 16;  // the preference requires 256
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_INVALID_VALUE);
  c = {};
  c.given = 512;  // less than the algorithm requires
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_INVALID_VALUE);
  c = {};
  c.given = 2048;  // more than the preference allows
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_INVALID_VALUE);
  c = {};
  c.out = CUDA_R_16BF;
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_NOT_SUPPORTED);
  c = {};
  c.in = CUDA_R_16BF, c.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  BOOST_TEST(try_case(*this, c) == CUBLAS_STATUS_NOT_SUPPORTED);
  emu::fail("cublasLtMatmul", 1, CUBLAS_STATUS_EXECUTION_FAILED);
  BOOST_TEST(try_case(*this, Case()) == CUBLAS_STATUS_EXECUTION_FAILED);
  OK(try_case(*this, Case()));
}

BOOST_AUTO_TEST_SUITE_END()
