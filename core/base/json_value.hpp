// The one JSON type of the host. parse_json() builds it from a text and keeps the position of every key and
// value, for messages that name line and column; the constructors build it for output, and dump() writes it.
// It has no templates to instantiate: a JSON library made of templates was the largest part of the build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json_reader.hpp"

namespace trainhost {

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;         // kInteger: a number without point and exponent that fits 64 bits, signed
  double number = 0;                // kInteger and kNumber
  std::string string;               // kString; kNumber: the digits of an integer for output above 2^63 - 1
  std::vector<JsonValue> elements;  // kArray
  std::vector<JsonMember> members;  // kObject, in order; duplicate keys of a text are kept
  std::uint64_t begin = 0, end = 0;  // bytes [begin, end) of the text; 0 in a value that was not parsed

  JsonValue();
  JsonValue(std::nullptr_t);
  JsonValue(bool b);
  JsonValue(int i);
  JsonValue(long i);
  JsonValue(long long i);
  JsonValue(unsigned i);
  JsonValue(unsigned long i);
  JsonValue(unsigned long long i);
  JsonValue(double x);  // written as null unless finite
  JsonValue(const char* text);
  JsonValue(std::string_view text);
  JsonValue(std::string text);
  JsonValue(const std::vector<std::string>& texts);
  /// An object if every item is an array of two whose first is a string: JsonValue{{"key", 1}, {"other", 2}}.
  /// Otherwise an array.
  JsonValue(std::initializer_list<JsonValue> items);
  static JsonValue array(std::initializer_list<JsonValue> items = {});
  static JsonValue object();

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  /// The first member with this key; nullptr if there is none or this is not an object.
  const JsonValue* find(std::string_view key) const;
  /// The text of the member with this key; "" if there is none or it is not a string.
  std::string_view text_of(std::string_view key) const;
  /// The member with this key; a null member is appended if there is none. Makes an object of a null.
  JsonValue& operator[](std::string_view key);
  void push_back(JsonValue element);
  /// JSON text: one line if indent is negative, else indented by that many spaces per level. Doubles are
  /// written in the fewest digits that read back the same. Bytes that are not valid UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;
};

struct JsonMember {
  std::string key;
  std::uint64_t key_at = 0;  // byte position of the key
  JsonValue value;
};

/// Parses the whole text; throws JsonError. Objects and arrays may be nested up to max_depth (at most 64).
JsonValue parse_json(std::string_view text, unsigned max_depth = 64);

/// The text in quotation marks, escaped as dump() does.
std::string json_string(std::string_view text);

/// Converts byte positions of one text to line and column; columns count characters. Fast for positions that
/// ascend.
class JsonPositions {
 public:
  JsonPositions(std::string_view text, std::string file) : text_(text), at_{std::move(file), 1, 1} {}
  Where where(std::uint64_t byte);

 private:
  std::string_view text_;
  std::uint64_t byte_ = 0;
  Where at_;
};

}  // namespace trainhost
