// The precompiled replacements of a SentencePiece model (normalizer Precompiled of tokenizer.json): a trie in
// the double-array format of Darts-clone, followed by the replacement texts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::tokenizer {

class Charsmap {
 public:
  /// Throws std::invalid_argument if `base64` is not a table. Every access is checked, also in a damaged one.
  explicit Charsmap(std::string_view base64);
  /// Replaces grapheme clusters of up to five bytes, and single characters in longer ones.
  void append_replaced(std::string& out, std::string_view text) const;

 private:
  /// What replaces `chunk`: the entry of the shortest text with which it starts, as SentencePiece's port in
  /// the `tokenizers` package does.
  std::optional<std::string_view> replacement(std::string_view chunk) const;
  std::vector<std::uint32_t> units_;
  std::string texts_;  // each ends with a zero byte
};

}  // namespace trainhost::tokenizer
