// The free blocks of a memory pool in the order in which PyTorch's allocator takes them. Private to
// allocator_segments.hpp.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace trainhost::frameworks {

/// Free blocks by size, then address. Sizes are divided into ranges, 16 for each power of two; a bit for each
/// says whether it has blocks.
class FreeBlocks {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Key {
    std::uint64_t size, address;
    std::uint32_t block;
  };

  void insert(const Key& k) {
    const std::size_t r = range_of(k.size);
    std::vector<Key>& blocks = range(r);
    if (blocks.empty() || is_before(k, blocks.back()))
      blocks.push_back(k);
    else
      blocks.insert(position(blocks, k), k);
    filled_[r / 64] |= bit(r);
  }
  void erase(const Key& k) {
    const std::size_t r = range_of(k.size);
    std::vector<Key>& blocks = ranges_[r];
    if (blocks.back().block == k.block)  // as of most blocks that are taken
      blocks.pop_back();
    else
      blocks.erase(position(blocks, k));
    if (blocks.empty()) filled_[r / 64] &= ~bit(r);
  }
  /// erase() and insert(). A block from which some bytes are taken, or to which some are added, often keeps
  /// its place.
  void replace(const Key& old, const Key& k) {
    const std::size_t r = range_of(k.size);
    if (r == range_of(old.size)) {
      std::vector<Key>& blocks = ranges_[r];
      const auto at = blocks.back().block == old.block ? blocks.end() - 1 : position(blocks, old);
      if ((at == blocks.begin() || is_before(k, *(at - 1))) &&
          (at + 1 == blocks.end() || is_before(*(at + 1), k))) {
        *at = k;
        return;
      }
    }
    erase(old);
    insert(k);
  }
  /// The smallest block of at least this size, at the lowest address; kNone where there is none.
  std::uint32_t at_least(std::uint64_t size) const {
    const std::size_t r = range_of(size);
    if (filled_[r / 64] & bit(r)) {
      const std::vector<Key>& blocks = ranges_[r];
      if (blocks.back().size >= size) return blocks.back().block;
      if (blocks.front().size >= size)
        return (std::partition_point(blocks.begin(), blocks.end(),
                                     [size](const Key& k) { return k.size >= size; }) -
                1)
            ->block;
    }
    return first_from(r + 1);
  }
  /// The block that follows in the order; kNone behind the last.
  std::uint32_t after(const Key& k) const {
    const std::size_t r = range_of(k.size);
    const auto at = position(ranges_[r], k);
    return at != ranges_[r].begin() ? (at - 1)->block : first_from(r + 1);
  }
  std::vector<Key> all() const {
    std::vector<Key> keys;
    for (const std::vector<Key>& blocks : ranges_) keys.insert(keys.end(), blocks.rbegin(), blocks.rend());
    return keys;
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

  static bool is_before(const Key& a, const Key& b) {
    return a.size != b.size ? a.size < b.size : a.address < b.address;
  }

  /// The first block that is not behind `k` in the order.
  template <class Blocks>
  static auto position(Blocks& blocks, const Key& k) -> decltype(blocks.begin()) {
    return std::lower_bound(blocks.begin(), blocks.end(), k,
                            [](const Key& a, const Key& b) { return is_before(b, a); });
  }

  std::vector<Key>& range(std::size_t r) {
    if (ranges_.empty()) ranges_.resize(kRanges);
    return ranges_[r];
  }

  std::uint32_t first_from(std::size_t r) const {
    std::size_t word = r / 64;
    if (word >= filled_.size()) return kNone;
    std::uint64_t bits = filled_[word] >> r % 64 << r % 64;
    while (!bits) {
      if (++word == filled_.size()) return kNone;
      bits = filled_[word];
    }
    return ranges_[64 * word + static_cast<std::size_t>(std::countr_zero(bits))].back().block;
  }

  std::vector<std::vector<Key>> ranges_;  // descending: the block that is taken first is the last one
  std::array<std::uint64_t, (kRanges + 63) / 64> filled_{};  // a bit for each range
};

}  // namespace trainhost::frameworks
