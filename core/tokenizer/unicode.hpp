// Unicode properties and normal forms of UTF-8 texts, with utf8proc. Texts must be valid UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainhost::tokenizer {

/// Length in bytes of the character that starts with this byte; 1 for a byte that starts none.
inline std::size_t utf8_length(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
/// Start of the last character of text[0, end); end > 0.
std::size_t last_character(std::string_view text, std::size_t end);
/// The character at byte `at`, which is the start of one.
std::uint32_t code_point(std::string_view text, std::size_t at);
void append_utf8(std::string& text, std::uint32_t character);

/// The property White_Space.
bool white_space(std::uint32_t character);
/// Letters, marks, decimal digits and connector punctuation: \w.
bool word_character(std::uint32_t character);

enum class NormalForm { kC, kD, kKC, kKD };
/// Appends the normal form of the text. Normalizing parts that start with an ASCII character gives the same
/// as normalizing the whole.
void append_normal_form(std::string& out, std::string_view text, NormalForm form);
/// Lower case character by character, without the rule for a sigma at the end of a word.
void append_lowercase(std::string& out, std::string_view text);
/// Without marks (category M).
void append_without_marks(std::string& out, std::string_view text);
/// Length of the first extended grapheme cluster of a text that is not empty.
std::size_t first_grapheme(std::string_view text);

/// "Unicode 15.0.0": the version of the tables.
std::string unicode_version();

}  // namespace trainhost::tokenizer
