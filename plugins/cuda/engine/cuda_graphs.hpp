// CUDA graphs of sections that are queued identically in every step: captured at the first use and replayed
// afterwards, so that the CPU time per step does not depend on the number of kernels. Used in the resident
// mode, where all work of a section is on one stream; the other modes use several streams and host functions.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {

class CudaGraphs {
 public:
  CudaGraphs() = default;
  ~CudaGraphs() {
    for (auto& [key, g] : graphs_) ignore(cudaGraphExecDestroy(g.exec));
  }
  CudaGraphs(const CudaGraphs&) = delete;

  /// Launches the graph of that key on the stream; captures it first, by calling queue(), if there is none
  /// yet. `launches` counts kernels: queue() increments it during capture, and a replay adds the same number.
  /// Returns false if the work cannot be captured; then nothing was queued, and error() says why. Throws if
  /// the device is lost or the launch fails.
  template <class F>
  bool run(int key, cudaStream_t stream, std::uint64_t& launches, F&& queue) {
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      const std::uint64_t before = launches;
      cudaGraphExec_t exec = capture(stream, queue);
      if (!exec) {
        launches = before;
        return false;
      }
      found = graphs_.emplace(key, Graph{exec, launches - before}).first;
    } else {
      launches += found->second.launches;
    }
    check(cudaGraphLaunch(found->second.exec, stream), "replaying a step");
    return true;
  }
  const std::string& error() const { return error_; }

 private:
  /// Null if it fails.
  template <class F>
  cudaGraphExec_t capture(cudaStream_t stream, F&& queue) {
    cudaGraph_t graph = nullptr;
    try {
      // Thread-local: calls of other threads of the process remain permitted during the capture.
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a step");
      try {
        queue();
      } catch (...) {
        // Ends the capture, or the stream could not be used or destroyed; the original error is thrown on.
        if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph) ignore(cudaGraphDestroy(graph));
        ignore(cudaGetLastError());
        throw;
      }
      check(cudaStreamEndCapture(stream, &graph), "capturing a step");
      cudaGraphExec_t exec = nullptr;
      const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
      ignore(cudaGraphDestroy(graph));
      check(status, "instantiating a captured step");
      return exec;
    } catch (const abi::StatusError& e) {
      if (e.code == TH_E_DEVICE_LOST) throw;
      ignore(cudaGetLastError());
      error_ = e.what();
      return nullptr;
    }
  }

  struct Graph {
    cudaGraphExec_t exec;
    std::uint64_t launches;  // kernels and products in the graph
  };
  std::map<int, Graph> graphs_;
  std::string error_;
};

}  // namespace trainhost::cuda
