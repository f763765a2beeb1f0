// See added_tokens.hpp. The rules are those of the `tokenizers` package 0.23.
#include "core/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {

void TokenFinder::add(std::string_view content, const AddedToken& token) {
  if (content.empty()) return;
  trie_.add(content, static_cast<std::int32_t>(tokens_.size()));
  tokens_.push_back(&token);
  longest_ = std::max(longest_, content.size());
  single_words_ = single_words_ || token.single_word;
}

/// A match that does not count is skipped as a whole: the search goes on behind it.
std::optional<TokenFinder::Match> TokenFinder::find(
    std::string_view text, std::size_t from, std::size_t done,
    const std::function<bool(std::size_t, std::size_t)>& allowed) const {
  if (tokens_.empty()) return std::nullopt;
  for (std::size_t at = from; at < text.size();) {
    if (!trie_.starts(text[at])) {
      ++at;
      continue;
    }
    Match m;
    trie_.prefixes(text.substr(at), [&](std::size_t length, std::int32_t index) {
      m.token = tokens_[static_cast<std::size_t>(index)];
      m.end = at + length;
    });
    if (!m.token) {
      ++at;
      continue;
    }
    m.begin = m.name_begin = at;
    m.name_end = at = m.end;
    if (m.token->special && !allowed(m.begin, m.end)) continue;
    if (m.token->single_word &&
        ((m.begin > 0 && word_character(code_point(text, last_character(text, m.begin)))) ||
         (m.end < text.size() && word_character(code_point(text, m.end)))))
      continue;
    while (m.token->lstrip && m.begin > done) {
      const std::size_t before = last_character(text, m.begin);
      if (!white_space(code_point(text, before))) break;
      m.begin = before;
    }
    while (m.token->rstrip && m.end < text.size() && white_space(code_point(text, m.end)))
      m.end += utf8_length(text[m.end]);
    return m;
  }
  return std::nullopt;
}

}  // namespace trainhost::tokenizer
