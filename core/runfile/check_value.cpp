// One value against one row of the schema: its type, then its limits. Combinations of keys are
// combinations.cpp.
#include <fmt/format.h>

#include <cmath>

#include "core/base/text.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

using Kind = Value::Kind;

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(by, at);
    out.emplace_back(text.substr(at, end - at));
    if (end == text.npos) return out;
    at = end + 1;
  }
}

std::string limits(const Key& k) {
  const bool above_zero = k.min > 0 && k.min < 1e-200, below_one = k.max < 1 && k.max > 0.999;
  const std::string from = above_zero ? " above 0" : fmt::format(" from {}", k.min);
  if (k.max >= 1e12) return from;
  return from + (below_one    ? " to below 1"
                 : above_zero ? fmt::format(", at most {}", k.max)
                              : fmt::format(" to {}", k.max));
}

/// What the key takes, for people: "a whole number from 1 to 1048576".
std::string expected(const Key& k) {
  switch (k.type) {
    case Type::kInteger: {
      const auto low = static_cast<std::int64_t>(k.min);
      return k.max >= 1e12
                 ? fmt::format("a whole number from {}", low)
                 : fmt::format("a whole number from {} to {}", low, static_cast<std::int64_t>(k.max));
    }
    case Type::kNumber:
      return "a number" + limits(k);
    case Type::kPair:
      return "a list of two numbers, each" + limits(k);
    case Type::kSize:
      return "a size such as \"512MiB\", \"80GB\", 2e9 or a number of bytes";
    case Type::kBool:
      return "true or false";
    case Type::kChoice:
      return fmt::format("one of {}", fmt::join(split(k.choices, '|'), ", "));
    case Type::kText:
    case Type::kPath:
      return "a string";
    case Type::kTexts:
    case Type::kPaths:
      return "a string or a list of strings";
  }
  return "";
}

[[noreturn]] void refuse(const Key& k, const Value& v, const std::string& suggestion = {}) {
  throw usage_error(fmt::format("{} = {}: expected {}{}", k.name, written(v), expected(k), suggestion), {},
                    v.where);
}

[[noreturn]] void wrong_type(const Key& k, const Value& v) {
  // 1e3 is a float in TOML: say how to write it.
  const bool whole = k.type == Type::kInteger && v.kind == Kind::kNumber &&
                     v.number == std::floor(v.number) && std::abs(v.number) < 1e15;
  throw usage_error(
      fmt::format("{} = {}: expected {}, got {}", k.name, written(v), expected(k), kind_name(v)),
      whole ? fmt::format("write {:.0f}", v.number) : "", v.where);
}

bool numeric(const Value& v) { return v.kind == Kind::kInteger || v.kind == Kind::kNumber; }

void check_limits(const Key& k, const Value& whole, double number) {
  if (!(std::isfinite(number) && number >= k.min && number <= k.max)) refuse(k, whole);
}

void check_pair(const Key& k, const Value& v) {
  if (v.kind != Kind::kList) wrong_type(k, v);
  if (v.items.size() != 2) refuse(k, v);
  for (const Value& item : v.items) {
    if (!numeric(item)) wrong_type(k, item);
    check_limits(k, item, item.number);
  }
}

void check_size(const Key& k, const Value& v) {
  if (v.kind == Kind::kText) {
    const auto bytes = parse_size(v.text);
    if (!bytes || *bytes == 0) refuse(k, v);
  } else if (numeric(v)) {
    if (!(v.number >= 1 && v.number < 9.2e18 && v.number == std::floor(v.number))) refuse(k, v);
  } else {
    wrong_type(k, v);
  }
}

void check_choice(const Key& k, const Value& v) {
  if (v.kind != Kind::kText) wrong_type(k, v);
  const auto choices = split(k.choices, '|');
  for (const std::string& c : choices)
    if (c == v.text) return;
  refuse(k, v, did_you_mean(v.text, choices));
}

void check_text(const Key& k, const Value& whole, const Value& v) {
  if (v.kind != Kind::kText) wrong_type(k, v);
  if (v.text.empty())
    throw usage_error(fmt::format("{} is empty: expected {}", k.name, expected(k)),
                      "leave the key out for its default", whole.where);
  if (v.text.find('\0') != v.text.npos)
    throw usage_error(fmt::format("{} holds a NUL character", k.name), {}, whole.where);
}

void check_texts(const Key& k, const Value& v) {
  if (v.kind != Kind::kList) return check_text(k, v, v);
  if (v.items.empty()) refuse(k, v);
  for (const Value& item : v.items) check_text(k, v, item);
}

}  // namespace

void refuse_digits(const Key& k, const std::string& digits, const Where& where) {
  throw usage_error(fmt::format("{} = {}: expected {}", k.name, escaped(digits, 80), expected(k)), {}, where);
}

void check_value(const Key& k, const Value& v) {
  switch (k.type) {
    case Type::kInteger:
      if (v.kind != Kind::kInteger) wrong_type(k, v);
      return check_limits(k, v, v.number);
    case Type::kNumber:
      if (!numeric(v)) wrong_type(k, v);
      return check_limits(k, v, v.number);
    case Type::kBool:
      if (v.kind != Kind::kBool) wrong_type(k, v);
      return;
    case Type::kPair:
      return check_pair(k, v);
    case Type::kSize:
      return check_size(k, v);
    case Type::kChoice:
      return check_choice(k, v);
    case Type::kText:
    case Type::kPath:
      return check_text(k, v, v);
    case Type::kTexts:
    case Type::kPaths:
      return check_texts(k, v);
  }
}

}  // namespace trainhost::runfile
