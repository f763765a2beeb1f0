// Checks one value against its schema row: first the type, then the limits. Rules for several keys:
// combinations.cpp. Messages have the form KEY = VALUE: expected ACCEPTED VALUES, so they can be understood
// without the documentation.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/base/text.hpp"
#include "core/runfile/named_values.hpp"

namespace trainhost::runfile {
namespace {

using Kind = Value::Kind;

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    out.emplace_back(text.substr(at, end - at));
    if (end == text.npos) return out;
    at = end + 1;
  }
}

}  // namespace

/// Used in messages and in docs/run-file.md, so both state the same limits.
std::string limits_text(const Key& k) {
  if (k.type == Type::kInteger) {
    const auto low = static_cast<std::int64_t>(k.min);
    return k.max >= 1e12 ? fmt::format(" from {}", low)
                         : fmt::format(" from {} to {}", low, static_cast<std::int64_t>(k.max));
  }
  // The schema writes exclusive limits as the smallest positive number and as a number just below 1.
  const bool above_zero = k.min > 0 && k.min < 1e-200, below_one = k.max < 1 && k.max > 0.999;
  if (below_one) return fmt::format(" in [{}, 1)", k.min);
  const std::string from = above_zero ? " above 0" : fmt::format(" from {}", k.min);
  if (k.max >= 1e12) return from;
  return from + (above_zero ? fmt::format(", at most {}", k.max) : fmt::format(" to {}", k.max));
}

std::string accepted_values(const Key& k) {
  switch (k.type) {
    case Type::kInteger:
      return "a whole number" + limits_text(k);
    case Type::kNumber:
      return "a number" + limits_text(k);
    case Type::kPair:
      return "a list of two numbers, each" + limits_text(k);
    case Type::kNumbers:
      return "a list of numbers, each" + limits_text(k);
    case Type::kSize:
      return "a size with unit such as \"512MiB\", \"80GB\" or \"4096B\"";
    case Type::kBool:
      return "true or false";
    case Type::kChoice:
      return fmt::format("one of {}", fmt::join(split_at(k.choices, '|'), ", "));
    case Type::kText:
    case Type::kPath:
      return "a string";
    case Type::kTexts:
    case Type::kPaths:
      return "a string or a list of strings";
  }
  return "";
}

