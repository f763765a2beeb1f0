// What a run transferred and how long the device computed: counted where copies are queued, timed by events
// around every stretch in which kernels follow each other without waiting for another queue.
#pragma once
#include <cstdint>
#include <vector>

#include "plugins/cuda/engine/streams_events.hpp"

namespace trainhost::cuda {

class RunCounters {
 public:
  struct Class {
    std::uint64_t up = 0, down = 0, up_bytes = 0, down_bytes = 0;
  };
  Class activation, sync, stream;  // `stream`: weights and gradients of layers in the streamed mode
  std::uint64_t chunks = 0;        // pieces that all of these were issued in
  std::uint64_t compute_ns = 0;    // with kernels running, of updates
  std::uint64_t exposed_ns = 0;    // between, waiting for copies or the host
  std::uint64_t steps = 0, step_ns = 0;

  void count(Class& c, bool upwards, std::uint64_t bytes, std::uint64_t pieces) {
    (upwards ? c.up : c.down)++;
    (upwards ? c.up_bytes : c.down_bytes) += bytes;
    chunks += pieces;
  }

  // ---- of one step
  void begin_step(cudaStream_t kernels) { moments_.clear(), events_.reset(), mark(kernels); }
  /// Around a wait of the kernels' stream: before it and after it.
  void mark(cudaStream_t kernels) {
    moments_.push_back(events_.next());
    check(cudaEventRecord(moments_.back(), kernels), "recording an event");
  }
  void end_step(cudaStream_t kernels) { mark(kernels); }
  /// After everything of the step is done.
  void read() {
    for (std::size_t i = 0; i + 1 < moments_.size(); ++i)
      (i % 2 == 0 ? compute_ns : exposed_ns) += elapsed_ns(moments_[i], moments_[i + 1]);
    if (moments_.size() > 1) step_ns += elapsed_ns(moments_.front(), moments_.back());
    ++steps;
    moments_.clear();
  }

 private:
  Events events_{true};
  std::vector<cudaEvent_t> moments_;  // begin, wait, go on, wait, go on, ..., end
};

}  // namespace trainhost::cuda
