// The writing half of json_value.hpp: constructors and dump(). The output is an interface: equal values give
// equal bytes in every locale and build, so reports can be compared as texts.
#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"

namespace trainhost {
namespace {

/// Length of the valid UTF-8 character that `text` begins with; 0 if it begins with none. The shortest prefix
/// that is valid is one character.
std::size_t valid_character(std::string_view text) {
  for (std::size_t n = 1; n <= 4 && n <= text.size(); ++n)
    if (valid_utf8(text.substr(0, n))) return n;
  return 0;
}

// JSON must be UTF-8, and texts come from files and plugins: each invalid byte is replaced by U+FFFD. A text
// that is valid as a whole, the usual one, is tested once and then copied.
void write_string(std::string_view text, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  constexpr const char* kHex = "0123456789abcdef";
  const bool all_valid = valid_utf8(text);
  // Most texts are long and have few characters to escape: what is between them is copied at once.
  const auto is_plain = [&](char c) {
    const auto u = static_cast<unsigned char>(c);
    return c != '"' && c != '\\' && u >= 0x20 && (u < 0x80 || all_valid);
  };
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    std::size_t plain = i;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out += text.substr(i, plain - i);
    i = plain;
    if (i == text.size()) break;
    const char c = text[i];
    if (const auto k = kEscaped.find(c); k != kEscaped.npos) {
      out += '\\';
      out += kLetters[k];
      ++i;
      // Control characters without a letter of their own.
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
      ++i;
    } else if (const std::size_t n = valid_character(text.substr(i))) {
      out += text.substr(i, n);
      i += n;
    } else {
      out += "\xEF\xBF\xBD";  // U+FFFD, the replacement character
      ++i;
    }
  }
  out += '"';
}

/// The fewest digits d1 d2 ... dk that read back as x, laid out as JavaScript does: 0.001, 1.5, 100.0, 1e+16.
/// A point or an exponent is always present, so that readers take the number for a floating-point one.
void write_number(double x, std::string& out) {
  // JSON has no NaN and no infinity.
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  // 24 characters are enough for any double in scientific form ("-1.7976931348623157e+308").
  std::array<char, 32> text;
  // to_chars() is independent of the locale and gives the fewest digits that read back as x.
  const auto [last, error] =
      std::to_chars(text.data(), text.data() + text.size(), x, std::chars_format::scientific);
  assert(error == std::errc());
  const std::string_view scientific(text.data(), static_cast<std::size_t>(last - text.data()));
  const std::size_t e = scientific.find('e');
  std::string digits;
  for (const char c : scientific.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  const int k = static_cast<int>(digits.size());
  int exponent = 0;
  // Behind "e+" or "e-": from_chars() accepts no plus sign.
  std::from_chars(scientific.data() + e + 2, last, exponent);
  if (scientific[e + 1] == '-') exponent = -exponent;
  const int point = exponent + 1;  // x = 0.d1d2...dk * 10^point
  // Numbers from 1e-4 to below 1e15 are written without an exponent.
  constexpr int kSmallest = -4, kLargest = 15;
  if (std::signbit(x)) out += '-';
  if (x == 0) {
    out += "0.0";
  } else if (k <= point && point <= kLargest) {
    out += digits + std::string(static_cast<std::size_t>(point - k), '0') + ".0";
  } else if (0 < point && point <= kLargest) {
    out += digits.substr(0, static_cast<std::size_t>(point)) + '.' +
           digits.substr(static_cast<std::size_t>(point));
  } else if (kSmallest < point && point <= 0) {
    out += "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  } else {
    out += digits[0];
    if (k > 1) out += '.' + digits.substr(1);
    out += scientific.substr(e);  // e, sign and at least two digits
  }
}

void write_line_break(int indent, int depth, std::string& out) {
  // One line: no breaks at all.
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' ');
}

// Depth is bounded by the caller: values are built by this program or come from parse_json(), which limits
// it.
void write(const JsonValue& v, int indent, int depth, std::string& out) {
  switch (v.kind) {
    case JsonValue::Kind::kNull:
      out += "null";
      break;
    case JsonValue::Kind::kBool:
      out += v.boolean ? "true" : "false";
      break;
    case JsonValue::Kind::kInteger:
      out += std::to_string(v.integer);
      break;
    case JsonValue::Kind::kNumber:
      // An integer above 2^63 - 1 is kept as text, since neither int64 nor double holds it.
      if (v.string.empty())
        write_number(v.number, out);
      else
        out += v.string;
      break;
    case JsonValue::Kind::kString:
      write_string(v.string, out);
      break;
    case JsonValue::Kind::kArray:
      out += '[';
      for (const JsonValue& element : v.elements) {
        if (&element != v.elements.data()) out += ',';
        write_line_break(indent, depth + 1, out);
        write(element, indent, depth + 1, out);
      }
      if (!v.elements.empty()) write_line_break(indent, depth, out);
      out += ']';
      break;
    case JsonValue::Kind::kObject:
      out += '{';
      for (const JsonMember& m : v.members) {
        if (&m != v.members.data()) out += ',';
        write_line_break(indent, depth + 1, out);
        write_string(m.key, out);
        out += indent < 0 ? ":" : ": ";
        write(m.value, indent, depth + 1, out);
      }
      if (!v.members.empty()) write_line_break(indent, depth, out);
      out += '}';
      break;
  }
}

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(std::nullptr_t) {}
JsonValue::JsonValue(bool b) : kind(Kind::kBool), boolean(b) {}
// Every integer type of C++ has a constructor of its own; without them a call with `long` would be ambiguous.
JsonValue::JsonValue(int i) : JsonValue(static_cast<long long>(i)) {}
JsonValue::JsonValue(long i) : JsonValue(static_cast<long long>(i)) {}
JsonValue::JsonValue(long long i) : kind(Kind::kInteger), integer(i), number(static_cast<double>(i)) {}
JsonValue::JsonValue(unsigned i) : JsonValue(static_cast<long long>(i)) {}
JsonValue::JsonValue(unsigned long i) : JsonValue(static_cast<unsigned long long>(i)) {}
JsonValue::JsonValue(unsigned long long i) : kind(Kind::kInteger), number(static_cast<double>(i)) {
  if (i <= static_cast<unsigned long long>(std::numeric_limits<std::int64_t>::max())) {
    integer = static_cast<std::int64_t>(i);
  } else {
    kind = Kind::kNumber;
    string = std::to_string(i);
  }
}
JsonValue::JsonValue(double x) : kind(Kind::kNumber), number(x) {}
JsonValue::JsonValue(const char* text) : kind(Kind::kString), string(text) {}
JsonValue::JsonValue(std::string_view text) : kind(Kind::kString), string(text) {}
JsonValue::JsonValue(std::string text) : kind(Kind::kString), string(std::move(text)) {}
JsonValue::JsonValue(const std::vector<std::string>& texts)
    : kind(Kind::kArray), elements(texts.begin(), texts.end()) {}

// As in {{"key", 1}}. A list of pairs of strings is taken for an object; array() avoids that.
JsonValue::JsonValue(std::initializer_list<JsonValue> items) {
  const bool is_members = std::all_of(items.begin(), items.end(), [](const JsonValue& item) {
    return item.is_array() && item.elements.size() == 2 && item.elements[0].is_string();
  });
  kind = is_members ? Kind::kObject : Kind::kArray;
  if (!is_members)
    elements = items;
  else
    for (const JsonValue& item : items) members.push_back({item.elements[0].string, 0, item.elements[1]});
}

JsonValue JsonValue::array(std::initializer_list<JsonValue> items) {
  JsonValue v;
  v.kind = Kind::kArray;
  v.elements = items;
  return v;
}

JsonValue JsonValue::object() {
  JsonValue v;
  v.kind = Kind::kObject;
  return v;
}

JsonValue& JsonValue::operator[](std::string_view key) {
  if (is_null()) kind = Kind::kObject;
  assert(is_object());
  // Linear: objects for output have few members, and their order is that of insertion.
  for (JsonMember& m : members)
    if (m.key == key) return m.value;
  return members.emplace_back(JsonMember{std::string(key), 0, {}}).value;
}

void JsonValue::push_back(JsonValue element) {
  if (is_null()) kind = Kind::kArray;
  assert(is_array());
  elements.push_back(std::move(element));
}

std::string JsonValue::dump(int indent) const {
  std::string out;
  write(*this, indent, 0, out);
  return out;
}

std::string json_string(std::string_view text) {
  std::string out;
  write_string(text, out);
  return out;
}

}  // namespace trainhost
