// Row-major to column-major: a row-major [r,c] is a column-major c x r with leading dimension c, so each
// product is computed transposed, with the operands swapped. See gemm.hpp for the three.
#include "plugins/cuda/engine/gemm.hpp"

#include <algorithm>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kDescribing = "describing a matrix product";

struct Layout {
  cublasLtMatrixLayout_t it = nullptr;
  void make(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols, std::uint64_t ld) {
    check(cublasLtMatrixLayoutCreate(&it, type, rows, cols, static_cast<std::int64_t>(ld)), kDescribing);
  }
  ~Layout() {
    if (it) ignore(cublasLtMatrixLayoutDestroy(it));
  }
};

}  // namespace

struct Gemm::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  Layout a, b, c, d;
  cublasLtMatmulAlgo_t algo{};
  ~Plan() {
    if (desc) ignore(cublasLtMatmulDescDestroy(desc));
  }
};

Gemm::Gemm(void* workspace, std::uint64_t workspace_bytes)
    : workspace_(workspace), workspace_bytes_(workspace_bytes) {
  check(cublasLtCreate(&handle_), "opening cuBLAS");
}

Gemm::~Gemm() {
  plans_.clear();
  if (handle_) ignore(cublasLtDestroy(handle_));
}

Gemm::Plan& Gemm::plan(const GemmShape& s) {
  std::unique_ptr<Plan>& known = plans_[s.key()];
  if (known) return *known;
  auto p = std::make_unique<Plan>();
  const cudaDataType_t in = s.operands == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t out = s.product == Product::kDw ? CUDA_R_32F : in;
  const cublasComputeType_t compute = s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F), kDescribing);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(p->desc, what, &value, sizeof value), kDescribing);
  };
  const cublasOperation_t plain = CUBLAS_OP_N, turned = CUBLAS_OP_T;
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.product == Product::kForward ? turned : plain);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.product == Product::kDw ? turned : plain);
  if (s.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  }
  switch (s.product) {
    case Product::kForward:
      p->a.make(in, s.k, s.n, s.k), p->b.make(in, s.k, s.M, s.k);
      break;
    case Product::kDx:
      p->a.make(in, s.k, s.n, s.k), p->b.make(in, s.n, s.M, s.n);
      break;
    case Product::kDw:
      p->a.make(in, s.k, s.M, s.k), p->b.make(in, s.n, s.M, s.n);
      break;
  }
  const std::uint64_t rows = s.product == Product::kForward ? s.n : s.k,
                      cols = s.product == Product::kDw ? s.n : s.M;
  p->c.make(out, rows, cols, rows), p->d.make(out, rows, cols, rows);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), kDescribing);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_, sizeof workspace_bytes_);
  // Buffers are aligned to 256 bytes, pieces of them (chunks of the head) to their rows.
  const std::uint64_t el = size_of(s.operands), rows_at = (s.k * el) | (s.n * el);
  const auto aligned = static_cast<std::uint32_t>(std::min<std::uint64_t>(16, rows_at & (~rows_at + 1)));
  for (cublasLtMatmulPreferenceAttributes_t which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, which, &aligned, sizeof aligned);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(handle_, p->desc, p->a.it, p->b.it, p->c.it, p->d.it, preference,
                                            1, &found, &count);
  ignore(cublasLtMatmulPreferenceDestroy(preference));
  const std::string what = "choosing an algorithm for a product of " + std::to_string(s.M) + " x " +
                           std::to_string(s.n) + " x " + std::to_string(s.k);
  check(status, what);
  if (count == 0) throw abi::StatusError(TH_E_INTERNAL, what + ": cuBLAS has none");
  p->algo = found.algo;
  known = std::move(p);
  return *known;
}

void Gemm::prepare(const GemmShape& s) { plan(s); }

void Gemm::run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
               const void* residual, void* out) {
  Plan& p = plan(s);
  if (s.bias)
    check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
          kDescribing);
  const float one = 1.0f, beta = s.add ? 1.0f : 0.0f;
  const void *a = right, *b = left;
  const void* c = residual ? residual : out;
  check(cublasLtMatmul(handle_, p.desc, &one, a, p.a.it, b, p.b.it, &beta, c, p.c.it, out, p.d.it, &p.algo,
                       workspace_, workspace_bytes_, stream),
        "queueing a matrix product");
}

}  // namespace trainhost::cuda
