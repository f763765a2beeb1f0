// The free blocks of a memory pool in the order in which PyTorch's allocator takes them. Private to
// allocator_segments.hpp.
#pragma once
#include <array>
#include <bit>
#include <climits>
#include <cstdint>
#include <vector>

namespace trainhost::frameworks {

/// A part of a segment: in use, free, or, in a segment that can grow, addresses without memory (not mapped).
/// The blocks of a segment are a list in the order of their addresses. No two neighbours are both free and
/// mapped alike.
struct Block {
  std::uint64_t address = 0, size = 0;
  std::uint32_t previous = UINT32_MAX, next = UINT32_MAX;   // in the segment; FreeBlocks::kNone at its ends
  std::uint32_t smaller = UINT32_MAX, larger = UINT32_MAX;  // neighbours in the list of free blocks
  std::uint32_t since = 0;                                  // Segments::time when it became free
  bool used = false, mapped = true;
  bool listed = false;  // as a free block
  std::uint8_t pool = 0;
};

/// Free blocks by size, then address. Sizes are divided into ranges, 16 for each power of two. Each range has
/// a list, whose links are in the blocks, so a block leaves it without a search, and one whose size changes a
/// little mostly keeps its place. A bit for each range says whether it has blocks.
class FreeBlocks {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Blocks are named by their index in `blocks`, which outlives the list.
  FreeBlocks(std::vector<Block>& blocks, std::uint8_t pool) : blocks_(blocks), pool_(pool) {
    first_.fill(kNone);
  }

  void insert(std::uint32_t i) {
    const std::size_t r = range_of(blocks_[i].size);
    const std::uint32_t head = first_[r];
    if (head == kNone) {
      blocks_[i].smaller = blocks_[i].larger = kNone;
      blocks_[i].listed = true;
      first_[r] = recent_ = i;
      filled_[r / 64] |= bit(r);
      return;
    }
    // Blocks that become free one after the other are often neighbours in the order, of which many can have
    // one size.
    const bool near = recent_ != kNone && range_of(blocks_[recent_].size) == r;
    insert_near(i, near ? recent_ : head, r);
  }

  void erase(std::uint32_t i) {
    Block& b = blocks_[i];
    b.listed = false;
    if (b.larger != kNone) blocks_[b.larger].smaller = b.smaller;
    if (b.smaller != kNone) {
      blocks_[b.smaller].larger = b.larger;
    } else {
      const std::size_t r = range_of(b.size);
      first_[r] = b.larger;
      if (b.larger == kNone) filled_[r / 64] &= ~bit(r);
    }
    if (recent_ == i) recent_ = b.smaller != kNone ? b.smaller : b.larger;
  }

  /// The block, which is in the list, gets another address and size.
  void change(std::uint32_t i, std::uint64_t address, std::uint64_t size) {
    Block& b = blocks_[i];
    const std::size_t r = range_of(size);
    if (r == range_of(b.size)) {
      const std::uint32_t smaller = b.smaller, larger = b.larger;
      b.address = address, b.size = size;
      if (smaller != kNone && !is_before(smaller, i)) {
        erase(i);
        insert_near(i, smaller, r);
      } else if (larger != kNone && !is_before(i, larger)) {
        erase(i);
        insert_near(i, larger, r);
      }
      return;
    }
    erase(i);
    b.address = address, b.size = size;
    insert(i);
  }

  /// The smallest block of at least this size, at the lowest address; kNone where there is none.
  std::uint32_t at_least(std::uint64_t size) const {
    const std::size_t r = range_of(size);
    for (std::uint32_t i = first_[r]; i != kNone; i = blocks_[i].larger)
      if (blocks_[i].size >= size) return i;
    return first_from(r + 1);
  }
  /// The block that follows in the order; kNone behind the last.
  std::uint32_t after(std::uint32_t i) const {
    const Block& b = blocks_[i];
    return b.larger != kNone ? b.larger : first_from(range_of(b.size) + 1);
  }
  /// In the order.
  std::vector<std::uint32_t> all() const {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = first_from(0); i != kNone; i = after(i)) all.push_back(i);
    return all;
  }

 private:
  static constexpr int kUnit = 9;       // log2 of the unit of sizes, 512 bytes
  static constexpr int kDivisions = 4;  // log2 of the ranges for each power of two
  static constexpr std::size_t kRanges = std::size_t{64 - kUnit - kDivisions + 1} << kDivisions;

