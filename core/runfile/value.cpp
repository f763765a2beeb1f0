// Values in messages; see value.hpp.
#include "core/runfile/value.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace trainhost::runfile {

Value text_value(std::string text, Where where) {
  Value v;
  v.kind = Value::Kind::kText;
  v.text = std::move(text);
  v.where = std::move(where);
  return v;
}

std::string kind_name(const Value& v) {
  switch (v.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kText:
      return "a string";
    case Value::Kind::kInteger:
      return "a whole number";
    case Value::Kind::kNumber:
      return "a number with fraction or exponent";
    case Value::Kind::kBool:
      return "true or false";
    case Value::Kind::kList:
      return "a list";
    case Value::Kind::kTable:
      return "a table";
    case Value::Kind::kOther:
      break;
  }
  // kOther: the text names the kind of TOML that has no counterpart (a date).
  return v.text;
}

/// For messages: text is escaped and cut, lists and tables are only named.
std::string written(const Value& v) {
  switch (v.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kText:
      return '"' + escaped(v.text, 80) + '"';
    case Value::Kind::kInteger:
      return std::to_string(v.integer);
    case Value::Kind::kNumber:
      return fmt::format("{}", v.number);
    case Value::Kind::kBool:
      return v.boolean ? "true" : "false";
    case Value::Kind::kList:
      // A list may be long, and its content is rarely the error.
      return fmt::format("[{} item{}]", v.items.size(), v.items.size() == 1 ? "" : "s");
    case Value::Kind::kTable:
      return "{...}";
    case Value::Kind::kOther:
      break;
  }
  return v.text;
}

}  // namespace trainhost::runfile
