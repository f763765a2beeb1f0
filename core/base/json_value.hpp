// A JSON text as a tree that keeps the position of every key and value, for messages that name line and
// column. Built by JsonReader; the host reads no JSON in any other way (nlohmann only writes it).
#pragma once
#include <cstdint>
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
  std::int64_t integer = 0;  // kInteger: a number without point and exponent that fits 64 bits, signed
  double number = 0;         // kInteger and kNumber
  std::string string;
  std::vector<JsonValue> elements;   // kArray
  std::vector<JsonMember> members;   // kObject, in the order of the text; duplicate keys are kept
  std::uint64_t begin = 0, end = 0;  // bytes [begin, end) of the text

  bool is_null() const { return kind == Kind::kNull; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }
  /// The first member with this key; nullptr if there is none or this is not an object.
  const JsonValue* find(std::string_view key) const;
  /// The text of the member with this key; "" if there is none or it is not a string.
  std::string_view text_of(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  std::uint64_t key_at = 0;  // byte position of the key
  JsonValue value;
};

/// Parses the whole text; throws JsonError. Objects and arrays may be nested up to max_depth (at most 64).
JsonValue parse_json(std::string_view text, unsigned max_depth = 64);

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
