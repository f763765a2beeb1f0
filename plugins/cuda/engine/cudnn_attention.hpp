// Attention over whole sequences by cuDNN's fused kernels, in the layouts and with the results of attention()
// and attention_bwd() (kernels/kernel_functions.hpp), in bf16. Only the layout of lse differs: [sequences,
// heads, seq], which nothing but the backward pass reads.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/step/program.hpp"
#include "plugins/cuda/engine/cudnn_graph.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

namespace cudnn {
/// Plans for one shape. compute_capability: of the target, 10 * major + minor.
Plan forward_plan(const AttentionShape& s, const Target& target, std::uint64_t workspace_limit);
Plan backward_plan(const AttentionShape& s, const Target& target, int compute_capability,
                   std::uint64_t workspace_limit);
}  // namespace cudnn

class CudnnAttention {
 public:
  /// Loads cuDNN and makes the plans of every layer for the current device. Throws abi::StatusError as
  /// library() and Plan, or if the device lacks memory for a handle.
  /// backward_sequences: divides the micro-batch; the plan is made for cudnn_backward_sequences().
  CudnnAttention(const step::Program& program, int compute_capability, std::uint32_t backward_sequences);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;

  /// The planned buffer of at least cudnn_workspace_bytes(), shared with cuBLASLt; required before forward().
  void use_workspace(void* workspace) { workspace_ = workspace; }
  /// Operands as in attention(); `s.sequences` must be the micro-batch of the run.
  void forward(cudaStream_t stream, const AttentionShape& s, const Bf16* qkv, Bf16* o, float* lse);
  /// Operands as in attention_bwd(), `s` as in forward(). delta is written in the layout of lse.
  void backward(cudaStream_t stream, const AttentionShape& s, const Bf16* d_o, const Bf16* o,
                const float* lse, const Bf16* qkv, float* delta, Bf16* dqkv);
  /// "cuDNN 9.19.0": on which the bits of a run depend.
  static std::string version();

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t>;  // sequences, window

  const std::uint32_t backward_sequences_;
  const std::uint64_t workspace_limit_;
  void* workspace_ = nullptr;
  cudnn::Handle handle_ = nullptr;
  std::map<Key, cudnn::Plan> forward_, backward_;
};

}  // namespace trainhost::cuda
