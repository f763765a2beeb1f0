// What a trainer that can be profiled offers beside its session: times of operations, and calls at the
// moments of a step. The adapter (adapt_profiler.cpp) checks every record before anybody sees it.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/base/types.hpp"

namespace trainhost::plugin {

enum class StepMoment : std::uint32_t { kBeforeForward = 1, kAfterForward, kAfterBackward, kAfterUpdate };

/// One operation of the last update. Texts are escaped and valid inside the call that hands the record out.
struct OpTiming {
  std::string_view kind, name;  // "linear", "layers.3 linear qkv"
  Phase phase = kForward;
  std::int32_t layer = -1;
  std::uint32_t micro = 0;
  std::uint64_t start_ns = 0, duration_ns = 0;  // CLOCK_MONOTONIC, as std::chrono::steady_clock
  std::uint64_t flops = 0, bytes = 0;           // bytes: read and written
  std::uint64_t live_bytes = 0;                 // by the trainer's plan; 0 = not known
};

/// Of one session, which outlives it. Stops when it is destroyed. Throws PluginError.
class Profiler {
 public:
  /// Called inside step(): must not allocate, throw or call the session. `live_bytes`: planned; 0 = not
  /// known.
  using Reached = std::function<void(StepMoment, std::uint32_t micro, std::uint64_t live_bytes)>;

  virtual ~Profiler() = default;
  /// The operations of the last step() in the order of their start, none overlapping.
  virtual void read(const std::function<void(const OpTiming&)>& receiver) = 0;
};

}  // namespace trainhost::plugin
