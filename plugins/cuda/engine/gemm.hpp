// Matrix products by cuBLASLt in the terms of the step program: row-major operands and weights w[n,k]. The
// descriptors and the algorithm that cuBLASLt's heuristic returns are created once per shape and kept. The
// workspace is a planned buffer of the arena; no memory is allocated on the device.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "core/base/types.hpp"

namespace trainhost::cuda {

/// The three products of a linear layer. M tokens, n outputs, k inputs.
enum class Product : std::uint8_t {
  kForward,  // y[M,n]  = x[M,k] w[n,k]^T (+ bias[n]) (+ residual[M,n])
  kDx,       // dx[M,k] = dy[M,n] w[n,k]
  kDw,       // dw[n,k] (= or +=) dy[M,n]^T x[M,k]; f32
};

struct GemmShape {
  Product product;
  std::uint64_t M, n, k;
  DType operands;     // f32 or bf16; also the type of the result, except of kDw
  bool tf32 = false;  // f32 operands on the tensor cores
  bool bias = false;  // kForward: adds bias[n]
  bool add = false;   // kForward: adds a residual; kDw: adds to the contents of the result
  auto key() const { return std::tuple(product, M, n, k, operands, tf32, bias, add); }
};

class Gemm {
 public:
  /// workspace: device memory, 256-byte aligned, shared by all products. They run on one stream, so no two of
  /// them use it at the same time.
  Gemm(void* workspace, std::uint64_t workspace_bytes);
  ~Gemm();
  Gemm(const Gemm&) = delete;

  /// Queues a product. left: x of kForward, dy of kDx and kDw. right: w of kForward and kDx, x of kDw.
  /// residual: null or not equal to `out`.
  void run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
           const void* residual, void* out);
  /// Creates the plan of a shape, so that run() creates nothing while a step is timed or captured.
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
