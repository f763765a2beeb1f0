#include "core/frameworks/caching_allocator.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "core/frameworks/free_blocks.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kMinBlock = 512, kSmallSize = kMiB, kSmallBuffer = 2 * kMiB, kLargeBuffer = 20 * kMiB,
                        kMinLargeAlloc = 10 * kMiB, kRoundLarge = 2 * kMiB;
constexpr std::uint32_t kNone = UINT32_MAX;
/// Distance between the address ranges of two segments that can grow.
constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 44;

std::uint64_t multiple(std::uint64_t n, std::uint64_t of) { return (n + of - 1) / of * of; }

struct Block {
  std::uint64_t address = 0, size = 0;
  std::uint32_t previous = kNone, next = kNone;  // in the segment
  std::uint64_t since = 0;                       // searches before it became free
  std::uint32_t list = kNone;                    // of FreeBlocks
  bool used = false, mapped = true;
  std::uint8_t pool = 0;
};

/// Free blocks of one stream, of small or of large segments.
struct Pool {
  FreeBlocks free;
  std::vector<std::uint32_t> unmapped;  // of segments that can grow, by address
};

constexpr std::uint8_t kPools = 2 * kStreams;
constexpr bool is_small(std::uint8_t pool) { return pool % 2 == 1; }
constexpr std::uint8_t pool_of(Stream stream, bool small) {
  return static_cast<std::uint8_t>(2 * static_cast<unsigned>(stream) + (small ? 1 : 0));
}

class Allocator {
 public:
  Allocator(const AllocatorConfig& config, std::uint64_t capacity)
      : config_(config), capacity_(capacity ? capacity : UINT64_MAX) {}

  /// Index of the block, or kNone if the device has no memory left.
  std::uint32_t allocate(std::uint64_t bytes, Stream stream) {
    const std::uint64_t size = rounded_request(bytes, config_);
    const std::uint8_t pool = pool_of(stream, size <= kSmallSize);
    std::uint32_t block = take_free(pool, size);
    if (block == kNone) {
      if (collects()) collect_garbage();
      block = new_block(pool, size);
      if (block == kNone && release_oversize(pool, size)) block = new_block(pool, size);
      if (block == kNone) {
        ++result.retries;
        release_all();
        block = new_block(pool, size);
      }
      if (block == kNone) return kNone;
    }
    if (splits(blocks_[block], size)) split(block, size);
    blocks_[block].used = true;
    allocated_ += blocks_[block].size;
    result.allocated = std::max(result.allocated, allocated_);
    return block;
  }

  /// Allocates and frees at once, where that leaves the blocks as they were: part of a free block is taken,
  /// and joined with the rest again. Returns false where it would not, and does nothing.
  bool touch(std::uint64_t bytes, Stream stream) {
    if (collects()) return false;  // counts searches
    const std::uint64_t size = rounded_request(bytes, config_);
    const auto found = find_free(pool_of(stream, size <= kSmallSize), size);
    if (!found) return false;
    result.allocated =
        std::max(result.allocated, allocated_ + (splits(blocks_[found->block], size) ? size : found->size));
    return true;
  }

  void release(std::uint32_t index) {
    blocks_[index].used = false;
    allocated_ -= blocks_[index].size;
    index = merged(index);
    make_free(index);
  }

  std::uint64_t reserved() const { return reserved_; }
  AllocatorResult result;

 private:
  bool collects() const { return config_.garbage_collection_threshold > 0 && capacity_ != UINT64_MAX; }
  FreeBlocks::Key key(std::uint32_t i) const {
    return {blocks_[i].size, blocks_[i].address, i, blocks_[i].list};
  }

  void make_free(std::uint32_t i) {
    blocks_[i].since = searches_;
    blocks_[i].list = pools_[blocks_[i].pool].free.insert(key(i));
  }

  std::uint32_t add(const Block& b) {
    if (!spare_.empty()) {
      const std::uint32_t i = spare_.back();
      spare_.pop_back();
      blocks_[i] = b;
      return i;
    }
    blocks_.push_back(b);
    return static_cast<std::uint32_t>(blocks_.size() - 1);
  }

