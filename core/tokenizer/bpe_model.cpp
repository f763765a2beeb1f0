// Byte pair encoding: the symbols of a word are merged in pairs, the pair with the lowest rank first and of
// equal pairs the leftmost. The result is that of the `tokenizers` package 0.23.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <queue>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tokenizer/component.hpp"
#include "core/tokenizer/flat_map.hpp"
#include "core/tokenizer/model.hpp"
#include "core/tokenizer/pre_tokenizer.hpp"
#include "core/tokenizer/unicode.hpp"
#include "core/tokenizer/word_cache.hpp"

namespace trainhost::tokenizer {
namespace {

/// Pairs of symbols that are neighbours in some token. A text can be cut between two symbols that are not:
/// no merge joins them. A set by hash alone: a wrong "may" only loses a cut.
class Neighbours {
 public:
  void reserve(std::size_t pairs) { bits_.assign(std::bit_ceil(std::max<std::size_t>(pairs, 64)) / 4, 0); }
  void add(std::int32_t a, std::int32_t b) {
    bits_[hash(a, b) >> 6] |= std::uint64_t{1} << (hash(a, b) & 63);
  }
  bool may(std::int32_t a, std::int32_t b) const { return bits_[hash(a, b) >> 6] >> (hash(a, b) & 63) & 1; }

 private:
  std::size_t hash(std::int32_t a, std::int32_t b) const {
    const std::uint64_t h =
        (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 | static_cast<std::uint32_t>(b)) *
        0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(h >> 20) & (bits_.size() * 64 - 1);
  }
  std::vector<std::uint64_t> bits_;
};

struct Symbols {
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> begins;  // first byte of each
  std::vector<bool> known;            // false: not a character of the vocabulary
};

class Bpe final : public Model {
 public:
  Bpe(const ModelData& data, bool bytes, const std::string& file);
  const char* type() const override { return "BPE"; }
  void encode(std::string_view word, std::vector<std::int32_t>& ids, std::vector<Cut>* cuts) const override;

 private:
  static constexpr std::size_t kSmall = 64;  // symbols of a word that is merged in an array
  void add_merges(const ModelData& data, const std::string& file);
  void add_neighbours();
  std::int32_t symbol(std::string_view character) const;
  void symbols_of(std::string_view word, Symbols& out) const;
  /// Merges ids[0, n) in place and returns how many are left.
  std::size_t merge_small(std::int32_t* ids, std::size_t n) const;
  void merge_large(std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids, Symbols& scratch) const;
  void append_merged(const std::int32_t* first, std::size_t n, std::vector<std::int32_t>& ids) const;
  std::uint64_t merge_of(std::int32_t a, std::int32_t b) const {
    return merges_.find(static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32 |
                        static_cast<std::uint32_t>(b));
  }

  bool bytes_, ignore_merges_ = false, byte_fallback_ = false, fuse_unk_ = false;
  std::optional<std::int32_t> unk_;
  std::vector<std::string> tokens_;  // text of each entry of ids_, whose keys are views of it
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::int32_t ascii_[256];  // ids of bytes (bytes_) or of ASCII characters
  std::vector<std::int32_t> byte_tokens_;
  FlatMap merges_;  // pair of ids -> rank << 32 | id of the result
  Neighbours neighbours_;
  std::uint64_t number_ = new_model_number();
};

Bpe::Bpe(const ModelData& data, bool bytes, const std::string& file) : bytes_(bytes) {
  const Component options{data.options, file, "model"};
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const JsonValue* v = data.options.find(key); v && v->is_string() && !v->string.empty())
      throw usage_error("tokenizer " + file + ": model BPE has a " + key + ", which is not supported");
  ignore_merges_ = options.boolean("ignore_merges", false);
  byte_fallback_ = options.boolean("byte_fallback", false);
  fuse_unk_ = options.boolean("fuse_unk", false);
  tokens_.reserve(data.vocab.size());
  std::string text;
  for (const auto& [token, id] : data.vocab) {
    // A token with a character outside the byte-level alphabet is never the result of encoding.
    if (bytes && !bytes_of(token, text)) continue;
    tokens_.push_back(bytes ? text : token);
    ids_[tokens_.back()] = id;
  }
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    const auto at = bytes || b < 128 ? ids_.find(std::string_view(&c, 1)) : ids_.end();
    ascii_[b] = at == ids_.end() ? -1 : at->second;
  }
  byte_tokens_ = byte_token_ids(ids_);
  if (const JsonValue* v = data.options.find("unk_token"); v && v->is_string()) {
    const auto at = std::find_if(data.vocab.begin(), data.vocab.end(),
                                 [&](const auto& entry) { return entry.first == v->string; });
    if (at == data.vocab.end())
      throw usage_error("tokenizer " + file + ": the unk_token '" + escaped(v->string) +
                        "' of the model is not in its vocabulary");
    unk_ = at->second;
  }
  add_merges(data, file);
  add_neighbours();
}