  /// Ascends with the size.
  static std::size_t range_of(std::uint64_t size) {
    const std::uint64_t units = size >> kUnit;
    if (units < std::uint64_t{1} << kDivisions) return static_cast<std::size_t>(units);
    const int power = 63 - std::countl_zero(units), shift = power - kDivisions;
    return static_cast<std::size_t>((std::uint64_t(shift) << kDivisions) + (units >> shift));
  }
  static std::uint64_t bit(std::size_t r) { return std::uint64_t{1} << r % 64; }

  bool is_before(std::uint32_t a, std::uint32_t b) const {
    const Block &x = blocks_[a], &y = blocks_[b];
    return x.size != y.size ? x.size < y.size : x.address < y.address;
  }

  /// `at`: a block of the range `r`, from which the place of the block is searched.
  void insert_near(std::uint32_t i, std::uint32_t at, std::size_t r) {
    constexpr int kMost = 16;
    std::uint32_t smaller = kNone, larger = kNone;
    const auto walk = [&](std::uint32_t from, int most) {
      int steps = 0;
      if (is_before(from, i)) {
        smaller = from, larger = blocks_[from].larger;
        for (; larger != kNone && is_before(larger, i); larger = blocks_[larger].larger)
          if (smaller = larger, ++steps == most) return false;
      } else {
        larger = from, smaller = blocks_[from].smaller;
        for (; smaller != kNone && is_before(i, smaller); smaller = blocks_[smaller].smaller)
          if (larger = smaller, ++steps == most) return false;
      }
      return true;
    };
    if (!walk(at, kMost)) walk(marks_of(r).nearest(*this, r, i), INT_MAX);
    blocks_[i].smaller = smaller, blocks_[i].larger = larger;
    if (larger != kNone) blocks_[larger].smaller = i;
    if (smaller != kNone)
      blocks_[smaller].larger = i;
    else
      first_[r] = i;
    blocks_[i].listed = true;
    recent_ = i;
  }

  /// Some blocks of a long list, at about equal distances when they were noted. Since then some may have left
  /// the list; a search that begins at another block takes longer, and finds the same place.
  class Marks {
   public:
    /// A block of the range `r`, near the place of `i`.
    std::uint32_t nearest(const FreeBlocks& list, std::size_t r, std::uint32_t i) {
      if (searches_++ >= blocks_.size()) note(list, r);
      std::uint32_t found = list.first_[r];
      for (std::size_t begin = 0, end = blocks_.size(); begin < end;) {
        const std::size_t middle = begin + (end - begin) / 2;
        std::size_t at = middle;
        while (at < end && !list.has(blocks_[at], r)) ++at;
        if (at == end) {
          end = middle;
        } else if (list.is_before(blocks_[at], i)) {
          found = blocks_[at], begin = at + 1;
        } else {
          end = middle;
        }
      }
      return found;
    }

   private:
    void note(const FreeBlocks& list, std::size_t r) {
      constexpr std::size_t kDistance = 8;
      blocks_.clear();
      searches_ = 0;
      std::size_t n = 0;
      for (std::uint32_t i = list.first_[r]; i != kNone; i = list.blocks_[i].larger)
        if (n++ % kDistance == 0) blocks_.push_back(i);
    }
    std::vector<std::uint32_t> blocks_;
    std::size_t searches_ = 0;  // since they were noted
  };

  bool has(std::uint32_t i, std::size_t r) const {
    return blocks_[i].listed && blocks_[i].pool == pool_ && range_of(blocks_[i].size) == r;
  }
  Marks& marks_of(std::size_t r) {
    if (marks_.empty()) marks_.resize(kRanges);
    return marks_[r];
  }

  std::uint32_t first_from(std::size_t r) const {
    std::size_t word = r / 64;
    if (word >= filled_.size()) return kNone;
    std::uint64_t bits = filled_[word] >> r % 64 << r % 64;
    while (!bits) {
      if (++word == filled_.size()) return kNone;
      bits = filled_[word];
    }
    return first_[64 * word + static_cast<std::size_t>(std::countr_zero(bits))];
  }

  std::vector<Block>& blocks_;
  std::uint8_t pool_;
  std::array<std::uint32_t, (kRanges + 63) / 64 * 64> first_;  // the smallest block of each range
  std::array<std::uint64_t, (kRanges + 63) / 64> filled_{};    // a bit for each range
  std::uint32_t recent_ = kNone;                               // the block inserted last
  std::vector<Marks> marks_;                                   // of each range; empty: no list was long
};

}  // namespace trainhost::frameworks