  void set_reserved(std::uint64_t bytes) {
    reserved_ = bytes;
    result.reserved = std::max(result.reserved, reserved_);
  }

  /// Size up to which a free block of a segment that can grow could be extended.
  std::uint64_t growable_size(std::uint32_t i) const {
    const Block& b = blocks_[i];
    return b.size + (b.next != kNone && !blocks_[b.next].mapped ? blocks_[b.next].size : 0);
  }

  /// The free block that serves the request.
  std::optional<FreeBlocks::Key> find_free(std::uint8_t pool, std::uint64_t size) {
    FreeBlocks& free = pools_[pool].free;
    std::optional<FreeBlocks::Key> it = free.at_least(size);
    if (!it) return it;
    // Blocks are in the order of their size: only one before unmapped pages can be larger than its successor.
    while (config_.expandable_segments && growable_size(it->block) > it->size) {
      const auto next = free.after(*it);
      if (!next || growable_size(next->block) >= growable_size(it->block)) break;
      it = next;
    }
    if (size < config_.max_split_size && it->size >= config_.max_split_size) return std::nullopt;
    if (size >= config_.max_split_size && it->size >= size + config_.max_non_split_rounding)
      return std::nullopt;
    return it;
  }

  std::uint32_t take_free(std::uint8_t pool, std::uint64_t size) {
    if (collects() && !is_small(pool)) ++searches_;
    const std::optional<FreeBlocks::Key> found = find_free(pool, size);
    if (!found) return kNone;
    pools_[pool].free.erase(*found);
    return found->block;
  }

  bool splits(const Block& b, std::uint64_t size) const {
    const std::uint64_t rest = b.size - size;
    if (is_small(b.pool) || config_.expandable_segments) return rest >= kMinBlock;
    return size < config_.max_split_size && rest > kSmallSize;
  }

  void split(std::uint32_t index, std::uint64_t size) {
    Block rest = blocks_[index];
    rest.address += size;
    rest.size -= size;
    rest.previous = index;
    rest.used = false;
    const std::uint32_t i = add(rest);
    if (rest.next != kNone) blocks_[rest.next].previous = i;
    blocks_[index].next = i;
    blocks_[index].size = size;
    make_free(i);
  }

  /// Joins free neighbours that are mapped like it.
  std::uint32_t merged(std::uint32_t index) {
    for (const bool before : {true, false}) {
      Block& b = blocks_[index];
      const std::uint32_t other = before ? b.previous : b.next;
      if (other == kNone || blocks_[other].used || blocks_[other].mapped != b.mapped) continue;
      Block& o = blocks_[other];
      if (o.mapped)
        pools_[o.pool].free.erase(key(other));
      else
        std::erase(pools_[o.pool].unmapped, other);
      if (before) {
        b.address = o.address;
        b.previous = o.previous;
        if (b.previous != kNone) blocks_[b.previous].next = index;
      } else {
        b.next = o.next;
        if (b.next != kNone) blocks_[b.next].previous = index;
      }
      b.size += o.size;
      spare_.push_back(other);
    }
    return index;
  }

  std::uint32_t new_block(std::uint8_t pool, std::uint64_t size) {
    if (config_.expandable_segments) return grow(pool, size);
    const std::uint64_t bytes = size <= kSmallSize      ? kSmallBuffer
                                : size < kMinLargeAlloc ? kLargeBuffer
                                                        : multiple(size, kRoundLarge);
    if (bytes > capacity_ - reserved_) return kNone;
    Block b;
    b.address = next_address_;
    b.size = bytes;
    b.pool = pool;
    next_address_ += bytes;
    set_reserved(reserved_ + bytes);
    return add(b);
  }

  /// Free or unmapped block from which at least `size` bytes of one segment follow that are not in use.
  std::uint32_t find_growable(std::uint8_t pool, std::uint64_t size) {
    for (const std::uint32_t unmapped : pools_[pool].unmapped) {
      const std::uint32_t before = blocks_[unmapped].previous;
      const std::uint32_t first = before != kNone && !blocks_[before].used ? before : unmapped;
      std::uint64_t bytes = 0;
      for (std::uint32_t i = first; i != kNone && !blocks_[i].used && bytes < size; i = blocks_[i].next)
        bytes += blocks_[i].size;
      if (bytes >= size) return first;
    }
    Block b;
    b.address = next_address_;
    b.size = kAddressSpace;
    b.pool = pool;
    b.mapped = false;
    next_address_ += kAddressSpace;
    const std::uint32_t i = add(b);
    pools_[pool].unmapped.push_back(i);
    return i;
  }

