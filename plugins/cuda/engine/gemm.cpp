// Maps row-major products to cuBLASLt, which is column-major. A row-major matrix [r,c] has the same memory
// layout as a column-major c x r matrix with leading dimension c, that is, as its transpose. So C = A B is
// computed as C^T = B^T A^T: the operands are swapped and no matrix is transposed in memory. See gemm.hpp.
#include "plugins/cuda/engine/gemm.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kDescribing = "describing a matrix product";

struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  void create(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols, std::uint64_t ld) {
    check(cublasLtMatrixLayoutCreate(&handle, type, rows, cols, static_cast<std::int64_t>(ld)), kDescribing);
  }
  ~Layout() {
    if (handle) ignore(cublasLtMatrixLayoutDestroy(handle));
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
  check(cublasLtCreate(&handle_), "creating a cuBLASLt handle");
}

Gemm::~Gemm() {
  plans_.clear();  // before the handle
  if (handle_) ignore(cublasLtDestroy(handle_));
}

Gemm::Plan& Gemm::plan(const GemmShape& s) {
  std::unique_ptr<Plan>& entry = plans_[s.key()];
  if (entry) return *entry;
  auto p = std::make_unique<Plan>();
  const cudaDataType_t in = s.operands == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
  const cudaDataType_t out = s.product == Product::kDw ? CUDA_R_32F : in;  // gradients of weights are f32
  // bf16 products also accumulate in f32 (COMPUTE_32F); FAST_TF32 applies to f32 operands only.
  const cublasComputeType_t compute = s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F), kDescribing);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(p->desc, what, &value, sizeof value), kDescribing);
  };
  const cublasOperation_t plain = CUBLAS_OP_N, transposed = CUBLAS_OP_T;
  // In column-major terms, with A = `right` and B = `left` of run():
  //   forward  y^T[n,M]  = (w^T)^T x^T     A = w^T [k,n], transposed;  B = x^T  [k,M]
  //   dx       dx^T[k,M] = w^T dy^T        A = w^T [k,n];              B = dy^T [n,M]
  //   dw       dw^T[k,n] = x^T (dy^T)^T    A = x^T [k,M];              B = dy^T [n,M], transposed
  set(CUBLASLT_MATMUL_DESC_TRANSA, s.product == Product::kForward ? transposed : plain);
  set(CUBLASLT_MATMUL_DESC_TRANSB, s.product == Product::kDw ? transposed : plain);
  if (s.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  }
  switch (s.product) {
    case Product::kForward:
      p->a.create(in, s.k, s.n, s.k), p->b.create(in, s.k, s.M, s.k);
      break;
    case Product::kDx:
      p->a.create(in, s.k, s.n, s.k), p->b.create(in, s.n, s.M, s.n);
      break;
    case Product::kDw:
      p->a.create(in, s.k, s.M, s.k), p->b.create(in, s.n, s.M, s.n);
      break;
  }
  const std::uint64_t rows = s.product == Product::kForward ? s.n : s.k,
                      cols = s.product == Product::kDw ? s.n : s.M;
  p->c.create(out, rows, cols, rows), p->d.create(out, rows, cols, rows);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), kDescribing);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_, sizeof workspace_bytes_);
  // The largest power of two, up to 16, that divides the row lengths in bytes. Buffers are aligned to 256
  // bytes, but an operand may start at any row (chunks of the head), and its address is then a multiple of a
  // row. cuBLASLt must not choose an algorithm that needs more. x & (~x + 1) is the lowest set bit of x.
  const std::uint64_t el = size_of(s.operands), row_bytes = (s.k * el) | (s.n * el);
  const auto aligned = static_cast<std::uint32_t>(std::min<std::uint64_t>(16, row_bytes & (~row_bytes + 1)));
  for (cublasLtMatmulPreferenceAttributes_t which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, which, &aligned, sizeof aligned);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(handle_, p->desc, p->a.handle, p->b.handle, p->c.handle,
                                            p->d.handle, preference, 1, &found, &count);
  ignore(cublasLtMatmulPreferenceDestroy(preference));
  const std::string what = "choosing an algorithm for a product of " + std::to_string(s.M) + " x " +
                           std::to_string(s.n) + " x " + std::to_string(s.k);
  check(status, what);
  if (count == 0) throw abi::StatusError(TH_E_INTERNAL, what + ": cuBLASLt has none");
  p->algo = found.algo;
  entry = std::move(p);
  return *entry;
}

void Gemm::prepare(const GemmShape& s) { plan(s); }

void Gemm::run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
               const void* residual, void* out) {
  assert(out && left && right && residual != out);
  Plan& p = plan(s);
  // The bias pointer is part of the descriptor, which all layers of this shape share. cublasLtMatmul() copies
  // it when it queues the product, so the next layer may change it.
  if (s.bias)
    check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
          kDescribing);
  const float one = 1.0f, beta = s.add ? 1.0f : 0.0f;
  const void *a = right, *b = left;           // swapped: see the start of the file
  const void* c = residual ? residual : out;  // D = A B + beta C; with beta 0, C is not read
  check(cublasLtMatmul(handle_, p.desc, &one, a, p.a.handle, b, p.b.handle, &beta, c, p.c.handle, out,
                       p.d.handle, &p.algo, workspace_, workspace_bytes_, stream),
        "queueing a matrix product");
}

}  // namespace trainhost::cuda
