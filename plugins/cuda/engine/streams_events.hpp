// Streams and events as objects that give themselves back. Nothing here waits, except where its name says so.
#pragma once
#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
  ~Stream() {
    if (stream_) ignore(cudaStreamDestroy(stream_));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait_for_all() const { check(cudaStreamSynchronize(stream_), "waiting for the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  /// timing: its moment can be asked for, at a little more cost.
  explicit Event(bool timing) {
    check(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming),
          "creating an event");
  }
  ~Event() {
    if (event_) ignore(cudaEventDestroy(event_));
  }
  Event(Event&& o) noexcept : event_(std::exchange(o.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Events handed out one after the other, all free again after reset(); grows to the most that one step
/// needs.
class Events {
 public:
  explicit Events(bool timing) : timing_(timing) {}
  cudaEvent_t next() {
    if (used_ == events_.size()) events_.emplace_back(timing_);
    return events_[used_++];
  }
  void reset() { used_ = 0; }

 private:
  const bool timing_;
  std::vector<Event> events_;
  std::size_t used_ = 0;
};

/// Time between two recorded moments that have passed; 0 where the device does not say: nothing depends on
/// it.
inline std::uint64_t elapsed_ns(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) {
    ignore(cudaGetLastError());
    return 0;
  }
  return ms > 0 ? static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6) : 0;
}

}  // namespace trainhost::cuda
