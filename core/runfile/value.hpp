// One value of a run file or a config.json with its position in the file. Both parsers produce this type, so
// that both share the same checks and messages. The rules are in schema.hpp and model_fields.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

struct Value {
  enum class Kind { kNull, kText, kInteger, kNumber, kBool, kList, kTable, kOther };
  Kind kind = Kind::kNull;
  std::string text;          // kText: the string; kOther: its kind, "a date or time"
  std::int64_t integer = 0;  // kInteger
  double number = 0;         // kInteger and kNumber
  bool boolean = false;      // kBool
  std::vector<Value> items;  // kList
  Where where;               // an empty file name means a default
};

/// A value with its full dotted key. A table comes before its members.
struct Entry {
  std::string key;
  Where key_where;
  Value value;
  std::string spelling = {};  // of the key in the file, where `key` is another one: "--num-processes"
  /// The key as messages and reports have it.
  const std::string& shown() const { return spelling.empty() ? key : spelling; }
};

Value text_value(std::string text, Where where = {});

/// The kind of the value in messages: "a string", "a whole number", ...
std::string kind_name(const Value& v);
/// The value as it is written in a run file, shortened and safe to print.
std::string written(const Value& v);

}  // namespace trainhost::runfile
