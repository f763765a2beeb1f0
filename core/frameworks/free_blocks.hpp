// The free blocks of a memory pool in the order in which PyTorch's allocator takes them. Private to
// allocator_segments.hpp.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace trainhost::frameworks {

/// Free blocks by size, then address. A training step has few different sizes, so each has a list, which a
/// hash table finds. The lists have places in the order of their sizes, with gaps for new ones; a bit for
/// each place says whether its list has blocks.
class FreeBlocks {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Key {
    std::uint64_t size, address;
    std::uint32_t block;
    std::uint32_t list = UINT32_MAX;  // result of insert()
  };

  /// Returns the list, which erase() needs.
  std::uint32_t insert(const Key& k) {
    const std::uint32_t list = list_of(k.size);
    std::vector<Entry>& blocks = lists_[list].blocks;
    if (blocks.empty()) mark(lists_[list].place, true);
    if (blocks.empty() || k.address < blocks.back().address)
      blocks.push_back({k.address, k.block});
    else
      blocks.insert(position(blocks, k.address), {k.address, k.block});
    return list;
  }
  void erase(const Key& k) {
    std::vector<Entry>& blocks = lists_[k.list].blocks;
    if (blocks.back().block == k.block)  // as of most blocks that are taken
      blocks.pop_back();
    else
      blocks.erase(position(blocks, k.address));
    if (blocks.empty()) mark(lists_[k.list].place, false);
  }
  /// The smallest block of at least this size, at the lowest address; kNone where there is none.
  std::uint32_t at_least(std::uint64_t size) { return first_from(lists_[list_of(size)].place); }
  /// The block that follows in the order; kNone behind the last.
  std::uint32_t after(const Key& k) const {
    const List& list = lists_[k.list];
    const auto at = position(list.blocks, k.address);
    return at != list.blocks.begin() ? (at - 1)->block : first_from(list.place + 1);
  }
  std::vector<Key> all() const {
    std::vector<Key> keys;
    for (const std::uint32_t list : order_)
      for (auto e = lists_[list].blocks.rbegin(); e != lists_[list].blocks.rend(); ++e)
        keys.push_back({lists_[list].size, e->address, e->block, list});
    return keys;
  }

 private:
  struct Entry {
    std::uint64_t address;
    std::uint32_t block;
  };
  struct List {
    std::uint64_t size;
    std::uint32_t place;
    std::vector<Entry> blocks;  // by descending addresses: the block that is taken first is the last one
  };

  template <class Blocks>
  static auto position(Blocks& blocks, std::uint64_t address) -> decltype(blocks.begin()) {
    return std::lower_bound(blocks.begin(), blocks.end(), address,
                            [](const Entry& e, std::uint64_t a) { return e.address > a; });
  }

  void mark(std::uint32_t place, bool filled) {
    const auto set = [filled](std::uint64_t& word, std::size_t i) {
      const std::uint64_t bit = std::uint64_t{1} << i % 64;
      filled ? word |= bit : word &= ~bit;
    };
    std::uint64_t& word = filled_[place / 64];
    set(word, place);
    if (filled || word == 0) set(words_[place / 64 / 64], place / 64);
  }

  std::uint32_t first_from(std::uint32_t place) const {
    std::size_t word = place / 64;
    if (word >= filled_.size()) return kNone;
    std::uint64_t bits = filled_[word] >> place % 64 << place % 64;
    if (!bits) {
      std::size_t group = ++word / 64;
      if (group >= words_.size()) return kNone;
      std::uint64_t words = words_[group] >> word % 64 << word % 64;
      while (!words) {
        if (++group == words_.size()) return kNone;
        words = words_[group];
      }
      word = 64 * group + static_cast<std::size_t>(std::countr_zero(words));
      bits = filled_[word];
    }
    const std::uint32_t list = list_at_[64 * word + static_cast<std::size_t>(std::countr_zero(bits))];
    return lists_[list].blocks.back().block;
  }

