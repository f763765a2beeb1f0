// See unicode.hpp. The only file that uses utf8proc.
#include "core/tokenizer/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <memory>
#include <new>

namespace trainhost::tokenizer {
namespace {

bool ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

/// Characters below U+0300 neither compose with the next one below U+0300 nor change in normal form C.
bool unchanged_in_form_c(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

void append_mapped(std::string& out, std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::kC || form == NormalForm::kKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kKC || form == NormalForm::kKD) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  assert(size >= 0);  // the text is valid UTF-8
  if (size > 0) out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

}  // namespace

std::size_t last_character(std::string_view text, std::size_t end) {
  assert(end > 0 && end <= text.size());
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::uint32_t code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) & 0x3F : 0;
  };
  const auto first = static_cast<unsigned char>(text[at]);
  switch (utf8_length(text[at])) {
    case 1:
      return first;
    case 2:
      return (first & 0x1Fu) << 6 | byte(1);
    case 3:
      return (first & 0x0Fu) << 12 | byte(1) << 6 | byte(2);
    default:
      return (first & 0x07u) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3);
  }
}

void append_utf8(std::string& text, std::uint32_t character) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

bool white_space(std::uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool word_character(std::uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

/// ASCII characters never change and never join with the character before them, so runs of them are copied,
/// and each run of other characters is mapped together with the ASCII character before it.
void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  if (form == NormalForm::kC && unchanged_in_form_c(text)) {
    out.append(text);
    return;
  }
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && ascii(text[end])) ++end;
    if (end == text.size()) {
      out.append(text.substr(at));
      return;
    }
    const std::size_t base = end > at ? end - 1 : end;
    out.append(text.substr(at, base - at));
    while (end < text.size() && !ascii(text[end])) ++end;
    append_mapped(out, text.substr(base, end - base), form);
    at = end;
  }
}

void append_lowercase(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t c = code_point(text, at);
    at += utf8_length(text[at]);
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {  // the only character whose lower case is two: i and a dot above
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
}

void append_without_marks(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text[at]);
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point(text, at)));
    if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
        category != UTF8PROC_CATEGORY_ME)
      out.append(text.substr(at, length));
    at += length;
  }
}

std::size_t first_grapheme(std::string_view text) {
  assert(!text.empty());
  utf8proc_int32_t state = 0;
  std::size_t at = 0;
  while (true) {
    const std::uint32_t c = code_point(text, at);
    at += utf8_length(text[at]);
    if (at >= text.size()) return text.size();
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c),
                                         static_cast<utf8proc_int32_t>(code_point(text, at)), &state))
      return at;
  }
}

std::string unicode_version() { return std::string("Unicode ") + utf8proc_unicode_version(); }

}  // namespace trainhost::tokenizer