  /// Maps pages of the unmapped block from its start until `size` bytes are covered, and joins them with the
  /// free block before them. Returns kNone if the device has no memory left.
  std::uint32_t map_pages(std::uint32_t index, std::uint64_t size) {
    const std::uint8_t pool = blocks_[index].pool;
    const std::uint64_t bytes =
        std::min(multiple(size, is_small(pool) ? kSmallBuffer : kLargeBuffer), blocks_[index].size);
    if (bytes > capacity_ - reserved_) return kNone;
    std::vector<std::uint32_t>& unmapped = pools_[pool].unmapped;
    const auto at = std::find(unmapped.begin(), unmapped.end(), index);
    if (blocks_[index].size > bytes) {
      Block rest = blocks_[index];
      rest.address += bytes;
      rest.size -= bytes;
      rest.previous = index;
      const std::uint32_t i = add(rest);
      if (rest.next != kNone) blocks_[rest.next].previous = i;
      blocks_[index].next = i;
      blocks_[index].size = bytes;
      *at = i;
    } else {
      unmapped.erase(at);
    }
    blocks_[index].mapped = true;
    set_reserved(reserved_ + bytes);
    index = merged(index);
    make_free(index);
    return index;
  }

  std::uint32_t grow(std::uint8_t pool, std::uint64_t size) {
    std::uint32_t block = find_growable(pool, size);
    if (!blocks_[block].mapped) block = map_pages(block, std::min(size, blocks_[block].size));
    while (block != kNone && blocks_[block].size < size) {
      const std::uint32_t next = blocks_[block].next;
      block = map_pages(next, std::min(size - blocks_[block].size, blocks_[next].size));
    }
    if (block != kNone) pools_[pool].free.erase(key(block));
    return block;
  }

  /// Returns a segment that is free as a whole to the device.
  void release_segment(std::uint32_t i) {
    pools_[blocks_[i].pool].free.erase(key(i));
    reserved_ -= blocks_[i].size;
    spare_.push_back(i);
  }

  bool whole_segment(std::uint32_t i) const {
    return blocks_[i].previous == kNone && blocks_[i].next == kNone;
  }

  /// With max_split_size: frees oversize blocks, largest first, until the request could be served.
  bool release_oversize(std::uint8_t pool, std::uint64_t size) {
    if (config_.max_split_size == UINT64_MAX || config_.expandable_segments) return false;
    FreeBlocks& free = pools_[pool].free;
    const std::uint64_t wanted = std::max(size, config_.max_split_size);
    if (const auto it = free.at_least(wanted)) {
      release_segment(it->block);
      return true;
    }
    std::uint64_t released = 0;
    std::vector<FreeBlocks::Key> blocks = free.all();
    for (; released < wanted && !blocks.empty() && blocks.back().size >= config_.max_split_size;
         blocks.pop_back()) {
      released += blocks.back().size;
      release_segment(blocks.back().block);
    }
    return released >= wanted;
  }

  void release_all() {
    for (Pool& pool : pools_) {
      for (const FreeBlocks::Key& k : pool.free.all()) {
        const std::uint32_t i = k.block;
        if (config_.expandable_segments)
          unmap_pages(i);
        else if (whole_segment(i))
          release_segment(i);
      }
    }
  }

