// The streaming reader of strict_json.hpp: RFC 8259 grammar, nothing lenient.
#include "core/checkpoint/strict_json.hpp"

#include <fmt/format.h>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"

namespace trainhost::checkpoint {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, std::uint32_t c) {
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

StrictJson::StrictJson(std::string_view text, unsigned max_depth) : text_(text), max_depth_(max_depth) {
  if (!valid_utf8(text)) throw JsonFault(0, "not valid UTF-8");
}

void StrictJson::space() {
  while (i_ < text_.size() &&
         (text_[i_] == ' ' || text_[i_] == '\n' || text_[i_] == '\t' || text_[i_] == '\r'))
    ++i_;
}

std::uint64_t StrictJson::at() {
  space();
  return i_;
}

void StrictJson::expected(const char* what) {
  space();
  if (i_ >= text_.size()) throw JsonFault(text_.size(), fmt::format("expected {}, found the end", what));
  std::size_t n = 1;  // a number or word is shown whole, anything else by its first character
  while (n < 24 && i_ + n < text_.size() && text_.find_first_of(" \n\t\r,:{}[]\"", i_ + n) > i_ + n) ++n;
  throw JsonFault(i_, fmt::format("expected {}, found '{}'", what, escaped(text_.substr(i_, n))));
}

void StrictJson::open(char brace, const char* what) {
  space();
  if (i_ >= text_.size() || text_[i_] != brace) expected(what);
  if (depth_ >= max_depth_) throw JsonFault(i_, fmt::format("nested deeper than {}", max_depth_));
  ++i_;
  begun_ &= ~(1ULL << depth_);
  ++depth_;
}

void StrictJson::open_object() { open('{', "an object"); }
void StrictJson::open_array() { open('[', "an array"); }

bool StrictJson::next(char closing) {
  space();
  std::uint64_t bit = 1ULL << (depth_ - 1);
  if (i_ < text_.size() && text_[i_] == closing) {
    ++i_;
    --depth_;
    return false;
  }
  if (begun_ & bit) {
    if (i_ >= text_.size() || text_[i_] != ',') expected(closing == '}' ? "',' or '}'" : "',' or ']'");
    ++i_;
  }
  begun_ |= bit;
  return true;
}

bool StrictJson::next_member(std::string& key, std::size_t max_bytes) {
  if (!next('}')) return false;
  key = string(max_bytes);
  space();
  if (i_ >= text_.size() || text_[i_] != ':') expected("':'");
  ++i_;
  return true;
}

bool StrictJson::next_element() { return next(']'); }

std::string StrictJson::string(std::size_t max_bytes) {
  space();
  if (i_ >= text_.size() || text_[i_] != '"') expected("a string");
  std::size_t start = i_++;
  std::string out;
  for (;;) {
    if (i_ >= text_.size()) throw JsonFault(start, "a string that never ends");
    char c = text_[i_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) throw JsonFault(i_ - 1, "a control character in a string");
    if (c == '\\') {
      escape(out);
    } else {
      out += c;
    }
    if (out.size() > max_bytes)
      throw JsonFault(start, fmt::format("a string longer than {} bytes", max_bytes));
  }
}

std::uint32_t StrictJson::hex4() {
  std::uint32_t v = 0;
  for (int k = 0; k < 4; ++k, ++i_) {
    char c = i_ < text_.size() ? text_[i_] : '\0';
    std::uint32_t d = digit(c)               ? static_cast<std::uint32_t>(c - '0')
                      : c >= 'a' && c <= 'f' ? static_cast<std::uint32_t>(c - 'a' + 10)
                      : c >= 'A' && c <= 'F' ? static_cast<std::uint32_t>(c - 'A' + 10)
                                             : 16u;
    if (d == 16) throw JsonFault(i_, "an escape \\u without four hexadecimal digits");
    v = v << 4 | d;
  }
  return v;
}

void StrictJson::escape(std::string& out) {
  std::size_t start = i_ - 1;
  char c = i_ < text_.size() ? text_[i_++] : '\0';
  constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  if (auto k = kFrom.find(c); c != '\0' && k != std::string_view::npos) {
    out += kTo[k];
    return;
  }
  if (c != 'u') throw JsonFault(start, "an unknown escape in a string");
  std::uint32_t u = hex4();
  if (u >= 0xD800 && u < 0xDC00) {  // the first half of a surrogate pair
    if (text_.substr(i_, 2) != "\\u") throw JsonFault(start, "half of a surrogate pair");
    i_ += 2;
    std::uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) throw JsonFault(start, "half of a surrogate pair");
    u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
  } else if (u >= 0xDC00 && u <= 0xDFFF) {
    throw JsonFault(start, "half of a surrogate pair");
  }
  append_utf8(out, u);
}

std::uint64_t StrictJson::integer() {
  constexpr const char* kWhat = "a whole number from 0 to 2^63-1";
  space();
  std::size_t start = i_;
  std::uint64_t v = 0;
  while (i_ < text_.size() && digit(text_[i_])) {
    if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, text_[i_] - '0', &v) ||
        v > kMaxBytes) {
      i_ = start;
      expected(kWhat);
    }
    ++i_;
  }
  bool leading_zero = i_ - start > 1 && text_[start] == '0';
  bool goes_on = i_ < text_.size() && text_.find_first_of(".eE+-", i_) == i_;
  if (i_ == start || leading_zero || goes_on) {
    i_ = start;
    expected(kWhat);
  }
  return v;
}

void StrictJson::literal(std::string_view word) {
  if (text_.substr(i_, word.size()) != word) expected("a value");
  i_ += word.size();
}

void StrictJson::number() {
  std::size_t start = i_;
  auto digits = [&] {
    std::size_t from = i_;
    while (i_ < text_.size() && digit(text_[i_])) ++i_;
    return i_ - from;
  };
  auto fail = [&] { throw JsonFault(start, "a malformed number"); };
  if (text_[i_] == '-') ++i_;
  std::size_t first = i_;
  if (std::size_t n = digits(); n == 0 || (n > 1 && text_[first] == '0')) fail();
  if (i_ < text_.size() && text_[i_] == '.') {
    ++i_;
    if (digits() == 0) fail();
  }
  if (i_ < text_.size() && (text_[i_] == 'e' || text_[i_] == 'E')) {
    ++i_;
    if (i_ < text_.size() && (text_[i_] == '+' || text_[i_] == '-')) ++i_;
    if (digits() == 0) fail();
  }
}

void StrictJson::skip_value() {
  space();
  if (i_ >= text_.size()) expected("a value");
  std::string key;
  switch (text_[i_]) {
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
      if (text_[i_] != '-' && !digit(text_[i_])) expected("a value");
      number();
  }
}

void StrictJson::finish(char padding) {
  if (padding == '\0') space();
  while (padding != '\0' && i_ < text_.size() && text_[i_] == padding) ++i_;
  if (i_ < text_.size())
    throw JsonFault(i_, fmt::format("'{}' after the end of the object", escaped(text_.substr(i_, 1))));
}

}  // namespace trainhost::checkpoint
