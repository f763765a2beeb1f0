// The decisions of PyTorch's caching allocator, as DeviceCachingAllocator::malloc() and free_block() of torch
// 2.15 make them: which free block serves a request, when memory is reserved, and what is released where the
// device has none left. Segments and blocks: allocator_segments.hpp. CUDA graphs, private pools and
// record_stream() are not replayed: a block is free as soon as its storage is.
#include "core/frameworks/allocator/caching_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "core/frameworks/allocator/allocator_segments.hpp"

namespace trainhost::frameworks {
namespace {

class Allocator {
 public:
  Allocator(const AllocatorConfig& config, std::uint64_t capacity)
      : config_(config),
        capacity_(capacity ? capacity : UINT64_MAX),
        segments_(config.expandable_segments, capacity_) {}

  /// Index of the block, or kNone if the device has no memory left.
  std::uint32_t allocate(std::uint64_t bytes, Stream stream) {
    const std::uint64_t size = rounded_request(bytes, config_);
    const std::uint8_t pool = pool_of(stream, size <= kSmallSize);
    if (collects() && !is_small(pool)) ++segments_.time;
    std::uint32_t block = find_free(pool, size);
    if (block == Segments::kNone) {
      block = reserve(pool, size);
      if (block == Segments::kNone) return block;
      if (splits(segments_[block], size)) segments_.split(block, size);
    } else if (splits(segments_[block], size)) {
      block = segments_.take_front(block, size);
    } else {
      segments_.take(block);
    }
    segments_[block].used = true;
    allocated_ += segments_[block].size;
    result_.allocated = std::max(result_.allocated, allocated_);
    return block;
  }

  /// Allocates and frees at once, where that leaves the blocks as they were: part of a free block is taken,
  /// and joined with the rest again. Returns false where it would not, and does nothing. A trace has many
  /// such pairs (temporaries of kernels); this saves two changes of the lists for each.
  bool touch(std::uint64_t bytes, Stream stream) {
    if (collects()) return false;  // counts searches
    const std::uint64_t size = rounded_request(bytes, config_);
    const std::uint32_t found = find_free(pool_of(stream, size <= kSmallSize), size);
    if (found == Segments::kNone) return false;
    const Block& b = segments_[found];
    result_.allocated = std::max(result_.allocated, allocated_ + (splits(b, size) ? size : b.size));
    return true;
  }

  void release(std::uint32_t block) {
    assert(segments_[block].used);
    allocated_ -= segments_[block].size;
    segments_.make_free(block);
  }

  void fail(std::uint64_t event) {
    result_.out_of_memory = true;
    result_.failed_event = event;
  }

  AllocatorResult result() const {
    AllocatorResult r = result_;
    r.reserved = segments_.largest_reserved();
    r.reserved_at_end = segments_.reserved();
    return r;
  }

 private:
  /// Garbage collection needs a limit of memory (set_per_process_memory_fraction()), of which its threshold
  /// is a share.
  bool collects() const { return config_.garbage_collection_threshold > 0 && capacity_ != UINT64_MAX; }

  /// The free block that serves the request, get_free_block(): the smallest that is large enough. kNone where
  /// there is none.
  std::uint32_t find_free(std::uint8_t pool, std::uint64_t size) {
    std::uint32_t found = segments_.free_blocks(pool).at_least(size);
    if (found == Segments::kNone) return found;
    // A block before unmapped pages counts with the size to which it could grow, so that the end of a segment
    // is kept for large requests. Blocks are in the order of their own size: only such a block can count as
    // larger than its successor.
    while (config_.expandable_segments && segments_.growable_size(found) > segments_[found].size) {
      const std::uint32_t next = segments_.next_free(found);
      if (next == Segments::kNone || segments_.growable_size(next) >= segments_.growable_size(found)) break;
      found = next;
    }
    // Blocks of max_split_size or more serve only requests of that size, with a limited rest, because they
    // are not split: the rest is unused while the block is in use.
    const std::uint64_t bytes = segments_[found].size;
    if (size < config_.max_split_size && bytes >= config_.max_split_size) return Segments::kNone;
    if (size >= config_.max_split_size && bytes >= size + config_.max_non_split_rounding)
      return Segments::kNone;
    return found;
  }

  /// Memory that was not reserved before. Where the device has none left, cached memory is released first:
  /// oversize blocks of the pool, and if that is not enough all unused segments.
  std::uint32_t reserve(std::uint8_t pool, std::uint64_t size) {
    if (collects()) collect_garbage();
    std::uint32_t block = segments_.reserve(pool, size);
    if (block == Segments::kNone && release_oversize(pool, size)) block = segments_.reserve(pool, size);
    if (block == Segments::kNone) {
      ++result_.retries;
      segments_.release_all();
      block = segments_.reserve(pool, size);
    }
    return block;
  }

  /// should_split(): of a large segment a rest of up to 1 MiB stays with the block, because no request of the
  /// pool is that small.
  bool splits(const Block& b, std::uint64_t size) const {
    const std::uint64_t rest = b.size - size;
    if (is_small(b.pool) || config_.expandable_segments) return rest >= kMinBlock;
    return size < config_.max_split_size && rest > kSmallSize;
  }

