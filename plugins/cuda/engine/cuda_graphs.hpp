// A section that is queued the same way in every step is recorded once and replayed: the host then spends
// microseconds on a step of hundreds of kernels. For the resident mode, where one stream has it all.
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
    for (auto& [which, g] : known_) ignore(cudaGraphExecDestroy(g.exec));
  }
  CudaGraphs(const CudaGraphs&) = delete;

  /// Replays `which` on the stream; records it first, by queue(), if it is not known. Launches of a replay
  /// are added to `launches`, which queue() counts in when it is called.
  template <class F>
  void run(int which, cudaStream_t stream, std::uint64_t& launches, F&& queue) {
    auto known = known_.find(which);
    if (known == known_.end()) {
      const std::uint64_t before = launches;
      cudaGraph_t graph = nullptr;
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a step");
      try {
        queue();
      } catch (...) {
        if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph) ignore(cudaGraphDestroy(graph));
        ignore(cudaGetLastError());
        throw;
      }
      check(cudaStreamEndCapture(stream, &graph), "recording a step");
      Graph g{nullptr, launches - before};
      const cudaError_t status = cudaGraphInstantiate(&g.exec, graph, 0);
      ignore(cudaGraphDestroy(graph));
      check(status, "making a recorded step ready");
      known = known_.emplace(which, g).first;
    } else {
      launches += known->second.launches;
    }
    check(cudaGraphLaunch(known->second.exec, stream), "replaying a step");
  }

 private:
  struct Graph {
    cudaGraphExec_t exec;
    std::uint64_t launches;
  };
  std::map<int, Graph> known_;
};

}  // namespace trainhost::cuda
