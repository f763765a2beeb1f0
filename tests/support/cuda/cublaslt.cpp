// cuBLASLt: descriptors, argument checks, and products as work of a stream. An algorithm stores the problem
// that it was found for and the alignments and workspace of the preference; a product that does not match
// them is rejected. There are several algorithms for every product; they differ in their sums and times, and
// one of them cannot run although the heuristic returns it.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "emulation_state.hpp"
#include "matrix_product.hpp"

using namespace emu;

struct cublasLtContext {
  int unused = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t ld;
  std::int32_t order = CUBLASLT_ORDER_COL;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  // that of D
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t max_workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

namespace {

constexpr std::uint64_t kMagic = 0x656d756c61746564;
constexpr std::size_t kMostWorkspace = 64 * 1024;  // the largest workspace that an algorithm requests

enum class Kind : std::uint32_t {
  kPlain,              // one sum in the order of k
  kSplit,              // two sums of half of k, added in f32; takes 3/4 of the time
  kSplitInOutputType,  // the sums are rounded to the type of D before they are added; takes half of the time
  kFails,              // returns CUBLAS_STATUS_NOT_SUPPORTED
};
struct Algorithm {  // the contents of cublasLtMatmulAlgo_t
  std::uint64_t magic, problem, workspace, max_workspace;
  std::uint32_t alignment[4], bias_alignment;  // bias_alignment 0: found without a bias pointer
  Kind kind;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class F>
cublasStatus_t blas(const char* name, F&& f, IfFailing if_failing = IfFailing::kDoNothing) {
  Lock lock(state().mutex);
  if (inside_host_function()) {
    state().problems.push_back(std::string(name) + " was called by a host function");
    return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  const auto failure = static_cast<cublasStatus_t>(admit(name));
  if (failure != CUBLAS_STATUS_SUCCESS && if_failing == IfFailing::kDoNothing) return failure;
  const cublasStatus_t s = f(lock);
  return failure != CUBLAS_STATUS_SUCCESS ? failure : s;
}

template <class T>
cublasStatus_t create(const char* name, T** to, T value) {
  return blas(name, [&](Lock&) {
    if (!to) return CUBLAS_STATUS_INVALID_VALUE;
    auto made = std::make_shared<T>(std::move(value));
    *to = made.get();
    state().blas.emplace(made.get(), std::move(made));
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t destroy(const char* name, const void* p) {
  return blas(
      name,
      [&](Lock&) { return state().blas.erase(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE; },
      IfFailing::kFreeAnyway);
}
bool exists(const void* p) { return state().blas.contains(p); }

template <class T>
cublasStatus_t set(T& to, const void* buf, std::size_t bytes) {
  if (!buf || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, buf, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}
// An attribute of which only one value is supported.
template <class T>
cublasStatus_t only(T allowed, const void* buf, std::size_t bytes) {
  T value{};
  const cublasStatus_t s = set(value, buf, bytes);
  return s == CUBLAS_STATUS_SUCCESS && value != allowed ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

using Layout = cublasLtMatrixLayoutOpaque_t;
std::size_t element_bytes(cudaDataType t) { return t == CUDA_R_16BF ? 2 : 4; }
std::uint64_t bytes_of(const Layout& l) {
  const bool col = l.order == CUBLASLT_ORDER_COL;
  const std::uint64_t vectors = col ? l.cols : l.rows, within = col ? l.rows : l.cols;
  return vectors == 0 ? 0
                      : ((vectors - 1) * static_cast<std::uint64_t>(l.ld) + within) * element_bytes(l.type);
}
bool valid(const Layout& l) {
  return l.rows > 0 && l.cols > 0 &&
         l.ld >= static_cast<std::int64_t>(l.order == CUBLASLT_ORDER_COL ? l.rows : l.cols);
}
Matrix matrix(const void* at, const Layout& l, bool transposed) {
  std::size_t row = 1, column = static_cast<std::size_t>(l.ld);
  if ((l.order == CUBLASLT_ORDER_ROW) != transposed) std::swap(row, column);
  return {at, l.type == CUDA_R_16BF, row, column};
}

// Checks shapes, and the combinations of types that cuBLASLt supports, as far as the trainer uses them.
cublasStatus_t check(const cublasLtMatmulDescOpaque_t& d, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& out) {
  for (const Layout* l : {&a, &b, &c, &out})
    if (!valid(*l)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool ta = d.transpose_a != CUBLAS_OP_N, tb = d.transpose_b != CUBLAS_OP_N;
  const std::uint64_t m = ta ? a.cols : a.rows, k = ta ? a.rows : a.cols, kb = tb ? b.cols : b.rows,
                      n = tb ? b.rows : b.cols;
  if (k != kb || out.rows != m || out.cols != n || c.rows != m || c.cols != n)
    return CUBLAS_STATUS_INVALID_VALUE;

  if (a.type != b.type || c.type != out.type || c.order != out.order || d.scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool bf16 = a.type == CUDA_R_16BF && d.compute == CUBLAS_COMPUTE_32F &&
                    (out.type == CUDA_R_16BF || out.type == CUDA_R_32F);
  const bool f32 = a.type == CUDA_R_32F && out.type == CUDA_R_32F &&
                   (d.compute == CUBLAS_COMPUTE_32F || d.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  if (!bf16 && !f32) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    if (out.order != CUBLASLT_ORDER_COL || (d.bias_type != -1 && d.bias_type != out.type))
      return CUBLAS_STATUS_NOT_SUPPORTED;
  } else if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// A hash of everything that an algorithm may depend on.
std::uint64_t problem_of(const cublasLtMatmulDescOpaque_t& d, const Layout& a, const Layout& b,
                         const Layout& c, const Layout& out) {
  Random h{static_cast<std::uint64_t>(d.compute)};
  auto mix = [&](std::uint64_t x) { h.state = h.next() ^ x; };
  mix(static_cast<std::uint64_t>(d.transpose_a)), mix(static_cast<std::uint64_t>(d.transpose_b)),
      mix(d.epilogue);
  for (const Layout* l : {&a, &b, &c, &out})
    mix(l->type), mix(l->rows), mix(l->cols), mix(static_cast<std::uint64_t>(l->ld)),
        mix(static_cast<std::uint64_t>(l->order));
  return h.next();
}

// The order in which the heuristic returns algorithms: the one that it takes for the fastest comes first.
std::vector<Kind> kinds_of(std::uint64_t problem, std::uint32_t reductions) {
  std::vector<Kind> kinds = {Kind::kPlain, Kind::kFails};
  if (problem % 3 == 0) std::swap(kinds[0], kinds[1]);
  if (reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) kinds.push_back(Kind::kSplit);
  if (reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
    kinds.insert(kinds.begin(), Kind::kSplitInOutputType);
  return kinds;
}

/// The largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, at & (~at + 1)));
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* to) {
  return blas("cublasLtCreate", [&](Lock&) {
    if (!to) return CUBLAS_STATUS_INVALID_VALUE;
    if (!take_device_memory(state().machine.blas_handle_bytes)) return CUBLAS_STATUS_ALLOC_FAILED;
    auto made = std::make_shared<cublasLtContext>();
    *to = made.get();
    state().blas.emplace(made.get(), std::move(made));
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy("cublasLtDestroy", handle); }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t s) {
  switch (s) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status";
}
const char* cublasLtGetStatusString(cublasStatus_t s) { return cublasLtGetStatusName(s); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create("cublasLtMatmulDescCreate", to, cublasLtMatmulDescOpaque_t{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  return destroy("cublasLtMatmulDescDestroy", d);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr,
                                              const void* buf, size_t bytes) {
  return blas("cublasLtMatmulDescSetAttribute", [&](Lock&) {
    if (!exists(d)) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(d->transpose_a, buf, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(d->transpose_b, buf, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(d->epilogue, buf, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(d->bias, buf, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(d->bias_type, buf, bytes);
      case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return only<std::int32_t>(CUBLASLT_POINTER_MODE_HOST, buf, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSC:
        return only<std::int32_t>(CUBLAS_OP_N, buf, bytes);
      default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* to, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return create("cublasLtMatrixLayoutCreate", to, Layout{type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  return destroy("cublasLtMatrixLayoutDestroy", l);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attr, const void* buf,
                                                size_t bytes) {
  return blas("cublasLtMatrixLayoutSetAttribute", [&](Lock&) {
    if (!exists(l)) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attr) {
      case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return set(l->type, buf, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(l->order, buf, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return set(l->rows, buf, bytes);
      case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set(l->cols, buf, bytes);
      case CUBLASLT_MATRIX_LAYOUT_LD:
        return set(l->ld, buf, bytes);
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return only<std::int32_t>(1, buf, bytes);
      default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* to) {
  return create("cublasLtMatmulPreferenceCreate", to, cublasLtMatmulPreferenceOpaque_t{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return destroy("cublasLtMatmulPreferenceDestroy", p);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t bytes) {
  return blas("cublasLtMatmulPreferenceSetAttribute", [&](Lock&) {
    if (!exists(p)) return CUBLAS_STATUS_INVALID_VALUE;
    std::uint32_t ignored;
    switch (attr) {
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(p->reductions, buf, bytes);
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(p->max_workspace, buf, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(p->alignment[0], buf, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(p->alignment[1], buf, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(p->alignment[2], buf, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(p->alignment[3], buf, bytes);
      case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        return set(ignored, buf, bytes);
      default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t p, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return blas("cublasLtMatmulAlgoGetHeuristic", [&](Lock&) {
    if (!exists(handle) || !exists(d) || !exists(a) || !exists(b) || !exists(c) || !exists(out) || !exists(p))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (wanted <= 0 || !results || !found) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    if (const cublasStatus_t s = check(*d, *a, *b, *c, *out); s != CUBLAS_STATUS_SUCCESS) return s;
    Algorithm one{kMagic, problem_of(*d, *a, *b, *c, *out), 0, p->max_workspace, {}, 0, Kind::kPlain};
    one.workspace = std::min<std::uint64_t>(p->max_workspace, kMostWorkspace) / 256 * 256;
    std::memcpy(one.alignment, p->alignment, sizeof p->alignment);
    if (d->bias) one.bias_alignment = alignment_of(d->bias);
    for (const Kind kind : kinds_of(one.problem, p->reductions)) {
      if (*found == wanted) break;
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      one.kind = kind;
      result = {};
      std::memcpy(&result.algo, &one, sizeof one);
      result.workspaceSize = one.workspace, result.wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return blas("cublasLtMatmulAlgoCheck", [&](Lock&) {
    if (!exists(handle) || !exists(d) || !exists(a) || !exists(b) || !exists(c) || !exists(out) || !algo ||
        !result)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (const cublasStatus_t s = check(*d, *a, *b, *c, *out); s != CUBLAS_STATUS_SUCCESS) return s;
    Algorithm one;
    std::memcpy(&one, algo, sizeof one);
    if (one.magic != kMagic || one.problem != problem_of(*d, *a, *b, *c, *out))
      return CUBLAS_STATUS_INVALID_VALUE;
    *result = {};
    result->workspaceSize = one.workspace, result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  return blas("cublasLtMatmul", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!exists(handle) || !exists(d) || !exists(a) || !exists(b) || !exists(c) || !exists(out))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (!s || !alpha || !beta || !A || !B || !D) return CUBLAS_STATUS_INVALID_VALUE;
    if (const cublasStatus_t e = check(*d, *a, *b, *c, *out); e != CUBLAS_STATUS_SUCCESS) return e;

    Algorithm chosen{kMagic, problem_of(*d, *a, *b, *c, *out), 0, ~0ull, {16, 16, 16, 16}, 1, Kind::kPlain};
    const std::uint64_t problem = chosen.problem;
    if (algo) std::memcpy(&chosen, algo, sizeof chosen);
    if (chosen.magic != kMagic || chosen.problem != problem)
      return CUBLAS_STATUS_NOT_SUPPORTED;  // found for another product
    if (chosen.kind == Kind::kFails) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (workspace_bytes < chosen.workspace || workspace_bytes > chosen.max_workspace)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes > 0 &&
        (reinterpret_cast<std::uintptr_t>(workspace) % 256 || !on_device(workspace, workspace_bytes)))
      return CUBLAS_STATUS_INVALID_VALUE;

    float alpha_value, beta_value;
    std::memcpy(&alpha_value, alpha, 4), std::memcpy(&beta_value, beta, 4);
    const bool reads_c = beta_value != 0;
    if (reads_c && (!C || (C == D && c->ld != out->ld))) return CUBLAS_STATUS_INVALID_VALUE;
    const void* at[4] = {A, B, reads_c ? C : D, D};
    const Layout* layouts[4] = {a, b, c, out};
    for (int i = 0; i < 4; ++i)
      if (reinterpret_cast<std::uintptr_t>(at[i]) % chosen.alignment[i] ||
          !on_device(at[i], bytes_of(i == 2 && !reads_c ? *out : *layouts[i])))
        return CUBLAS_STATUS_INVALID_VALUE;
    const bool biased = d->epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (biased && (!d->bias || !on_device(d->bias, out->rows * element_bytes(out->type)) ||
                   chosen.bias_alignment == 0 || alignment_of(d->bias) < chosen.bias_alignment))
      return CUBLAS_STATUS_INVALID_VALUE;
    const std::uint64_t code =
        kMagic + static_cast<std::uint64_t>(chosen.kind) + 16 * a->type + 512 * out->type;
    if (const cudaError_t e = load_code(code, state().machine.blas_kernel_bytes); e != cudaSuccess)
      return e == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_EXECUTION_FAILED;

    const bool ta = d->transpose_a != CUBLAS_OP_N, tb = d->transpose_b != CUBLAS_OP_N;
    const Product p{out->rows,
                    out->cols,
                    ta ? a->rows : a->cols,
                    matrix(A, *a, ta),
                    matrix(B, *b, tb),
                    matrix(C, *c, false),
                    matrix(D, *out, false),
                    biased ? d->bias : nullptr,
                    alpha_value,
                    beta_value,
                    d->compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                    chosen.kind == Kind::kPlain ? 1u : 2u,
                    chosen.kind == Kind::kSplitInOutputType};
    static constexpr const char* kNames[] = {"plain", "split", "split, output type"};
    static constexpr double kTimes[] = {1, 0.75, 0.5};
    const auto kind = static_cast<std::size_t>(chosen.kind);
    Item item{.work = Work::kMatmul, .name = "cublasLtMatmul", .algorithm = kNames[kind]};
    item.cost_us = kTimes[kind] * (state().costs.kernel_us +
                                   2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
                                       static_cast<double>(p.k) / state().costs.matmul_flops_per_us);
    // The workspace is filled with NaN, so that a test fails if it contains data. Most products fill only the
    // part that the algorithm requested; the first one and every 1024th fill all of it, because filling tens
    // of megabytes takes longer than the product.
    static std::uint64_t products = 0;
    const std::size_t filled_bytes =
        products++ % 1024 == 0 ? workspace_bytes : std::min<std::size_t>(workspace_bytes, chosen.workspace);
    item.run = [=] {
      if (filled_bytes > 0) std::memset(workspace, 0xff, filled_bytes);
      multiply(p);
      if (filled_bytes > 0) std::memset(workspace, 0xff, filled_bytes);
    };
    return enqueue(lock, *s, std::move(item)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                             : CUBLAS_STATUS_EXECUTION_FAILED;
  });
}
}
