// The ids of words that were encoded before: a table of fixed size per thread, in which a word replaces the
// one that had its place.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace trainhost::tokenizer {

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 22, kMaxIds = 10;  // longer words are not kept

  /// The cache of this thread for the model with this number; it is emptied when the model changes.
  static WordCache& of(std::uint64_t model) {
    static thread_local WordCache cache;
    if (cache.model_ != model) {
      cache.entries_.assign(kEntries, Entry{});
      cache.model_ = model;
    }
    return cache;
  }

  /// Appends the ids of the word if it is known. `word` has 1 to kMaxBytes bytes.
  bool find(std::string_view word, std::vector<std::int32_t>& ids) {
    Entry& e = place(word);
    if (e.length != word.size() || std::memcmp(e.word, word.data(), word.size()) != 0) return false;
    ids.insert(ids.end(), e.ids, e.ids + e.count);
    return true;
  }
  void keep(std::string_view word, const std::int32_t* ids, std::size_t count) {
    if (count > kMaxIds) return;
    Entry& e = place(word);
    e.length = static_cast<std::uint8_t>(word.size());
    e.count = static_cast<std::uint8_t>(count);
    std::memcpy(e.word, word.data(), word.size());
    if (count > 0) std::memcpy(e.ids, ids, count * sizeof *ids);
  }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << 16;  // 4 MiB
  struct alignas(64) Entry {
    std::uint8_t length = 0, count = 0;
    char word[kMaxBytes] = {};
    std::int32_t ids[kMaxIds] = {};
  };
  static_assert(sizeof(Entry) == 64);

  Entry& place(std::string_view word) {
    std::uint64_t hash = word.size() * 0x9E3779B97F4A7C15ULL;
    const char* p = word.data();
    std::size_t left = word.size();
    for (; left >= 8; left -= 8, p += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, p, 8);
      hash = mix(hash ^ eight);
    }
    std::uint64_t rest = 0;
    if (left > 0) std::memcpy(&rest, p, left);
    hash = mix(hash ^ rest);
    return entries_[hash >> 48];
  }
  static std::uint64_t mix(std::uint64_t x) {
    x *= 0xD6E8FEB86659FD93ULL;
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93ULL;
  }
  std::uint64_t model_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace trainhost::tokenizer