void Bpe::add_merges(const ModelData& data, const std::string& file) {
  std::string parts[2], whole;
  std::uint32_t rank = 0;
  for (const auto& merge : data.merges) {
    const auto& [first, second] = merge;
    const auto id = [&](const std::string& token) {
      const auto at = ids_.find(token);
      if (at == ids_.end())
        throw usage_error("tokenizer " + file + ": merge " + std::to_string(rank + 1) + ", '" +
                          escaped(merge.first) + " " + escaped(merge.second) +
                          "', names a token that is not in the vocabulary");
      return at->second;
    };
    // A merge outside the byte-level alphabet never applies; its tokens are still checked.
    if (bytes_ && !(bytes_of(first, parts[0]) && bytes_of(second, parts[1]))) {
      ++rank;
      continue;
    }
    if (!bytes_) parts[0] = first, parts[1] = second;
    whole = parts[0] + parts[1];
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(id(parts[0]))) << 32 |
                              static_cast<std::uint32_t>(id(parts[1]));
    merges_[key] = static_cast<std::uint64_t>(rank++) << 32 | static_cast<std::uint32_t>(id(whole));
  }
}

/// Only texts that merges make are in the set, so tokens that are added to the vocabulary do not matter. With
/// fused unknown tokens, or byte tokens that are merged, nothing is cut beside an unknown character.
void Bpe::add_neighbours() {
  std::size_t pairs = 0;
  for (const std::string& token : tokens_) pairs += token.size();
  neighbours_.reserve(pairs * 8);
  for (const std::string& token : tokens_) {
    std::int32_t before = -1;
    for (std::size_t at = 0; at < token.size();) {
      const std::size_t length = bytes_ ? 1 : utf8_length(token[at]);
      const std::int32_t id = symbol(std::string_view(token).substr(at, length));
      if (before >= 0 && id >= 0) neighbours_.add(before, id);
      before = id;
      at += length;
    }
  }
}

/// -1 if the character is not in the vocabulary.
std::int32_t Bpe::symbol(std::string_view character) const {
  if (character.size() == 1) return ascii_[static_cast<unsigned char>(character[0])];
  const auto at = ids_.find(character);
  return at == ids_.end() ? -1 : at->second;
}

void Bpe::symbols_of(std::string_view word, Symbols& out) const {
  out.ids.clear(), out.begins.clear(), out.known.clear();
  const auto add = [&](std::int32_t id, std::size_t begin, bool known) {
    out.ids.push_back(id), out.begins.push_back(static_cast<std::uint32_t>(begin)),
        out.known.push_back(known);
  };
  bool unknown = false;  // an unknown token that is not yet in `out`
  std::size_t unknown_at = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = bytes_ ? 1 : std::min(utf8_length(word[at]), word.size() - at);
    const std::string_view c = word.substr(at, length);
    const std::size_t begin = at;
    at += length;
    if (const std::int32_t id = symbol(c); id >= 0) {
      if (unknown) add(*unk_, unknown_at, false);
      unknown = false;
      add(id, begin, true);
      continue;
    }
    if (byte_fallback_ && std::all_of(c.begin(), c.end(), [&](char b) {
          return byte_tokens_[static_cast<unsigned char>(b)] >= 0;
        })) {
      for (char b : c) add(byte_tokens_[static_cast<unsigned char>(b)], begin, false);
      continue;
    }
    if (!unk_) continue;  // the character is left out
    if (unknown && !fuse_unk_) add(*unk_, unknown_at, false);
    if (!unknown || !fuse_unk_) unknown_at = begin;
    unknown = true;
  }
  if (unknown) add(*unk_, unknown_at, false);
}

std::size_t Bpe::merge_small(std::int32_t* ids, std::size_t n) const {
  std::uint64_t pairs[kSmall];  // of each symbol and the next one; kNone if they are not merged
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merge_of(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    // The rank is in the upper half, and equal pairs are equal numbers, of which the leftmost wins.
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i] < pairs[best]) best = i;
    if (pairs[best] == FlatMap::kNone) break;
    ids[best] = static_cast<std::int32_t>(pairs[best]);
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    std::copy(pairs + best + 1, pairs + n - 1, pairs + best);
    --n;
    if (best + 1 < n) pairs[best] = merge_of(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = merge_of(ids[best - 1], ids[best]);
  }
  return n;
}