  std::size_t slot_of(std::uint64_t size) const {
    std::size_t slot = (size * kHash) >> shift_;
    while (table_[slot] != kEmpty && lists_[table_[slot]].size != size) slot = (slot + 1) % table_.size();
    return slot;
  }

  std::uint32_t list_of(std::uint64_t size) {
    const std::uint32_t list = table_[slot_of(size)];
    return list != kEmpty ? list : add_list(size);
  }

  std::uint32_t add_list(std::uint64_t size) {
    const auto index = static_cast<std::uint32_t>(lists_.size());
    const auto at = std::lower_bound(order_.begin(), order_.end(), size,
                                     [&](std::uint32_t l, std::uint64_t s) { return lists_[l].size < s; });
    // In expandable segments almost every growth leaves a block of a new size: beyond some hundred lists, an
    // empty neighbour in the order becomes the list.
    if (index >= kUsualLists)
      for (const auto neighbour : {at, at == order_.begin() ? at : at - 1})
        if (neighbour != order_.end() && lists_[*neighbour].blocks.empty()) return resize(*neighbour, size);
    // Between the places of its neighbours.
    const std::uint32_t low = at == order_.begin() ? 0 : lists_[*(at - 1)].place + 1;
    const auto high = at == order_.end() ? static_cast<std::uint32_t>(list_at_.size()) : lists_[*at].place;
    order_.insert(at, index);
    lists_.push_back({size, low + (high - low) / 2, {}});
    if (low == high)
      spread();
    else
      list_at_[lists_.back().place] = index;
    if (2 * lists_.size() > table_.size()) {
      table_.assign(4 * table_.size(), kEmpty);
      shift_ -= 2;
      for (std::uint32_t i = 0; i < index; ++i) table_[slot_of(lists_[i].size)] = i;
    }
    table_[slot_of(size)] = index;
    return index;
  }

  /// Gives an empty list another size, which keeps the order.
  std::uint32_t resize(std::uint32_t list, std::uint64_t size) {
    // Entries behind the removed one move up as far as their hashes allow, so that slot_of() finds them.
    std::size_t hole = slot_of(lists_[list].size);
    for (std::size_t i = (hole + 1) % table_.size(); table_[i] != kEmpty; i = (i + 1) % table_.size()) {
      const std::size_t home = (lists_[table_[i]].size * kHash) >> shift_;
      if ((i - home) % table_.size() < (i - hole) % table_.size()) continue;
      table_[hole] = table_[i];
      hole = i;
    }
    table_[hole] = kEmpty;
    lists_[list].size = size;
    table_[slot_of(size)] = list;
    return list;
  }

  /// Gives the lists new places at equal distances.
  void spread() {
    constexpr std::uint32_t kDistance = 8;
    list_at_.assign((order_.size() + 1) * kDistance, 0);
    filled_.assign(list_at_.size() / 64 + 1, 0);
    words_.assign(filled_.size() / 64 + 1, 0);
    for (std::uint32_t i = 0; i < order_.size(); ++i) {
      List& list = lists_[order_[i]];
      list.place = i * kDistance + kDistance / 2;
      list_at_[list.place] = order_[i];
      if (!list.blocks.empty()) mark(list.place, true);
    }
  }

  static constexpr std::uint32_t kEmpty = UINT32_MAX, kUsualLists = 512;
  static constexpr std::uint64_t kHash = 0x9E3779B97F4A7C15u;
  std::vector<List> lists_;
  std::vector<std::uint32_t> order_;    // indices of lists_, ascending sizes
  std::vector<std::uint32_t> list_at_;  // of each place that is taken
  std::vector<std::uint64_t> filled_;   // a bit for each place
  std::vector<std::uint64_t> words_;    // a bit for each word of filled_
  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(256, kEmpty);
  int shift_ = 64 - 8;  // 64 - log2(table_.size())
};

}  // namespace trainhost::frameworks
