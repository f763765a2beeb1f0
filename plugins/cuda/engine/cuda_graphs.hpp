// CUDA graphs of sections that are queued identically in every step: captured at the first use and replayed
// afterwards, so that the CPU time per step does not depend on the number of kernels. Used in the resident
// mode, where all work of a section is on one stream; the other modes use several streams and host functions.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <map>

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
  template <class F>
  void run(int key, cudaStream_t stream, std::uint64_t& launches, F&& queue) {
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      const std::uint64_t before = launches;
      cudaGraph_t graph = nullptr;
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
      Graph g{nullptr, launches - before};
      const cudaError_t status = cudaGraphInstantiate(&g.exec, graph, 0);
      ignore(cudaGraphDestroy(graph));
      check(status, "instantiating a captured step");
      found = graphs_.emplace(key, g).first;
    } else {
      launches += found->second.launches;
    }
    check(cudaGraphLaunch(found->second.exec, stream), "replaying a step");
  }

 private:
  struct Graph {
    cudaGraphExec_t exec;
    std::uint64_t launches;  // kernels and products in the graph
  };
  std::map<int, Graph> graphs_;
};

}  // namespace trainhost::cuda