/// The same with a heap of pairs and a linked list of symbols. A pair whose symbols have changed since it was
/// queued is ignored when it is taken from the heap.
void Bpe::merge_large(std::vector<std::int32_t>& ids) const {
  struct Pair {
    std::uint64_t merge;
    std::uint32_t at;
    bool operator>(const Pair& o) const { return merge != o.merge ? merge > o.merge : at > o.at; }
  };
  const auto n = static_cast<std::uint32_t>(ids.size());
  std::vector<std::uint32_t> next(n), before(n);
  std::vector<Pair> pairs;
  for (std::uint32_t i = 0; i < n; ++i) next[i] = i + 1, before[i] = i - 1;
  for (std::uint32_t i = 0; i + 1 < n; ++i)
    if (const std::uint64_t m = merge_of(ids[i], ids[i + 1]); m != FlatMap::kNone) pairs.push_back({m, i});
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> queue(std::greater<>{}, std::move(pairs));
  constexpr std::int32_t kGone = -1;
  while (!queue.empty()) {
    const Pair top = queue.top();
    queue.pop();
    const std::uint32_t right = ids[top.at] == kGone ? n : next[top.at];
    if (right >= n || merge_of(ids[top.at], ids[right]) != top.merge) continue;
    ids[top.at] = static_cast<std::int32_t>(top.merge);
    ids[right] = kGone;
    next[top.at] = next[right];
    if (next[right] < n) before[next[right]] = top.at;
    const auto push = [&](std::uint32_t a, std::uint32_t b) {
      if (const std::uint64_t m = merge_of(ids[a], ids[b]); m != FlatMap::kNone) queue.push({m, a});
    };
    if (next[top.at] < n) push(top.at, next[top.at]);
    if (before[top.at] < n) push(before[top.at], top.at);
  }
  std::erase(ids, kGone);
}

void Bpe::append_merged(const std::int32_t* first, std::size_t n, std::vector<std::int32_t>& ids) const {
  if (n <= kSmall) {
    std::int32_t few[kSmall];
    std::copy(first, first + n, few);
    const std::size_t left = merge_small(few, n);
    ids.insert(ids.end(), few, few + left);
    return;
  }
  std::vector<std::int32_t> many(first, first + n);
  merge_large(many);
  ids.insert(ids.end(), many.begin(), many.end());
}

/// A word without a place to cut.
void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids, Symbols& scratch) const {
  symbols_of(word, scratch);
  append_merged(scratch.ids.data(), scratch.ids.size(), ids);
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids, std::vector<Cut>* cuts) const {
  static thread_local Symbols scratch;
  const bool keeps = word.size() <= WordCache::kMaxBytes;
  WordCache& cache = WordCache::of(number_);
  if (keeps && cache.find(word, ids)) return;
  const std::size_t before = ids.size();
  if (ignore_merges_) {
    if (const auto at = ids_.find(word); at != ids_.end()) {
      ids.push_back(at->second);
    } else {
      encode_word(word, ids, scratch);
    }
  } else if (keeps) {
    encode_word(word, ids, scratch);
  } else {
    // A long word, perhaps the whole text: cut where no merge joins, so that the parts are found in the
    // cache.
    Symbols all;
    symbols_of(word, all);
    std::size_t first = 0;
    for (std::size_t i = 1; i <= all.ids.size(); ++i) {
      if (i < all.ids.size() &&
          !(all.known[i - 1] && all.known[i] && !neighbours_.may(all.ids[i - 1], all.ids[i])))
        continue;
      const std::size_t begin = first == 0 ? 0 : all.begins[first];
      const std::size_t end = i < all.ids.size() ? all.begins[i] : word.size();
      if (cuts && first > 0) cuts->push_back({begin, ids.size()});
      const std::string_view part = word.substr(begin, end - begin);
      const bool short_part = part.size() <= WordCache::kMaxBytes;
      if (!short_part || !cache.find(part, ids)) {
        const std::size_t count = ids.size();
        append_merged(all.ids.data() + first, i - first, ids);
        if (short_part) cache.keep(part, ids.data() + count, ids.size() - count);
      }
      first = i;
    }
    return;
  }
  if (keeps) cache.keep(word, ids.data() + before, ids.size() - before);
}

}  // namespace

std::uint64_t new_model_number() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

std::vector<std::int32_t> byte_token_ids(const std::unordered_map<std::string_view, std::int32_t>& ids) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::vector<std::int32_t> out(256, -1);
  for (std::size_t b = 0; b < 256; ++b) {
    const std::string token = std::string("<0x") + kHex[b >> 4] + kHex[b & 15] + ">";
    if (const auto at = ids.find(token); at != ids.end()) out[b] = at->second;
  }
  return out;
}

std::unique_ptr<Model> make_bpe(const ModelData& data, bool bytes, const std::string& file) {
  return std::make_unique<Bpe>(data, bytes, file);
}

}  // namespace trainhost::tokenizer
