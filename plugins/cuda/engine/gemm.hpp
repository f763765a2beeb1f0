// Matrix products by cuBLASLt in the terms of the step program: row-major operands and weights w[n,k].
// Descriptors and candidate algorithms are created once per shape and kept. select_algorithms() runs every
// product before the run allocates its memory, and chooses by time; the choice is kept in a file
// (product_choices.hpp), because algorithms add in different orders and so give other bits.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "core/base/types.hpp"

namespace trainhost::cuda {

class ProductChoices;

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
  bool add = false;   // adds the residual of run(), or else to the contents of the result
  // Of parts of rows: elements from row to row of the operands of run(); 0 = packed.
  std::uint64_t ld_left = 0, ld_right = 0, ld_out = 0;
  float scale = 1.0f;        // of the product
  float add_scale = 1.0f;    // of what is added
  std::string text() const;  // "forward 2048 x 4096 x 1024, bf16, bias": for messages and files
  std::uint64_t left_row() const { return ld_left ? ld_left : product == Product::kForward ? k : n; }
  std::uint64_t right_row() const { return ld_right ? ld_right : k; }
  std::uint64_t out_row() const { return ld_out ? ld_out : product == Product::kForward ? n : k; }
  auto key() const {
    return std::tuple(product, M, n, k, operands, tf32, bias, add, left_row(), right_row(), out_row(), scale,
                      add_scale);
  }
};

class Gemm {
 public:
  /// Creates the cuBLASLt handle, which takes device memory. workspace_bytes: of the workspace that all
  /// products share. They run on one stream, so no two of them use it at the same time.
  explicit Gemm(std::uint64_t workspace_bytes);
  ~Gemm();
  Gemm(const Gemm&) = delete;

  /// The workspace: device memory, 256-byte aligned. Needed before the first run().
  void set_workspace(void* workspace) { workspace_ = workspace; }
  /// Queues a product. left: x of kForward, dy of kDx and kDw. right: w of kForward and kDx, x of kDw.
  /// residual: null or not equal to `out`; null with s.add adds to `out` itself. While kernels are loaded
  /// (LoadingKernels), only registers the shape.
  void run(cudaStream_t stream, const GemmShape& s, const void* left, const void* right, const void* bias,
           const void* residual, void* out);
  /// Runs every registered product on temporary device memory and selects its algorithm: the one that
  /// `choices` has; else the fastest candidate, which is added to `choices`. Without `choices`, the first
  /// candidate that does not fail, because times differ from run to run. Needs less memory than the
  /// arena of the program.
  void select_algorithms(ProductChoices* choices);
  static std::size_t library_version() { return cublasLtGetVersion(); }

 private:
  struct Layout;
  struct Plan;
  struct Operands;
  Plan& plan(const GemmShape& s);
  void find_candidates(Plan& p, const GemmShape& s);
  cublasStatus_t queue(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at);
  float time_of(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at);
  void select(cudaStream_t stream, Plan& p, const GemmShape& s, const Operands& at, ProductChoices* choices);
  using Key = decltype(std::declval<GemmShape>().key());

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::uint64_t workspace_bytes_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace trainhost::cuda
