// The replay of one step: its peak, and what the caching allocator reserves for it, each calculated when it
// is first asked for and then kept. Searches and advice ask for one step under many budgets. Which rank or
// stage of a run is replayed: largest_replay.cpp. What is made of it: report.cpp.
#pragma once
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/frameworks/training_step.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::pytorch {

/// What does not depend on the budget. Each part is calculated when it is first asked for: of a variation
/// that does not fit, the caller needs the bytes of the peak only.
class Replay {
 public:
  /// limit: where the step allocates more bytes, only that is known about it.
  Replay(const model::Architecture& a, const frameworks::StepSettings& s,
         const frameworks::AllocatorConfig& c, std::uint64_t limit)
      : architecture(a),
        settings(s),
        allocator(c),
        step_(std::make_unique<frameworks::CalculatedStep>(a, s, limit)),
        host_(step_->host().buffers()),
        complete_(step_->complete()),
        peak_bytes(step_->peak_bytes()) {}

  model::Architecture architecture;
  frameworks::StepSettings settings;
  frameworks::AllocatorConfig allocator;

 private:
  mutable std::unique_ptr<frameworks::CalculatedStep> step_;
  std::vector<frameworks::HostBuffers> host_;
  bool complete_;

 public:
  const std::uint64_t peak_bytes;  // at least, if the step is not complete
  bool answers(std::uint64_t limit) const { return complete_ || peak_bytes > limit; }
  /// Keeps the results alone, unless trace() was asked for. The step is calculated again where more is.
  void forget_step() const {
    const std::lock_guard guard(step_lock_);
    if (!shows_trace_) step_.reset();
  }
  const frameworks::Trace& trace() const {
    const std::lock_guard guard(step_lock_);
    shows_trace_ = true;
    return step().trace();
  }
  const std::vector<frameworks::HostBuffers>& host() const { return host_; }
  const frameworks::Peak& peak() const {
    std::call_once(peak_once_, [this] {
      const std::lock_guard guard(step_lock_);
      peak_ = step().peak();
    });
    return peak_;
  }
  /// By an allocator without a limit.
  std::uint64_t reserved() const {
    std::call_once(reserved_once_, [this] {
      reserved_ = replayed(allocator, 0).reserved;
      knows_reserved_ = true;
    });
    return reserved_;
  }
  bool knows_reserved() const { return knows_reserved_; }
  /// By another allocator; capacity: bytes of the device, 0: without a limit.
  frameworks::AllocatorResult replayed(const frameworks::AllocatorConfig& config,
                                       std::uint64_t capacity) const {
    const std::lock_guard guard(step_lock_);
    return step().replay(config, capacity);
  }
  /// On a device with `capacity` bytes for it. Planners ask again for the same device.
  frameworks::AllocatorResult limited(std::uint64_t capacity) const {
    const std::lock_guard guard(limited_lock_);
    const auto found = std::ranges::find(limited_, capacity, &Limited::first);
    if (found != limited_.end()) return found->second;
    limited_.emplace_back(capacity, replayed(allocator, capacity));
    const frameworks::AllocatorResult& made = limited_.back().second;
    // An allocator that never reaches its limit is like one without. What max_split_size releases at the
    // limit is not counted as a retry.
    const bool as_unlimited = !made.out_of_memory && !made.retries &&
                              allocator.garbage_collection_threshold == 0 &&
                              allocator.max_split_size == UINT64_MAX;
    if (as_unlimited)
      std::call_once(reserved_once_, [&] {
        reserved_ = made.reserved;
        knows_reserved_ = true;
      });
    return made;
  }

 private:
  frameworks::CalculatedStep& step() const {
    assert(complete_);
    if (!step_) step_ = std::make_unique<frameworks::CalculatedStep>(architecture, settings);
    return *step_;
  }
  using Limited = std::pair<std::uint64_t, frameworks::AllocatorResult>;  // capacity, result
  mutable std::once_flag peak_once_, reserved_once_;
  mutable std::mutex limited_lock_, step_lock_;
  mutable bool shows_trace_ = false;
  mutable std::vector<Limited> limited_;
  mutable frameworks::Peak peak_;
  mutable std::uint64_t reserved_ = 0;
  mutable std::atomic<bool> knows_reserved_ = false;
};

using ReplayPointer = std::shared_ptr<const Replay>;

/// The kept replay of the step, or a new one. Advice about other devices asks for the same run again. limit:
/// as of Replay().
ReplayPointer replay(const model::Architecture& architecture, const frameworks::StepSettings& settings,
                     const frameworks::AllocatorConfig& allocator, std::uint64_t limit);

}  // namespace trainhost::pytorch
