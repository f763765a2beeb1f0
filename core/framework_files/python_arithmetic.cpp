// See python_arithmetic.hpp.
#include "core/framework_files/python_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace trainhost::framework_files::python {

using runfile::Value;

namespace {

bool equal(const Value& a, const Value& b) {
  const auto number = [](const Value& v) {
    return v.kind == Value::Kind::kInteger || v.kind == Value::Kind::kNumber;
  };
  if (number(a) && number(b)) return a.number == b.number;
  if (a.kind != b.kind) return false;
  if (a.kind == Value::Kind::kText) return a.text == b.text;
  if (a.kind == Value::Kind::kBool) return a.boolean == b.boolean;
  if (a.kind == Value::Kind::kList) return std::ranges::equal(a.items, b.items, equal);
  return a.kind == Value::Kind::kNull;
}

std::optional<std::int64_t> whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  if (exponent > 64) return std::nullopt;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(out, base, &out)) return std::nullopt;
  return out;
}

}  // namespace

PyValue known(Value v) {
  PyValue out;
  out.known = true, out.value = std::move(v);
  return out;
}
PyValue none() { return known({}); }
PyValue of_text(std::string text) { return known(runfile::text_value(std::move(text))); }
PyValue of_flag(bool flag) {
  Value v;
  v.kind = Value::Kind::kBool, v.boolean = flag;
  return known(std::move(v));
}
PyValue of_integer(std::int64_t n) {
  Value v;
  v.kind = Value::Kind::kInteger, v.integer = n, v.number = static_cast<double>(n);
  return known(std::move(v));
}
PyValue of_number(double n) {
  if (!std::isfinite(n)) return {};
  Value v;
  v.kind = Value::Kind::kNumber, v.number = n, v.text = fmt::format("{}", n);
  return known(std::move(v));
}
PyValue not_known(std::string why) {
  PyValue out;
  out.why = std::move(why);
  return out;
}

bool is_number(const PyValue& v) {
  return v.known && (v.value.kind == Value::Kind::kInteger || v.value.kind == Value::Kind::kNumber);
}
bool is_text(const PyValue& v) { return v.known && v.value.kind == Value::Kind::kText; }

bool holds(const PyValue& v) {
  switch (v.value.kind) {
    case Value::Kind::kNull:
      return false;
    case Value::Kind::kBool:
      return v.value.boolean;
    case Value::Kind::kInteger:
    case Value::Kind::kNumber:
      return v.value.number != 0;
    case Value::Kind::kText:
      return !v.value.text.empty();
    case Value::Kind::kList:
      return !v.value.items.empty();
    default:
      return !v.members.empty();
  }
}

PyValue number_of(std::string text) {
  std::erase(text, '_');
  int base = 10;
  std::size_t skip = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    if (base != 10) skip = 2;
  }
  const char *begin = text.data() + skip, *end = text.data() + text.size();
  std::int64_t n = 0;
  if (const auto [rest, failed] = std::from_chars(begin, end, n, base); failed == std::errc{} && rest == end)
    return of_integer(n);
  if (base != 10) return {};
  if (text.ends_with('.')) text += '0';
  if (text.starts_with('.')) text.insert(text.begin(), '0');
  double x = 0;
  const char* last = text.data() + text.size();
  if (const auto [rest, failed] = std::from_chars(text.data(), last, x);
      failed == std::errc{} && rest == last)
    return of_number(x);
  return {};
}

PyValue arithmetic(const std::string& o, const PyValue& a, const PyValue& b) {
  // Values that double each other would fill the memory.
  constexpr std::size_t kLongest = 65'536;
  if (o == "+" && is_text(a) && is_text(b)) {
    if (a.value.text.size() + b.value.text.size() > kLongest) return {};
    return of_text(a.value.text + b.value.text);
  }
  if (o == "+" && a.known && b.known && a.value.kind == Value::Kind::kList &&
      b.value.kind == Value::Kind::kList) {
    if (a.value.items.size() + b.value.items.size() > kLongest) return {};
    PyValue out = a;
    out.value.items.insert(out.value.items.end(), b.value.items.begin(), b.value.items.end());
    return out;
  }
  if (!is_number(a) || !is_number(b)) return {};
  const Value &l = a.value, &r = b.value;
  if (l.kind == Value::Kind::kInteger && r.kind == Value::Kind::kInteger) {
    std::int64_t n = 0;
    const bool divides = r.integer != 0 && !(l.integer == INT64_MIN && r.integer == -1);
    if (o == "+" && !__builtin_add_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "-" && !__builtin_sub_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "*" && !__builtin_mul_overflow(l.integer, r.integer, &n)) return of_integer(n);
    if (o == "//" && divides)
      return of_integer(l.integer / r.integer -
                        ((l.integer % r.integer != 0) && ((l.integer < 0) != (r.integer < 0))));
    if (o == "%" && divides) {
      const std::int64_t rest = l.integer % r.integer;  // with the sign of l; Python's has that of r
      return of_integer(rest != 0 && (rest < 0) != (r.integer < 0) ? rest + r.integer : rest);
    }
    if (o == "<<" && r.integer >= 0 && r.integer < 62 && l.integer >= 0 &&
        l.integer <= (INT64_MAX >> r.integer))
      return of_integer(l.integer << r.integer);
    if (o == "**" && r.integer >= 0) {
      const auto power = whole_power(l.integer, r.integer);
      return power ? of_integer(*power) : PyValue{};
    }
    if (o != "/" && o != "**") return {};
  }
  if (o == "+") return of_number(l.number + r.number);
  if (o == "-") return of_number(l.number - r.number);
  if (o == "*") return of_number(l.number * r.number);
  if (o == "/" && r.number != 0) return of_number(l.number / r.number);
  if (o == "//" && r.number != 0) return of_number(std::floor(l.number / r.number));
  if (o == "**") return of_number(std::pow(l.number, r.number));
  return {};
}

PyValue comparison(const std::string& o, const PyValue& a, const PyValue& b) {
  if (!a.known || !b.known) return {};
  if (o == "==" || o == "is") return of_flag(equal(a.value, b.value));
  if (o == "!=" || o == "is not") return of_flag(!equal(a.value, b.value));
  if (o == "in" || o == "not in") {
    bool found = false;
    if (b.value.kind == Value::Kind::kList)
      found = std::ranges::any_of(b.value.items, [&](const Value& v) { return equal(a.value, v); });
    else if (is_text(a) && is_text(b))
      found = b.value.text.find(a.value.text) != std::string::npos;
    else
      return {};
    return of_flag(found == (o == "in"));
  }
  if (!is_number(a) || !is_number(b)) return {};
  const double l = a.value.number, r = b.value.number;
  if (o == "<") return of_flag(l < r);
  if (o == ">") return of_flag(l > r);
  if (o == "<=") return of_flag(l <= r);
  if (o == ">=") return of_flag(l >= r);
  return {};
}

}  // namespace trainhost::framework_files::python
