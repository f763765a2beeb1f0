#include "core/frameworks/trace/host_memory.hpp"

#include <algorithm>
#include <bit>

namespace trainhost::frameworks {

void HostMemory::add(std::uint64_t bytes, Purpose purpose, std::string_view name, bool pinned) {
  if (bytes == 0) return;
  auto at = std::ranges::find_if(
      buffers_, [&](const HostBuffers& b) { return b.name == name && b.purpose == purpose; });
  if (at == buffers_.end()) at = buffers_.insert(at, {purpose, name, pinned, 0, 0});
  const std::uint64_t allocated = pinned ? std::bit_ceil(bytes) : bytes;
  at->bytes += bytes;
  at->allocated += allocated;
  if (!pinned) return;
  const auto block = free_blocks_.find(allocated);
  if (block != free_blocks_.end() && --block->second == 0) free_blocks_.erase(block);
}

void HostMemory::add_freed(std::uint64_t bytes) {
  if (bytes) ++free_blocks_[std::bit_ceil(bytes)];
}

std::vector<HostBuffers> HostMemory::buffers() const {
  std::vector<HostBuffers> all = buffers_;
  std::uint64_t unused = 0;
  for (const auto& [bytes, blocks] : free_blocks_) unused += bytes * blocks;
  if (unused) all.push_back({Purpose::kWeights, "pinned blocks that nothing uses", true, 0, unused});
  return all;
}

}  // namespace trainhost::frameworks
