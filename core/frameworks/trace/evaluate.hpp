// What a trace needs: allocated bytes, their peak, and what is allocated at the peak. What the allocator
// reserves for it: caching_allocator.hpp.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

struct EvaluateOptions {
  std::uint64_t block =
      512;  // every size is rounded up to a multiple: 512 in CUDA's caching allocator, 1 for none
  std::size_t largest = 10;  // storages to list
};

struct Peak {
  std::uint64_t bytes = 0;
  std::uint64_t event = 0;                            // index of the allocation that reaches it
  TracePhase phase;                                   // phase of that event
  std::array<std::uint64_t, kPurposes> by_purpose{};  // bytes at the peak, by Purpose; they sum to `bytes`
  std::array<std::uint64_t, kPurposes> largest_by_purpose{};  // maxima over the step, each at its own time
  std::vector<std::uint32_t> largest;                         // storages allocated at the peak, largest first
};

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t block);

/// O(events), and O(storages) for the list of the largest. copied: the second step, which is not part of the
/// trace; its events are named by those of the first. null: none.
Peak find_peak(const Trace& trace, const EvaluateOptions& options = {}, const CopiedStep* copied = nullptr);

/// Largest sum of each phase, in the order of Trace::phases; the bytes at its start count too.
std::vector<std::uint64_t> peaks_of_phases(const Trace& trace, std::uint64_t block = 512);

/// "backward pass of micro-batch 2, when lm_head gradient of the weight is allocated"
std::string time_of(const Trace& trace, const Peak& peak);

}  // namespace trainhost::frameworks