  /// With max_split_size: frees oversize blocks, largest first, until the request could be served.
  bool release_oversize(std::uint8_t pool, std::uint64_t size) {
    if (config_.max_split_size == UINT64_MAX || config_.expandable_segments) return false;
    FreeBlocks& free = segments_.free_blocks(pool);
    const std::uint64_t wanted = std::max(size, config_.max_split_size);
    if (const std::uint32_t block = free.at_least(wanted); block != Segments::kNone) {
      segments_.release_segment(block);
      return true;
    }
    std::uint64_t released = 0;
    std::vector<std::uint32_t> blocks = free.all();
    for (; released < wanted && !blocks.empty() && segments_[blocks.back()].size >= config_.max_split_size;
         blocks.pop_back()) {
      released += segments_[blocks.back()].size;
      segments_.release_segment(blocks.back());
    }
    return released >= wanted;
  }

  std::vector<std::uint32_t> free_large_segments() const {
    std::vector<std::uint32_t> found;
    for (std::uint8_t pool = 0; pool < kPools; pool += 2)  // pool_of(): large ones are even
      for (const std::uint32_t i : segments_.free_blocks(pool).all())
        if (segments_.whole_segment(i)) found.push_back(i);
    return found;
  }

  /// Frees unused segments that are older than the average, until reserved memory is below the threshold. The
  /// age of a block is the number of searches since it became free. Like PyTorch a round does not stop in the
  /// middle, so that the next one is later.
  void collect_garbage() {
    const auto threshold =
        static_cast<std::uint64_t>(config_.garbage_collection_threshold * static_cast<double>(capacity_));
    if (segments_.reserved() <= threshold) return;
    const std::uint64_t target = segments_.reserved() - threshold;
    const auto age_of = [&](std::uint32_t i) { return segments_.time - segments_[i].since; };
    std::uint64_t freed = 0;
    bool any = true;
    while (freed < target && any) {
      std::uint64_t age = 0, count = 0;
      const std::vector<std::uint32_t> segments = free_large_segments();
      for (const std::uint32_t i : segments) age += age_of(i), ++count;
      any = false;
      for (const std::uint32_t i : segments) {
        if (age_of(i) * count < age) continue;  // younger than the average
        freed += segments_[i].size;
        segments_.release_segment(i);
        any = true;
      }
    }
  }

  const AllocatorConfig& config_;
  std::uint64_t capacity_, allocated_ = 0;
  Segments segments_;  // its time: searches in the pools of large segments
  AllocatorResult result_;
};

}  // namespace

std::uint64_t rounded_request(std::uint64_t bytes, const AllocatorConfig& config) {
  if (bytes < kMinBlock) return kMinBlock;
  const int power = 63 - std::countl_zero(bytes);
  // Entry 0 is for requests below 2 MiB, the last one for 32 GiB and more.
  const std::uint64_t divisions =
      config.roundup_power2_divisions[static_cast<std::size_t>(std::clamp(power - 20, 0, 15))];
  if (divisions > 1 && bytes > kMinBlock * divisions) {
    const std::uint64_t floor = std::uint64_t{1} << power;
    const std::uint64_t step = floor >> std::countr_zero(divisions);
    return step ? multiple(bytes, step) : floor << 1;
  }
  return multiple(bytes, kMinBlock);
}

AllocatorResult replay_allocator(const Trace& trace, const AllocatorConfig& config, std::uint64_t capacity,
                                 const CopiedStep* copied) {
  Allocator allocator(config, capacity);
  std::vector<std::uint32_t> block_of(trace.storages.size(), Segments::kNone);
  std::uint64_t event = 0;  // as if the second step were part of the trace
  // Returns false where the device has no memory left. skips: the events of a storage.
  const auto replay_from = [&](std::size_t begin, auto&& skips) {
    for (std::size_t i = begin; i < trace.events.size(); ++i) {
      const TraceEvent e = trace.events[i];
      if (skips(e.storage)) continue;
      ++event;
      if (!e.allocation) {
        if (block_of[e.storage] != Segments::kNone) allocator.release(block_of[e.storage]);
        continue;
      }
      const TraceStorage& storage = trace.storages[e.storage];
      if (storage.bytes == 0) continue;  // PyTorch asks for no memory
      const bool freed_at_once = i + 1 < trace.events.size() && trace.events[i + 1].storage == e.storage;
      if (freed_at_once && allocator.touch(storage.bytes, storage.stream)) {
        ++i, ++event;
        continue;
      }
      block_of[e.storage] = allocator.allocate(storage.bytes, storage.stream);
      if (block_of[e.storage] == Segments::kNone) return allocator.fail(event - 1), false;
    }
    return true;
  };
  // The storages of the first step that the second one has again are free by then.
  if (replay_from(0, [](std::uint32_t) { return false; }) && copied)
    replay_from(copied->from.events,
                [&](std::uint32_t storage) -> bool { return copied->kept[storage - copied->from.storages]; });
  return allocator.result();
}

}  // namespace trainhost::frameworks
