// The added tokens of tokenizer.json, special ones among them: found in a text before it is split.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/flat_map.hpp"

namespace trainhost::tokenizer {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;             // only where no word character is beside it
  bool lstrip = false, rstrip = false;  // with the white space before or behind it
  bool normalized = false;              // found in the normalized text
};

/// Finds the tokens of one of two sets: those for the text as it is, or those for normalized text.
class TokenFinder {
 public:
  struct Match {
    std::size_t begin = 0, end = 0;  // with white space
    std::size_t name_begin = 0, name_end = 0;
    const AddedToken* token = nullptr;
  };
  /// `content`: the text to find; the token must outlive the finder. The last token with a text wins.
  void add(std::string_view content, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }
  /// Bytes of the longest text.
  std::size_t longest() const { return longest_; }
  bool single_words() const { return single_words_; }

  /// The first match that starts at or after `from`, the longest of those that start there. `done`: end of
  /// the text before, in which no white space is taken. A special token counts only if allowed(begin, end).
  std::optional<Match> find(std::string_view text, std::size_t from, std::size_t done,
                            const std::function<bool(std::size_t, std::size_t)>& allowed) const;

 private:
  Trie trie_;
  std::vector<const AddedToken*> tokens_;
  std::size_t longest_ = 0;
  bool single_words_ = false;
};

}  // namespace trainhost::tokenizer
