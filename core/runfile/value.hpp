// One value of a run file or a config.json, with the place where it was written. What both parsers produce,
// so that one set of checks and messages serves both. Holds no rules: those are in schema.hpp and
// model_fields.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

struct Value {
  enum class Kind { kNull, kText, kInteger, kNumber, kBool, kList, kTable, kOther };
  Kind kind = Kind::kNull;
  std::string text;          // kText: the string; kOther: what it is, "a date"
  std::int64_t integer = 0;  // kInteger
  double number = 0;         // kInteger and kNumber
  bool boolean = false;      // kBool
  std::vector<Value> items;  // kList
  Where where;               // file "" = a default
};

/// A value under its full dotted key; tables come before what they hold.
struct Entry {
  std::string key;
  Where key_where;
  Value value;
};

Value text_value(std::string text, Where where = {});

/// "a string", "a whole number", ...: what it is.
std::string kind_name(const Value& v);
/// The value as a user would write it, shortened and safe to print.
std::string written(const Value& v);

}  // namespace trainhost::runfile
