// Counters of a run: transfers by class, counted when a copy is queued; and time with and without running
// kernels, measured by events around every wait of the kernel stream for another queue.
#pragma once
#include <cassert>
#include <cstdint>
#include <vector>

#include "plugins/cuda/engine/streams_events.hpp"

namespace trainhost::cuda {

class RunCounters {
 public:
  /// Transfers of one class (docs/memory-model.md): up = host to device, down = device to host.
  struct Transfers {
    std::uint64_t up = 0, down = 0, up_bytes = 0, down_bytes = 0;
  };
  Transfers activation, sync, stream;  // stream: weights and gradients of layers in the streamed mode
  std::uint64_t chunks = 0;      // cudaMemcpyAsync calls that the transfers of all classes were split into
  std::uint64_t compute_ns = 0;  // of updates: kernels running
  std::uint64_t exposed_ns = 0;  // of updates: kernel stream waiting for copies or the host
  std::uint64_t steps = 0, step_ns = 0;

  void count(Transfers& t, bool upwards, std::uint64_t bytes, std::uint64_t pieces) {
    (upwards ? t.up : t.down)++;
    (upwards ? t.up_bytes : t.down_bytes) += bytes;
    chunks += pieces;
  }

  /// Order of calls in a step: begin_step(); mark() before and after each wait of the kernel stream;
  /// end_step(); and read() once all work of the step has finished.
  void begin_step(cudaStream_t kernels) { marks_.clear(), events_.reset(), mark(kernels); }
  void mark(cudaStream_t kernels) {
    marks_.push_back(events_.next());
    check(cudaEventRecord(marks_.back(), kernels), "recording an event");
  }
  void end_step(cudaStream_t kernels) { mark(kernels); }
  void read() {
    assert(marks_.size() % 2 == 0);  // every wait has a mark before and after it
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i)
      (i % 2 == 0 ? compute_ns : exposed_ns) += elapsed_ns(marks_[i], marks_[i + 1]);
    if (marks_.size() > 1) step_ns += elapsed_ns(marks_.front(), marks_.back());
    ++steps;
    marks_.clear();
  }

 private:
  Events events_{true};
  std::vector<cudaEvent_t> marks_;  // start, wait begins, wait ends, wait begins, ..., end
};

}  // namespace trainhost::cuda
