// Host memory of a training step that keeps tensors there: bytes of the buffers that exist during the whole
// run, as requested and as PyTorch allocates them. Not what a process has besides (libraries, data loading),
// nor what the start of a framework needs for a short time.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

/// Buffers of one name together.
struct HostBuffers {
  Purpose purpose = Purpose::kWeights;
  std::string_view name;  // a literal
  bool pinned = false;
  std::uint64_t bytes = 0;      // of the tensors
  std::uint64_t allocated = 0;  // pinned: each buffer is rounded up to a power of two
};

/// The allocator of pinned memory of torch 2.15 (CachingHostAllocator) rounds each size up to a power of two
/// unless pinned_max_round_threshold_mb is set, and keeps freed blocks for buffers of the same rounded size.
class HostMemory {
 public:
  void add(std::uint64_t bytes, Purpose purpose, std::string_view name, bool pinned);
  /// A pinned buffer that was allocated and freed: its block stays.
  void add_freed(std::uint64_t bytes);
  /// All buffers, and the freed blocks that nothing uses as an entry of 0 bytes.
  std::vector<HostBuffers> buffers() const;

 private:
  std::vector<HostBuffers> buffers_;
  std::map<std::uint64_t, std::uint64_t> free_blocks_;  // rounded size -> blocks
};

}  // namespace trainhost::frameworks
