// The grammar of RFC 8259 without extensions; see json_reader.hpp. Texts are untrusted. UTF-8 is checked once
// for the whole text in the constructor, so the parts of the grammar can treat bytes above 0x7F as ordinary
// characters of strings. i_ is the position of the next byte and never exceeds text_.size().
#include "core/base/json_reader.hpp"

#include <cassert>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"

namespace trainhost {
namespace {

/// Byte position of the first character that is not valid UTF-8; `text` has one, which ends the loop. A wrong
/// lead byte gives a length, too; valid_utf8() then rejects the piece.
std::size_t first_bad_utf8(std::string_view text) {
  std::size_t i = 0;
  for (;;) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (!valid_utf8(text.substr(i, length))) return i;
    i += length;
  }
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// `c` is a code point below 0x110000: \u escapes and their surrogate pairs cannot give a larger one.
void append_utf8(std::string& out, std::uint32_t c) {
  assert(c < 0x110000);
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

}  // namespace

JsonReader::JsonReader(std::string_view text, unsigned max_depth) : text_(text), max_depth_(max_depth) {
  if (!valid_utf8(text)) throw JsonError(first_bad_utf8(text), "not valid UTF-8");
  assert(max_depth <= 64);  // one bit of has_entry_ per level
}

void JsonReader::skip_space() {
  while (i_ < text_.size() &&
         (text_[i_] == ' ' || text_[i_] == '\n' || text_[i_] == '\t' || text_[i_] == '\r'))
    ++i_;
}

std::uint64_t JsonReader::at() {
  skip_space();
  return i_;
}

/// Never returns. The text that was found is part of the message, escaped and at most 24 bytes long.
void JsonReader::fail_expected(const char* what) {
  skip_space();
  if (i_ >= text_.size())
    throw JsonError(text_.size(), std::string("expected ") + what + ", found the end of the text");
  std::size_t n = 1;  // show a number or word completely, and only the first character of anything else
  while (n < 24 && i_ + n < text_.size() && text_.find_first_of(" \n\t\r,:{}[]\"", i_ + n) > i_ + n) ++n;
  throw JsonError(i_, std::string("expected ") + what + ", found '" + escaped(text_.substr(i_, n)) + "'");
}

/// The depth is checked before it grows, so neither the bit field nor a recursive caller can exceed it.
void JsonReader::open(char brace, const char* what) {
  skip_space();
  if (i_ >= text_.size() || text_[i_] != brace) fail_expected(what);
  if (depth_ >= max_depth_)
    throw JsonError(i_, "nested deeper than " + std::to_string(max_depth_) + " levels");
  ++i_;
  has_entry_ &= ~(1ULL << depth_);
  assert(depth_ < 64);
  ++depth_;
}

void JsonReader::open_object() { open('{', "an object"); }
void JsonReader::open_array() { open('[', "an array"); }

/// Common part of next_member() and next_element(). A bit per level tells the first entry, which has no comma
/// before it, from the others; a comma before the closing bracket therefore fails in the caller.
bool JsonReader::next(char closing) {
  skip_space();
  assert(depth_ > 0);
  std::uint64_t bit = 1ULL << (depth_ - 1);
  if (i_ < text_.size() && text_[i_] == closing) {
    ++i_;
    --depth_;
    return false;
  }
  if (has_entry_ & bit) {
    if (i_ >= text_.size() || text_[i_] != ',') fail_expected(closing == '}' ? "',' or '}'" : "',' or ']'");
    ++i_;
  }
  has_entry_ |= bit;
  return true;
}

/// Duplicate keys are not detected here: a stream keeps no keys. Callers that must reject them store the
/// keys.
bool JsonReader::next_member(std::string& key, std::size_t max_bytes) {
  if (!next('}')) return false;
  key_at_ = at();
  key = string(max_bytes);
  skip_space();
  if (i_ >= text_.size() || text_[i_] != ':') fail_expected("':'");
  ++i_;
  return true;
}

bool JsonReader::next_element() { return next(']'); }

/// The limit counts bytes after unescaping and is checked while reading, so a long string costs no more
/// memory than the limit.
std::string JsonReader::string(std::size_t max_bytes) {
  skip_space();
  if (i_ >= text_.size() || text_[i_] != '"') fail_expected("a string");
  std::size_t start = i_++;
  std::string out;
  for (;;) {
    if (i_ >= text_.size()) throw JsonError(start, "unterminated string");
    char c = text_[i_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) throw JsonError(i_ - 1, "control character in a string");
    if (c == '\\') {
      unescape(out);
    } else {
      out += c;
    }
    if (out.size() > max_bytes)
      throw JsonError(start, "a string longer than " + std::to_string(max_bytes) + " bytes");
  }
}

/// The sentinel 16 is no digit; '\0' at the end of the text gives it, too.
std::uint32_t JsonReader::four_hex_digits() {
  std::uint32_t v = 0;
  for (int k = 0; k < 4; ++k, ++i_) {
    char c = i_ < text_.size() ? text_[i_] : '\0';
    std::uint32_t d = is_digit(c)            ? static_cast<std::uint32_t>(c - '0')
                      : c >= 'a' && c <= 'f' ? static_cast<std::uint32_t>(c - 'a' + 10)
                      : c >= 'A' && c <= 'F' ? static_cast<std::uint32_t>(c - 'A' + 10)
                                             : 16u;
    if (d == 16) throw JsonError(i_, "\\u is not followed by four hexadecimal digits");
    v = v << 4 | d;
  }
  return v;
}

/// Called after the backslash. kFrom and kTo correspond by index.
void JsonReader::unescape(std::string& out) {
  std::size_t start = i_ - 1;
  char c = i_ < text_.size() ? text_[i_++] : '\0';
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (auto k = kFrom.find(c); c != '\0' && k != std::string_view::npos) {
    out += kTo[k];
    return;
  }
  if (c != 'u') throw JsonError(start, "unknown escape in a string");
  std::uint32_t u = four_hex_digits();
  if (u >= 0xD800 && u < 0xDC00) {  // first half of a surrogate pair
    if (text_.substr(i_, 2) != "\\u") throw JsonError(start, "unpaired surrogate in a string");
    i_ += 2;
    std::uint32_t low = four_hex_digits();
    if (low < 0xDC00 || low > 0xDFFF) throw JsonError(start, "unpaired surrogate in a string");
    // 10 bits of each half: 0x10000 to 0x10FFFF.
    u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
  } else if (u >= 0xDC00 && u <= 0xDFFF) {
    throw JsonError(start, "unpaired surrogate in a string");
  }
  append_utf8(out, u);
}

/// Checked while the digits are read, so a number of a million digits stops at the twentieth. Never via
/// double: 2^53 + 1 would change.
std::uint64_t JsonReader::integer() {
  constexpr const char* kWhat = "a whole number from 0 to 2^63-1";
  skip_space();
  std::size_t start = i_;
  std::uint64_t v = 0;
  while (i_ < text_.size() && is_digit(text_[i_])) {
    if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, text_[i_] - '0', &v) ||
        v > kMaxBytes) {
      i_ = start;
      fail_expected(kWhat);
    }
    ++i_;
  }
  bool leading_zero = i_ - start > 1 && text_[start] == '0';
  // "1.0" and "1e3" are numbers of JSON, but not ways to write a size.
  bool not_an_integer = i_ < text_.size() && text_.find_first_of(".eE+-", i_) == i_;
  if (i_ == start || leading_zero || not_an_integer) {
    i_ = start;
    fail_expected(kWhat);
  }
  return v;
}

