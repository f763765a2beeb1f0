// Maps row-major products to cuBLASLt, which is column-major. A row-major matrix [r,c] has the same memory
// layout as a column-major c x r matrix with leading dimension c, that is, as its transpose. So C = A B is
// computed as C^T = B^T A^T: the operands are swapped and no matrix is transposed in memory. See gemm.hpp.
#include "plugins/cuda/engine/gemm.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/product_choices.hpp"
#include "plugins/cuda/engine/streams_events.hpp"
#include "plugins/cuda/kernels/launch.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kDescribing = "describing a matrix product";
const std::string kChoosing = "choosing an algorithm for the product ";
constexpr int kMostCandidates = 4;  // each loads a kernel, which takes device memory

/// True if the status says that this algorithm cannot compute the product here, but another one may.
bool may_use_another(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE &&
      status != CUBLAS_STATUS_INTERNAL_ERROR && status != CUBLAS_STATUS_EXECUTION_FAILED)
    return false;
  // The error of a failed launch would otherwise be reported by the next call.
  return !device_lost(cudaGetLastError());
}

/// Bytes of the operands of a product, rounded up to the alignment of planned buffers. residual and bias: 0
/// if the product has none.
struct OperandSizes {
  std::uint64_t left, right, residual, bias, out;
  explicit OperandSizes(const GemmShape& s) {
    const auto rounded = [](std::uint64_t bytes) { return (bytes + 255) / 256 * 256; };
    const bool forward = s.product == Product::kForward, dw = s.product == Product::kDw;
    const std::uint64_t el = size_of(s.operands);
    left = rounded(s.M * s.left_row() * el);
    right = rounded((dw ? s.M : s.n) * s.right_row() * el);
    out = dw ? rounded(s.n * s.out_row() * sizeof(float)) : rounded(s.M * s.out_row() * el);
    residual = forward && s.add ? out : 0;
    bias = s.bias ? rounded(s.n * el) : 0;
  }
  std::uint64_t total() const { return left + right + residual + bias + out; }
};

/// Device memory that is freed at the end of a scope.
struct TemporaryMemory {
  std::byte* at = nullptr;
  explicit TemporaryMemory(std::uint64_t bytes) {
    void* p = nullptr;
    check(cudaMalloc(&p, bytes), "allocating temporary memory for matrix products");
    at = static_cast<std::byte*>(p);
  }
  ~TemporaryMemory() { ignore(cudaFree(at)); }
  TemporaryMemory(const TemporaryMemory&) = delete;
};

}  // namespace

struct Gemm::Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  void create(cudaDataType_t type, std::uint64_t rows, std::uint64_t cols, std::uint64_t ld) {
    check(cublasLtMatrixLayoutCreate(&handle, type, rows, cols, static_cast<std::int64_t>(ld)), kDescribing);
  }
  ~Layout() {
    if (handle) ignore(cublasLtMatrixLayoutDestroy(handle));
  }
};

struct Gemm::Plan {
  GemmShape shape;
  cublasLtMatmulDesc_t desc = nullptr;
  Layout a, b, c, d;
  std::vector<cublasLtMatmulAlgo_t> candidates;  // the first that did not fail is used
  std::size_t chosen = 0;
  bool has_run = false;  // the chosen one has: a later failure is an error of the device
  ~Plan() {
    if (desc) ignore(cublasLtMatmulDescDestroy(desc));
  }
};

/// Addresses as cuBLASLt has them: D = A B + beta C.
struct Gemm::Operands {
  const void *a, *b, *c, *bias;
  void* d;
};

std::string GemmShape::text() const {
  constexpr const char* kNames[] = {"forward", "dx", "dw"};
  return std::string(kNames[static_cast<int>(product)]) + " " + std::to_string(M) + " x " +
         std::to_string(n) + " x " + std::to_string(k) +
         (operands == DType::kBF16 ? ", bf16"
          : tf32                   ? ", tf32"
                                   : ", f32") +
         (bias ? ", bias" : "") + (add ? ", add" : "") +
         (ld_left || ld_right || ld_out ? ", rows of " + std::to_string(left_row()) + ", " +
                                              std::to_string(right_row()) + ", " + std::to_string(out_row())
                                        : "") +
         (scale != 1.0f || add_scale != 1.0f ? ", scaled" : "");
}

Gemm::Gemm(std::uint64_t workspace_bytes) : workspace_bytes_(workspace_bytes) {
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
  p->shape = s;
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
    // The heuristic reads the alignment of this address: that of every planned buffer.
    const void* aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
  }
  switch (s.product) {
    case Product::kForward:
      p->a.create(in, s.k, s.n, s.right_row()), p->b.create(in, s.k, s.M, s.left_row());
      break;
    case Product::kDx:
      p->a.create(in, s.k, s.n, s.right_row()), p->b.create(in, s.n, s.M, s.left_row());
      break;
    case Product::kDw:
      p->a.create(in, s.k, s.M, s.right_row()), p->b.create(in, s.n, s.M, s.left_row());
      break;
  }
  const std::uint64_t rows = s.product == Product::kForward ? s.n : s.k,
                      cols = s.product == Product::kDw ? s.n : s.M;
  p->c.create(out, rows, cols, s.out_row()), p->d.create(out, rows, cols, s.out_row());

  find_candidates(*p, s);
  entry = std::move(p);
  return *entry;
}

