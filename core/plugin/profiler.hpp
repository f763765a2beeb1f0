// Profiling of a trainer: times of operations, and callbacks at the boundaries of step phases. The adapter
// (adapt_profiler.cpp) checks every record before it is passed on.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/base/types.hpp"

namespace trainhost::plugin {

enum class StepBoundary : std::uint32_t { kBeforeForward = 1, kAfterForward, kAfterBackward, kAfterUpdate };

/// One operation of the last step. Texts are escaped, and valid only during the call that passes the
/// record.
struct OpTiming {
  std::string_view kind, name;  // "linear", "layers.3 linear qkv"
  Phase phase = kForward;
  std::int32_t layer = -1;
  std::uint32_t micro = 0;
  std::uint64_t start_ns = 0, duration_ns = 0;  // CLOCK_MONOTONIC, as std::chrono::steady_clock
  std::uint64_t flops = 0, bytes = 0;           // bytes: read and written
  std::uint64_t live_bytes = 0;                 // from the trainer's plan; 0 = unknown
};

/// Profiles one session, which must outlive it. The destructor stops profiling. Throws PluginError.
class Profiler {
 public:
  /// Called inside step(): must not allocate, throw or call the session. `live_bytes`: planned; 0 =
  /// unknown.
  using OnBoundary = std::function<void(StepBoundary, std::uint32_t micro, std::uint64_t live_bytes)>;

  virtual ~Profiler() = default;
  /// The operations of the last step(), sorted by start time, without overlap.
  virtual void read(const std::function<void(const OpTiming&)>& receiver) = 0;
};

}  // namespace trainhost::plugin
