// A hash table from 64-bit keys to 64-bit values in one array, for merges and tries: written once, then read.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace trainhost::tokenizer {

class FlatMap {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no key and no value is this

  /// The value of a key, which is inserted with kNone if it is missing.
  std::uint64_t& operator[](std::uint64_t key) {
    assert(key != kNone);
    if ((used_ + 1) * 2 > entries_.size()) grow();
    Entry& e = entries_[slot(key)];
    if (e.key == kNone) e.key = key, ++used_;
    return e.value;
  }
  /// kNone if the key is missing.
  std::uint64_t find(std::uint64_t key) const { return entries_[slot(key)].value; }
  std::size_t size() const { return used_; }

 private:
  struct Entry {
    std::uint64_t key = kNone, value = kNone;
  };
  /// Linear probing; at most half of the entries are used, so an empty one ends every search.
  std::size_t slot(std::uint64_t key) const {
    const std::size_t mask = entries_.size() - 1;
    std::uint64_t hash = key * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    std::size_t at = static_cast<std::size_t>(hash) & mask;
    while (entries_[at].key != key && entries_[at].key != kNone) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& e : old)
      if (e.key != kNone) entries_[slot(e.key)] = e;
  }
  std::vector<Entry> entries_ = std::vector<Entry>(16);
  std::size_t used_ = 0;
};

/// Texts with a number each, by their bytes. Finds the texts with which another text starts.
class Trie {
 public:
  /// A text that is added again gets the new value. `value` >= 0.
  void add(std::string_view text, std::int32_t value) {
    std::uint64_t node = 0;
    for (char c : text) {
      std::uint64_t& child = children_[key(node, c)];
      if (child == FlatMap::kNone) {
        child = values_.size();
        values_.push_back(-1);
      }
      node = child;
    }
    values_[node] = value;
    if (!text.empty()) first_[static_cast<unsigned char>(text[0])] = true;
  }
  /// True if a text in the trie starts with this byte.
  bool starts(char c) const { return first_[static_cast<unsigned char>(c)]; }
  /// Calls take(length, value) for every added text with which `text` starts, the shortest first.
  template <typename Take>
  void prefixes(std::string_view text, Take&& take) const {
    std::uint64_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = children_.find(key(node, text[i]));
      if (node == FlatMap::kNone) return;
      if (values_[node] >= 0) take(i + 1, values_[node]);
    }
  }

 private:
  static std::uint64_t key(std::uint64_t node, char c) { return node << 8 | static_cast<unsigned char>(c); }
  FlatMap children_;
  std::vector<std::int32_t> values_{-1};
  bool first_[256] = {};
};

}  // namespace trainhost::tokenizer