  /// Returns the whole pages of a free block to the device.
  void unmap_pages(std::uint32_t i) {
    Pool& pool = pools_[blocks_[i].pool];
    const std::uint64_t page = is_small(blocks_[i].pool) ? kSmallBuffer : kLargeBuffer;
    const std::uint64_t base = blocks_[i].address / kAddressSpace * kAddressSpace;
    const std::uint64_t begin = base + multiple(blocks_[i].address - base, page);
    const std::uint64_t end = base + (blocks_[i].address + blocks_[i].size - base) / page * page;
    if (begin >= end) return;
    pool.free.erase(key(i));
    if (const std::uint64_t before = begin - blocks_[i].address) {
      split(i, before);  // makes the rest free
      make_free(i);
      i = blocks_[i].next;
      pool.free.erase(key(i));
    }
    if (blocks_[i].address + blocks_[i].size > end) split(i, end - blocks_[i].address);
    reserved_ -= blocks_[i].size;
    blocks_[i].mapped = false;
    i = merged(i);
    std::vector<std::uint32_t>& unmapped = pool.unmapped;
    unmapped.insert(std::upper_bound(unmapped.begin(), unmapped.end(), i,
                                     [&](std::uint32_t a, std::uint32_t b) {
                                       return blocks_[a].address < blocks_[b].address;
                                     }),
                    i);
  }

  std::vector<std::uint32_t> free_large_segments() const {
    std::vector<std::uint32_t> found;
    for (std::uint8_t pool = 0; pool < kPools; pool += 2)
      for (const FreeBlocks::Key& k : pools_[pool].free.all())
        if (whole_segment(k.block)) found.push_back(k.block);
    return found;
  }

  /// Frees unused segments that are older than the average, until reserved memory is below the threshold.
  void collect_garbage() {
    const auto threshold =
        static_cast<std::uint64_t>(config_.garbage_collection_threshold * static_cast<double>(capacity_));
    if (reserved_ <= threshold) return;
    std::uint64_t target = reserved_ - threshold, freed = 0;
    bool any = true;
    while (freed < target && any) {
      std::uint64_t age = 0, count = 0;
      const std::vector<std::uint32_t> segments = free_large_segments();
      for (const std::uint32_t i : segments) age += searches_ - blocks_[i].since, ++count;
      any = false;
      std::vector<std::uint32_t> old;
      for (const std::uint32_t i : segments)
        if ((searches_ - blocks_[i].since) * count >= age) old.push_back(i);
      for (const std::uint32_t i : old) {
        freed += blocks_[i].size;
        release_segment(i);
        any = true;
      }
    }
  }

  const AllocatorConfig& config_;
  std::uint64_t capacity_, reserved_ = 0, allocated_ = 0, next_address_ = kAddressSpace;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> spare_;  // unused indices of blocks_
  std::array<Pool, kPools> pools_;
  std::uint64_t searches_ = 0;  // of the pools of large segments
};

}  // namespace

std::uint64_t rounded_request(std::uint64_t bytes, const AllocatorConfig& config) {
  if (bytes < kMinBlock) return kMinBlock;
  const int power = 63 - std::countl_zero(bytes);
  const std::uint64_t divisions =
      config.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(power - 20, 0, 15))];
  if (divisions > 1 && bytes > kMinBlock * divisions) {
    const std::uint64_t floor = std::uint64_t{1} << power;
    const std::uint64_t step = floor >> std::countr_zero(divisions);
    return step ? multiple(bytes, step) : floor << 1;
  }
  return multiple(bytes, kMinBlock);
}

AllocatorResult replay_allocator(const Trace& trace, const AllocatorConfig& config, std::uint64_t capacity) {
  Allocator allocator(config, capacity);
  std::vector<std::uint32_t> block_of(trace.storages.size(), kNone);
  for (std::uint64_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent e = trace.events[i];
    if (trace.storages[e.storage].bytes == 0) continue;  // PyTorch asks for no memory
    if (!e.allocation) {
      allocator.release(block_of[e.storage]);
      continue;
    }
    const TraceStorage& storage = trace.storages[e.storage];
    const bool freed_at_once = i + 1 < trace.events.size() && trace.events[i + 1].storage == e.storage;
    if (freed_at_once && allocator.touch(storage.bytes, storage.stream)) {
      ++i;
      continue;
    }
    block_of[e.storage] = allocator.allocate(storage.bytes, storage.stream);
    if (block_of[e.storage] == kNone) {
      allocator.result.out_of_memory = true;
      allocator.result.failed_event = i;
      break;
    }
  }
  allocator.result.reserved_at_end = allocator.reserved();
  return allocator.result;
}

}  // namespace trainhost::frameworks
