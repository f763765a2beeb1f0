// Matrix products by cuBLASLt, in the words of the step program: row-major operands, weights w[n,k].
// Descriptors and the library's choice of algorithm are made once for each shape and kept. Workspace comes
// from the plan.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "core/base/types.hpp"

namespace trainhost::cuda {

/// Which of the three products of a linear layer.
enum class Product : std::uint8_t {
  kForward,  // y[M,n]  = x[M,k] w[n,k]^T (+ bias[n]) (+ residual[M,n])
  kDx,       // dx[M,k] = dy[M,n] w[n,k]
  kDw,       // dw[n,k] (= or +=) dy[M,n]^T x[M,k]; f32
};

struct GemmShape {
  Product product;
  std::uint64_t M, n, k;
  DType operands;     // f32 or bf16; the result's too, except of kDw
  bool tf32 = false;  // f32 operands on the tensor cores
  bool bias = false;  // kForward
  bool add = false;   // kForward: a residual; kDw: to what is there
  auto key() const { return std::tuple(product, M, n, k, operands, tf32, bias, add); }
};

class Gemm {
 public:
  Gemm(void* workspace, std::uint64_t workspace_bytes);
  ~Gemm();
  Gemm(const Gemm&) = delete;

  /// left: x, or dy of kDx and kDw. right: w, or x of kDw. residual may be absent, and may not be `out`.
  void run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
           const void* residual, void* out);
  /// Makes what run() will need, before anything is timed or captured.
  void prepare(const GemmShape& s);
  static std::size_t library_version() { return cublasLtGetVersion(); }

 private:
  struct Plan;
  Plan& plan(const GemmShape& s);
  using Key = decltype(std::declval<GemmShape>().key());

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_;
  std::uint64_t workspace_bytes_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace trainhost::cuda