void JsonReader::literal(std::string_view word) {
  if (text_.substr(i_, word.size()) != word) fail_expected("a value");
  i_ += word.size();
}

/// Only finds the end: the text is returned unconverted, because callers differ in the type they need.
std::string_view JsonReader::number() {
  skip_space();
  std::size_t start = i_;
  auto skip_digits = [&] {
    std::size_t from = i_;
    while (i_ < text_.size() && is_digit(text_[i_])) ++i_;
    return i_ - from;
  };
  auto fail = [&] { throw JsonError(start, "malformed number"); };
  if (i_ < text_.size() && text_[i_] == '-') ++i_;
  std::size_t first = i_;
  if (std::size_t n = skip_digits(); n == 0 || (n > 1 && text_[first] == '0')) fail();
  if (i_ < text_.size() && text_[i_] == '.') {
    ++i_;
    if (skip_digits() == 0) fail();
  }
  if (i_ < text_.size() && (text_[i_] == 'e' || text_[i_] == 'E')) {
    ++i_;
    if (i_ < text_.size() && (text_[i_] == '+' || text_[i_] == '-')) ++i_;
    if (skip_digits() == 0) fail();
  }
  return text_.substr(start, i_ - start);
}

/// Anything that does not begin with 't' must be "false", so the error names the value that was expected.
bool JsonReader::boolean() {
  const bool value = peek() == 't';
  literal(value ? "true" : "false");
  return value;
}

void JsonReader::null() {
  skip_space();
  literal("null");
}

char JsonReader::peek() {
  skip_space();
  return i_ < text_.size() ? text_[i_] : '\0';
}

/// Recursion is bounded by max_depth_, which open() checks. Strings inside are bounded by the text itself.
void JsonReader::skip_value() {
  std::string key;
  switch (const char first = peek()) {
    case '{':
      open_object();
      while (next_member(key, text_.size())) skip_value();
      break;
    case '[':
      open_array();
      while (next_element()) skip_value();
      break;
    case '"':
      string(text_.size());
      break;
    case 't':
      literal("true");
      break;
    case 'f':
      literal("false");
      break;
    case 'n':
      literal("null");
      break;
    default:
      if (first != '-' && !is_digit(first)) fail_expected("a value");
      number();
  }
}

/// `padding` is a byte that the format puts after the value: safetensors headers end in spaces only.
void JsonReader::finish(char padding) {
  if (padding == '\0') skip_space();
  while (padding != '\0' && i_ < text_.size() && text_[i_] == padding) ++i_;
  if (i_ < text_.size())
    throw JsonError(i_, "'" + escaped(text_.substr(i_, 1)) + "' after the end of the value");
}

}  // namespace trainhost
