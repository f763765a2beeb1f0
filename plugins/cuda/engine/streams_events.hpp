// RAII wrappers of CUDA streams and events. No function here blocks, except Stream::wait_for_all(). Errors
// are thrown by check() (cuda_errors.hpp); destructors ignore them.
#pragma once
#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {

class Stream {
 public:
  /// Non-blocking: work on it does not synchronise with the null stream.
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
  ~Stream() {
    if (stream_) ignore(cudaStreamDestroy(stream_));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  /// Blocks until all work queued on the stream has finished.
  void wait_for_all() const { check(cudaStreamSynchronize(stream_), "waiting for the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  /// timing: elapsed_ns() may be used with the event; recording it is then slightly more expensive.
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

/// A pool of events. next() returns events in order and creates them on first use; reset() makes all of them
/// available again. After the first step the pool has as many events as a step needs and creates no more.
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
  std::size_t used_ = 0;  // events_[0, used_) are in use
};

/// Nanoseconds between two events that have completed; 0 if the runtime returns an error, because times only
/// appear in reports.
inline std::uint64_t elapsed_ns(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) {
    ignore(cudaGetLastError());
    return 0;
  }
  return ms > 0 ? static_cast<std::uint64_t>(static_cast<double>(ms) * 1e6) : 0;
}

}  // namespace trainhost::cuda
