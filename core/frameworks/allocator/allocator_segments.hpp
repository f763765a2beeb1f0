// The segments of a caching allocator and the blocks in them: how a segment is reserved, how blocks are split
// and merged, and how unused memory goes back to the device. Which block serves a request is decided in
// caching_allocator.cpp. Private to that file.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/frameworks/allocator/free_blocks.hpp"
#include "core/frameworks/trace/trace.hpp"

namespace trainhost::frameworks {

/// Sizes of PyTorch's allocator, in bytes.
inline constexpr std::uint64_t kMinBlock = 512, kSmallSize = 1u << 20, kSmallBuffer = 2u << 20,
                               kLargeBuffer = 20u << 20, kMinLargeAlloc = 10u << 20, kRoundLarge = 2u << 20;

constexpr std::uint64_t multiple(std::uint64_t n, std::uint64_t of) { return (n + of - 1) / of * of; }

/// Blocks of one stream: of small segments, which serve requests of up to kSmallSize, or of large ones.
inline constexpr std::uint8_t kPools = 2 * kStreams;
constexpr bool is_small(std::uint8_t pool) { return pool % 2 == 1; }
constexpr std::uint8_t pool_of(Stream stream, bool small) {
  return static_cast<std::uint8_t>(2 * static_cast<unsigned>(stream) + (small ? 1 : 0));
}

/// Blocks are named by their index, which is reused after a block has been merged or released.
class Segments {
 public:
  static constexpr std::uint32_t kNone = FreeBlocks::kNone;

  /// expandable: a segment is an address range that grows, instead of one allocation of the device.
  /// capacity: bytes that the device has.
  Segments(bool expandable, std::uint64_t capacity) : expandable_(expandable), capacity_(capacity) {
    free_.reserve(kPools);
    for (std::uint8_t pool = 0; pool < kPools; ++pool) free_.emplace_back(blocks_, pool);
  }
  Segments(const Segments&) = delete;  // lists of free blocks refer to blocks_
  Segments& operator=(const Segments&) = delete;

  Block& operator[](std::uint32_t i) { return blocks_[i]; }
  const Block& operator[](std::uint32_t i) const { return blocks_[i]; }
  FreeBlocks& free_blocks(std::uint8_t pool) { return free_[pool]; }
  const FreeBlocks& free_blocks(std::uint8_t pool) const { return free_[pool]; }

  /// A block of at least `size` bytes from memory that was not reserved before: a new segment, or more pages
  /// of one that can grow. In no list of free blocks. kNone if the device has too little memory left.
  std::uint32_t reserve(std::uint8_t pool, std::uint64_t size);
  /// Cuts the block, which is in no list, to `size` bytes; the rest becomes a free block behind it.
  void split(std::uint32_t i, std::uint64_t size);
  /// Makes the first `size` bytes of a free block a block of their own, which is in no list. The rest stays
  /// in the list.
  std::uint32_t take_front(std::uint32_t i, std::uint64_t size);
  /// A block that is no longer in use: merges it with its free neighbours.
  void make_free(std::uint32_t i);
  /// Removes a block from the list of free blocks, to be used or released.
  void take(std::uint32_t i) { free_[blocks_[i].pool].erase(i); }

  /// The free block of the pool that follows in the order of sizes and addresses; kNone behind the last.
  std::uint32_t next_free(std::uint32_t i) const { return free_[blocks_[i].pool].after(i); }

  /// Whether the block is a segment of its own, so that it can go back to the device.
  bool whole_segment(std::uint32_t i) const {
    return blocks_[i].previous == kNone && blocks_[i].next == kNone;
  }
  /// Returns the memory of a free block to the device: a whole segment.
  void release_segment(std::uint32_t i);
  /// Returns all segments, or pages of segments that can grow, that no block uses.
  void release_all();

  /// Size up to which a free block of a segment that can grow could be extended.
  std::uint64_t growable_size(std::uint32_t i) const {
    const Block& b = blocks_[i];
    return b.size + (b.next != kNone && !blocks_[b.next].mapped ? blocks_[b.next].size : 0);
  }
  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t largest_reserved() const { return largest_reserved_; }

  /// Stamps blocks that become free; counted by the owner.
  std::uint32_t time = 0;

 private:
  /// Distance between the address ranges of two segments that can grow. PyTorch reserves 1.125 times the
  /// memory of the device for each; with 1 EiB no request meets the end of a segment, so a pool has one, and
  /// the start of a segment follows from any address in it.
  static constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 60;
  static_assert(kPools + 1 < 16, "the addresses of all pools fit into 64 bits");

  std::uint32_t add(const Block& b);
  std::uint32_t add_segment(std::uint8_t pool, std::uint64_t bytes, bool mapped);
  void add_free(std::uint32_t i);
  std::uint32_t cut(std::uint32_t i, std::uint64_t size);
  bool joins(std::uint32_t i) const { return i != kNone && !blocks_[i].used && blocks_[i].mapped; }
  void join(std::uint32_t i, bool before);
  std::uint32_t merged(std::uint32_t i);
  void set_reserved(std::uint64_t bytes);
  std::uint32_t grow(std::uint8_t pool, std::uint64_t size);
  std::uint32_t find_growable(std::uint8_t pool, std::uint64_t size);
  std::uint32_t map_pages(std::uint32_t i, std::uint64_t size);
  void unmap_pages(std::uint32_t i);

  bool expandable_;
  std::uint64_t capacity_, reserved_ = 0, largest_reserved_ = 0;
  std::uint64_t next_address_ = kAddressSpace;  // segments are never placed where an earlier one was
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> spare_;                         // unused indices of blocks_
  std::vector<FreeBlocks> free_;                             // of each pool
  std::array<std::vector<std::uint32_t>, kPools> unmapped_;  // of segments that can grow, by address
};

}  // namespace trainhost::frameworks
