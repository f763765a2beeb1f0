// A replay of PyTorch's CUDA caching allocator (c10::cuda::CUDACachingAllocator): which segments the
// allocations of a trace reserve on the device. No memory is allocated; streams are known, CUDA graphs are
// not. Its segments and blocks: allocator_segments.hpp.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

/// PYTORCH_CUDA_ALLOC_CONF, as far as it changes memory.
struct AllocatorConfig {
  bool expandable_segments = false;
  std::uint64_t max_split_size = UINT64_MAX;         // bytes; blocks of this size or more are not split
  std::uint64_t max_non_split_rounding = 20u << 20;  // bytes by which such a block may exceed a request
  double garbage_collection_threshold = 0;           // share of the capacity; 0: off
  /// Divisions between two powers of two for requests of 1 MiB, 2 MiB, ... 32 GiB; 0 or 1: multiples of 512
  /// bytes.
  std::array<std::uint32_t, 16> roundup_power2_divisions{};
  bool operator==(const AllocatorConfig&) const = default;
};

/// "expandable_segments:True,max_split_size_mb:128". Keys without effect on memory are accepted. Throws
/// usage_error that names the key and its valid values.
AllocatorConfig parse_allocator_config(std::string_view text);

struct AllocatorResult {
  std::uint64_t reserved = 0;   // peak of the bytes in segments (torch.cuda.max_memory_reserved)
  std::uint64_t allocated = 0;  // peak of the bytes in blocks in use (torch.cuda.max_memory_allocated)
  std::uint64_t reserved_at_end = 0;
  std::uint32_t retries = 0;   // times that cached segments were released because the capacity was reached
  bool out_of_memory = false;  // at `failed_event`; the replay stops there
  std::uint64_t failed_event = 0;
};

/// Requests of up to 1 MiB are served from segments of 2 MiB, requests below 10 MiB from segments of 20 MiB,
/// larger ones from segments of their own size, rounded up to 2 MiB. Each stream has segments of its own. The
/// smallest free block that is large enough is taken (lowest address first) and split where the rules allow
/// it; a freed block is merged with its free neighbours. Segments stay reserved until the device has no
/// memory left. New segments have ascending addresses.
///
/// capacity: bytes that the device has for segments; 0: no limit. copied: the second step, which is not part
/// of the trace; null: none.
AllocatorResult replay_allocator(const Trace& trace, const AllocatorConfig& config = {},
                                 std::uint64_t capacity = 0, const CopiedStep* copied = nullptr);

/// Bytes that the allocator gives for a request: multiples of 512, or a division of a power of two.
std::uint64_t rounded_request(std::uint64_t bytes, const AllocatorConfig& config);

}  // namespace trainhost::frameworks
