// The free blocks of a memory pool in the order in which PyTorch's allocator takes them. Private to
// caching_allocator.cpp.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace trainhost::frameworks {

/// Free blocks by size, then address. A training step has few different sizes, so each has a list.
class FreeBlocks {
 public:
  struct Key {
    std::uint64_t size, address;
    std::uint32_t block;
  };

  void insert(const Key& k) {
    auto of_size = lower_bound(k.size);
    if (of_size == sizes_.end() || of_size->size != k.size) {
      of_size = sizes_.insert(of_size, {k.size, static_cast<std::uint32_t>(lists_.size())});
      lists_.emplace_back();
    }
    std::vector<Entry>& blocks = lists_[of_size->list];
    blocks.insert(position(blocks, k.address), {k.address, k.block});
  }
  void erase(const Key& k) {
    std::vector<Entry>& blocks = lists_[lower_bound(k.size)->list];
    blocks.erase(position(blocks, k.address));
  }
  /// The smallest block of at least this size, at the lowest address.
  std::optional<Key> at_least(std::uint64_t size) const { return first_from(lower_bound(size)); }
  /// The block that follows in the order.
  std::optional<Key> after(const Key& k) const {
    auto of_size = lower_bound(k.size);
    const std::vector<Entry>& blocks = lists_[of_size->list];
    const auto next = position(blocks, k.address) + 1;
    if (next != blocks.end()) return Key{k.size, next->address, next->block};
    return first_from(++of_size);
  }
  std::vector<Key> all() const {
    std::vector<Key> keys;
    for (const Size& s : sizes_)
      for (const Entry& e : lists_[s.list]) keys.push_back({s.size, e.address, e.block});
    return keys;
  }

 private:
  struct Entry {
    std::uint64_t address;
    std::uint32_t block;
  };
  struct Size {
    std::uint64_t size;
    std::uint32_t list;  // index of lists_; the list may be empty
  };

  std::vector<Size>::const_iterator lower_bound(std::uint64_t size) const {
    return std::lower_bound(sizes_.begin(), sizes_.end(), size,
                            [](const Size& s, std::uint64_t least) { return s.size < least; });
  }
  template <class Blocks>
  static auto position(Blocks& blocks, std::uint64_t address) -> decltype(blocks.begin()) {
    return std::lower_bound(blocks.begin(), blocks.end(), address,
                            [](const Entry& e, std::uint64_t a) { return e.address < a; });
  }
  std::optional<Key> first_from(std::vector<Size>::const_iterator s) const {
    while (s != sizes_.end() && lists_[s->list].empty()) ++s;
    if (s == sizes_.end()) return std::nullopt;
    const Entry& first = lists_[s->list].front();
    return Key{s->size, first.address, first.block};
  }

  std::vector<Size> sizes_;  // ascending
  std::vector<std::vector<Entry>> lists_;
};

}  // namespace trainhost::frameworks