namespace {

[[noreturn]] void reject_value(const Key& k, const Value& v, const std::string& suggestion = {}) {
  throw usage_error(fmt::format("{} = {}: expected {}{}", k.name, written(v), accepted_values(k), suggestion),
                    {}, v.where);
}

/// How a whole number is written that a text means: "write 4096" for "4,096", "4 096" and "4096 ", "write
/// 4096, or 4000" for "4k"; "" for any other text, and for numbers outside of the limits.
std::string number_meant(const Key& k, std::string_view text) {
  std::int64_t n = 0;
  std::size_t at = 0;
  for (bool digit_before = false; at < text.size() && n < 1'000'000'000'000; ++at) {
    const bool digit = text[at] >= '0' && text[at] <= '9';
    if (digit) n = 10 * n + (text[at] - '0');
    // Separators of thousands.
    if (!digit && !(digit_before && (text[at] == ',' || text[at] == ' ' || text[at] == '_'))) break;
    digit_before = digit;
  }
  const std::string_view unit = text.substr(at);
  const bool thousand = unit == "k" || unit == "K", million = unit == "m" || unit == "M";
  const std::int64_t of_two = thousand ? 1 << 10 : million ? 1 << 20 : 1;
  const std::int64_t of_ten = thousand ? 1000 : million ? 1'000'000 : 1;
  const auto fits = [&](std::int64_t v) {
    return static_cast<double>(v) >= k.min && static_cast<double>(v) <= k.max;
  };
  if (at == 0 || (!unit.empty() && of_two == 1) || !fits(n * of_ten) || !fits(n * of_two)) return "";
  const std::string decimal = std::to_string(n * of_ten);
  return of_two == 1 ? "write " + decimal : "write " + std::to_string(n * of_two) + ", or " + decimal;
}

/// A value of the right kind but outside the limits is reject_value(); here the kind itself is wrong.
[[noreturn]] void reject_type(const Key& k, const Value& v) {
  // 1e3 is a float in TOML; the hint shows the same number as an integer.
  const bool is_integral = k.type == Type::kInteger && v.kind == Kind::kNumber &&
                           v.number == std::floor(v.number) && std::abs(v.number) < 1e15 &&
                           v.number >= k.min && v.number <= k.max;
  throw usage_error(
      fmt::format("{} = {}: expected {}, got {}", k.name, written(v), accepted_values(k), kind_name(v)),
      is_integral                                                ? fmt::format("write {:.0f}", v.number)
      : k.type == Type::kInteger && v.kind == Value::Kind::kText ? number_meant(k, v.text)
                                                                 : "",
      v.where);
}

/// TOML has two kinds of numbers; a key of type number accepts both.
bool is_numeric(const Value& v) { return v.kind == Kind::kInteger || v.kind == Kind::kNumber; }

/// The comparison is false for NaN, so NaN is rejected.
void validate_limits(const Key& k, const Value& whole, double number) {
  if (!(std::isfinite(number) && number >= k.min && number <= k.max)) reject_value(k, whole);
}

/// Limits apply to every number.
void validate_numbers(const Key& k, const Value& v) {
  if (v.kind != Kind::kList) reject_type(k, v);
  if (k.type == Type::kPair ? v.items.size() != 2 : v.items.empty()) reject_value(k, v);
  for (const Value& item : v.items) {
    if (!is_numeric(item)) reject_type(k, item);
    validate_limits(k, item, item.number);
  }
}

/// A number without a unit would be bytes, but 24 is meant as GiB: it is rejected. 0 bytes would mean "no
/// memory" and is always a mistake.
void validate_size(const Key& k, const Value& v) {
  const bool number = is_numeric(v) || (v.kind == Kind::kText && parse_size(v.text) &&
                                        v.text.find_first_of("bBkKmMgGtTpP") == v.text.npos);
  if (number && !(is_numeric(v) && v.number <= 0)) {
    const std::string digits = v.kind == Kind::kText ? v.text : written(v);
    throw usage_error(fmt::format("{} = {}: a size needs a unit", k.name, escaped(digits, 40)),
                      fmt::format("for example \"{0}GiB\", or \"{0}B\" for bytes", escaped(digits, 40)),
                      v.where);
  }
  if (number) reject_value(k, v);
  if (v.kind != Kind::kText) reject_type(k, v);
  const auto bytes = parse_size(v.text);
  // "24G" of a job script is nearly always meant in units of 1024.
  if (!bytes && parse_size(v.text + "iB"))
    reject_value(k, v, fmt::format("; did you mean \"{}iB\"?", v.text));
  if (!bytes || *bytes == 0) reject_value(k, v);
}

/// Choices are case-sensitive; a different case gets a suggestion.
void validate_choice(const Key& k, const Value& v) {
  if (v.kind != Kind::kText) reject_type(k, v);
  const auto choices = split_at(k.choices, '|');
  for (const std::string& c : choices)
    if (c == v.text) return;
  reject_value(k, v, did_you_mean(v.text, choices));
}

/// An empty string is rejected: it would be taken for "unset".
void validate_text(const Key& k, const Value& whole, const Value& v) {
  if (v.kind != Kind::kText) reject_type(k, v);
  if (v.text.empty())
    throw usage_error(fmt::format("{} is empty: expected {}", k.name, accepted_values(k)),
                      "remove the key to use its default", whole.where);
  // TOML allows NUL in a string; system calls would read only the text before it.
  if (v.text.find('\0') != v.text.npos)
    throw usage_error(fmt::format("{} contains a NUL character", k.name), {}, whole.where);
}

void validate_texts(const Key& k, const Value& v) {
  if (v.kind != Kind::kList) return validate_text(k, v, v);
  if (v.items.empty())
    throw usage_error(fmt::format("{} = []: expected {}, at least one", k.name, accepted_values(k)),
                      "leave the key out for its default", v.where);
  for (const Value& item : v.items) validate_text(k, v, item);
}

}  // namespace

void reject_digits(const Key& k, const std::string& digits, const Where& where) {
  throw usage_error(fmt::format("{} = {}: expected {}", k.name, escaped(digits, 80), accepted_values(k)), {},
                    where);
}

void validate_value(const Key& k, const Value& v) {
  switch (k.type) {
    case Type::kInteger:
      if (v.kind != Kind::kInteger) reject_type(k, v);
      return validate_limits(k, v, v.number);
    case Type::kNumber:
      if (!is_numeric(v)) reject_type(k, v);
      return validate_limits(k, v, v.number);
    case Type::kBool:
      if (v.kind != Kind::kBool) reject_type(k, v);
      return;
    case Type::kPair:
    case Type::kNumbers:
      return validate_numbers(k, v);
    case Type::kSize:
      return validate_size(k, v);
    case Type::kChoice:
      return validate_choice(k, v);
    case Type::kText:
    case Type::kPath:
      validate_text(k, v, v);
      return validate_names(k, v);
    case Type::kTexts:
    case Type::kPaths:
      validate_texts(k, v);
      return validate_names(k, v);
  }
}

}  // namespace trainhost::runfile
