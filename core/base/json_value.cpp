// See json_value.hpp.
#include "core/base/json_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace trainhost {
namespace {

using Kind = JsonValue::Kind;

/// A number that a double cannot hold is too large, or so small that it is zero.
/// Written "0.": digits after the point that are all too small. Other numbers without an exponent are too
/// large.
double out_of_range(std::string_view text, std::uint64_t at) {
  const std::size_t exponent = text.find_first_of("eE");
  const bool small =
      exponent != text.npos ? text[exponent + 1] == '-' : text.starts_with("0.") || text.starts_with("-0.");
  if (!small) throw JsonError(at, "number out of range");
  return 0;
}

void read_number(JsonReader& reader, JsonValue& v) {
  const std::uint64_t at = reader.at();
  const std::string_view text = reader.number();
  // As a double first: it accepts every number of JSON; then as an integer, which must take all characters.
  const char *first = text.data(), *last = first + text.size();
  if (std::from_chars(first, last, v.number).ec == std::errc::result_out_of_range)
    v.number = out_of_range(text, at);
  const auto [end, error] = std::from_chars(first, last, v.integer);
  v.kind = error == std::errc() && end == last ? Kind::kInteger : Kind::kNumber;
  if (v.kind == Kind::kNumber) v.integer = 0;
}

/// Recursion is bounded by the reader's max_depth.
JsonValue read_value(JsonReader& reader) {
  constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();
  JsonValue v;
  const char first = reader.peek();
  v.begin = reader.at();
  if (first == '{') {
    v.kind = Kind::kObject;
    reader.open_object();
    std::string key;
    while (reader.next_member(key, kAnyLength)) {
      // The key first: key_at() moves on with the value.
      v.members.push_back({std::move(key), reader.key_at(), {}});
      JsonValue value = read_value(reader);
      v.members.back().value = std::move(value);
    }
  } else if (first == '[') {
    v.kind = Kind::kArray;
    for (reader.open_array(); reader.next_element();) v.elements.push_back(read_value(reader));
  } else if (first == '"') {
    v.kind = Kind::kString;
    v.string = reader.string(kAnyLength);
  } else if (first == 't' || first == 'f') {
    v.kind = Kind::kBool;
    v.boolean = reader.boolean();
  } else if (first == '-' || (first >= '0' && first <= '9')) {
    read_number(reader, v);
  } else if (first == 'n') {
    reader.null();
  } else {
    reader.skip_value();  // reports what was expected
  }
  v.end = reader.end();
  return v;
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto m =
      std::find_if(members.begin(), members.end(), [&](const JsonMember& x) { return x.key == key; });
  return m == members.end() ? nullptr : &m->value;
}

std::string_view JsonValue::text_of(std::string_view key) const {
  const JsonValue* value = find(key);
  return value ? std::string_view(value->string) : std::string_view();
}

JsonValue parse_json(std::string_view text, unsigned max_depth) {
  JsonReader reader(text, max_depth);
  JsonValue root = read_value(reader);
  // Nothing but white space may follow.
  reader.finish('\0');
  return root;
}

Where JsonPositions::where(std::uint64_t byte) {
  // Going back starts over from the beginning of the text.
  if (byte < byte_) byte_ = 0, at_.line = at_.column = 1;
  for (; byte_ < byte && byte_ < text_.size(); ++byte_) {
    // Bytes that continue a UTF-8 character are no columns.
    if (text_[byte_] == '\n')
      ++at_.line, at_.column = 1;
    else if ((text_[byte_] & 0xC0) != 0x80)
      ++at_.column;
  }
  return at_;
}

}  // namespace trainhost