void Gemm::find_candidates(Plan& p, const GemmShape& s) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), kDescribing);
  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found{};
  int count = 0;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes_);
  // Sums that are split over k are added in f32, never in the type of the result.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  // The largest power of two, up to 16, that divides the row lengths in bytes. Buffers are aligned to 256
  // bytes, but an operand may start at any row (chunks of the head), and its address is then a multiple of a
  // row. cuBLASLt must not choose an algorithm that needs more. x & (~x + 1) is the lowest set bit of x.
  const std::uint64_t el = size_of(s.operands), row_bytes = (s.k * el) | (s.n * el) | (s.left_row() * el) |
                                                            (s.right_row() * el) | (s.out_row() * el);
  const auto aligned = static_cast<std::uint32_t>(std::min<std::uint64_t>(16, row_bytes & (~row_bytes + 1)));
  for (cublasLtMatmulPreferenceAttributes_t which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(which, aligned);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(handle_, p.desc, p.a.handle, p.b.handle, p.c.handle, p.d.handle,
                                            preference, kMostCandidates, found.data(), &count);
  ignore(cublasLtMatmulPreferenceDestroy(preference));
  check(status, kChoosing + s.text());
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& f = found[static_cast<std::size_t>(i)];
    if (f.state == CUBLAS_STATUS_SUCCESS && f.workspaceSize <= workspace_bytes_)
      p.candidates.push_back(f.algo);
  }
  if (p.candidates.empty())
    throw abi::StatusError(TH_E_INTERNAL, kChoosing + s.text() + ": cuBLASLt has none");
}

cublasStatus_t Gemm::queue(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at) {
  // The bias pointer is part of the descriptor, which all layers of this shape share. cublasLtMatmul() copies
  // it when it queues the product, so the next layer may change it.
  if (s.bias)
    check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias, sizeof at.bias),
          kDescribing);
  const float beta = s.add ? s.add_scale : 0.0f;
  return cublasLtMatmul(handle_, p.desc, &s.scale, at.a, p.a.handle, at.b, p.b.handle, &beta, at.c,
                        p.c.handle, at.d, p.d.handle, &p.candidates[p.chosen], workspace_, workspace_bytes_,
                        stream);
}

void Gemm::run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
               const void* residual, void* out) {
  assert(out && left && right && residual != out);
  Plan& p = plan(s);
  if (LoadingKernels::active()) return;
  // A and B are swapped: see the start of the file. With beta 0, C is not read.
  const Operands at{right, left, residual ? residual : out, bias, out};
  for (;;) {
    const cublasStatus_t status = queue(stream, p, s, at);
    if (status != CUBLAS_STATUS_SUCCESS && !p.has_run && may_use_another(status) &&
        p.chosen + 1 < p.candidates.size()) {
      ++p.chosen;
      continue;
    }
    check(status, "queueing a matrix product");
    p.has_run = true;
    return;
  }
}

// ---- selection

/// Milliseconds of one product, infinity if the candidate fails.
float Gemm::time_of(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at) {
  constexpr int kTimes = 5;  // timed, after one product that loads the kernel
  const Event begin(true), end(true);
  for (int i = 0; i < kTimes + 1; ++i) {
    if (i == 1) check(cudaEventRecord(begin, stream), "recording an event");
    const cublasStatus_t status = queue(stream, p, s, at);
    if (status == CUBLAS_STATUS_SUCCESS) continue;
    if (!may_use_another(status)) check(status, kChoosing + s.text());
    return std::numeric_limits<float>::infinity();
  }
  check(cudaEventRecord(end, stream), "recording an event");
  check(cudaEventSynchronize(end), kChoosing + s.text());
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin, end), kChoosing + s.text());
  return ms / kTimes;
}

void Gemm::select(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at,
                  ProductChoices* choices) {
  if (choices) {
    cublasLtMatmulHeuristicResult_t checked{};
    const std::optional<cublasLtMatmulAlgo_t> stored = choices->find(s);
    if (stored &&
        cublasLtMatmulAlgoCheck(handle_, p.desc, p.a.handle, p.b.handle, p.c.handle, p.d.handle, &*stored,
                                &checked) == CUBLAS_STATUS_SUCCESS &&
        checked.workspaceSize <= workspace_bytes_) {
      p.candidates.insert(p.candidates.begin(), *stored);
    } else {
      float best = std::numeric_limits<float>::infinity();
      std::size_t fastest = 0;
      for (p.chosen = 0; p.chosen < p.candidates.size(); ++p.chosen)
        if (const float ms = time_of(stream, p, s, at); ms < best) best = ms, fastest = p.chosen;
      std::swap(p.candidates[0], p.candidates[fastest]);
      p.chosen = 0;
      choices->add(s, p.candidates[0]);
    }
  }
  run(stream, s, at.b, at.a, at.bias, s.product == Product::kForward && s.add ? at.c : nullptr, at.d);
}

void Gemm::select_algorithms(ProductChoices* choices) {
  std::uint64_t most = 0;
  for (const auto& [key, p] : plans_) most = std::max(most, OperandSizes(p->shape).total());
  const TemporaryMemory memory(workspace_bytes_ + most);
  const Stream stream;
  // 0x3c3c3c3c is 0.0115 in f32 and bf16: finite, so that the power consumption and the times are realistic.
  check(cudaMemsetAsync(memory.at + workspace_bytes_, 0x3c, most, stream), "clearing device memory");
  void* const planned = std::exchange(workspace_, memory.at);
  for (auto& [key, p] : plans_) {
    const OperandSizes size(p->shape);
    const std::byte *right = memory.at + workspace_bytes_, *left = right + size.right,
                    *residual = left + size.left, *bias = residual + size.residual;
    std::byte* out = const_cast<std::byte*>(bias) + size.bias;
    select(stream, *p, p->shape, {right, left, size.residual ? residual : out, bias, out}, choices);
  }
  stream.wait_for_all();
  workspace_ = planned;
}

}  // namespace trainhost::cuda
