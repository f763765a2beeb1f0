// See sweep_axis.hpp. Everything here is text of the command line, so every mistake is a usage_error that
// shows a correct form.
#include "core/planning/sweep_axis.hpp"

#include <fmt/format.h>

#include <cassert>
#include <charconv>
#include <optional>

#include "core/base/text.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::planning {
namespace {

using runfile::Key;
using runfile::Type;

const Where kWhere{"--over"};
constexpr const char* kForms =
    "for example --over data.seq_len=512..16384, 512..4096+512, 1..64*4 or 512,1024,4096";

[[noreturn]] void reject_axis(const std::string& message, const std::string& hint = kForms) {
  throw usage_error(message, hint, kWhere);
}

/// Units of the keys that are usually swept; other axes have none.
std::string unit_of(const std::string& key) {
  if (key == "data.seq_len") return "tokens";
  if (key == "train.micro_batch") return "sequences";
  if (key == "train.grad_accum") return "micro-batches";
  if (key == "model.num_hidden_layers") return "layers";
  if (key.starts_with("parallel.") && key != "parallel.zero" && key != "parallel.sequence") return "ranks";
  return "";
}

/// Digits only: from_chars accepts no sign, space or exponent for an unsigned type. At most INT64_MAX, which
/// is what the run file accepts.
std::optional<std::uint64_t> whole(const std::string& text) {
  std::uint64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (ec != std::errc{} || end != text.data() + text.size() || n > INT64_MAX) return std::nullopt;
  return n;
}

/// A whole number, or a size where the key takes sizes.
std::uint64_t number(const Key& k, const std::string& text, const std::string& what) {
  const auto n = k.type == Type::kSize ? parse_size(text) : whole(text);
  if (!n) reject_axis(fmt::format("'{}' is not a valid {} for {}", escaped(text, 60), what, k.name));
  return *n;
}

/// Only integers have limits in the schema that can be checked here. A combination that is invalid for other
/// reasons is reported per point, when the run is loaded.
void check(const Key& k, std::uint64_t n) {
  if (k.type != Type::kInteger || (double(n) >= k.min && double(n) <= k.max)) return;
  reject_axis(fmt::format("{} = {}: expected a whole number from {} to {}", k.name, n,
                          static_cast<std::int64_t>(k.min), static_cast<std::int64_t>(k.max)),
              "");
}

/// Sizes that are whole GiB or MiB keep their unit, so the label is what the user would write and can be
/// passed to --set.
std::string label(const Key& k, std::uint64_t n) {
  for (const auto& [unit, word] : {std::pair{std::uint64_t{1} << 30, "GiB"}, {std::uint64_t{1} << 20, "MiB"}})
    if (k.type == Type::kSize && n && n % unit == 0) return fmt::format("{}{}", n / unit, word);
  return std::to_string(n);
}

/// "a..b", "a..b+step", "a..b*factor".
/// The end is always a point, even if the step misses it: "512..5000+512" ends with 5000, so a limit in
/// between is not missed.
void add_range(Axis& axis, const Key& k, const std::string& text) {
  if (k.type != Type::kInteger && k.type != Type::kSize)
    reject_axis(
        fmt::format("{} is not a number: list its values", k.name),
        fmt::format("for example --over {}={}", k.name, k.type == Type::kChoice ? "none,full" : "a,b"));
  const auto dots = text.find("..");
  std::string last = text.substr(dots + 2), step;
  char op = 0;  // '+' adds a step, '*' multiplies; 0: doubles
  if (const auto at = last.find_first_of("+*"); at != last.npos)
    op = last[at], step = last.substr(at + 1), last.resize(at);
  if (dots == 0 || last.empty() || last.find("..") != last.npos)
    reject_axis(fmt::format("'{}' is not a range: expected FIRST..LAST", escaped(text, 60)));
  const std::uint64_t from = number(k, text.substr(0, dots), "first value"),
                      to = number(k, last, "last value");
  const std::uint64_t by = op ? number(k, step, op == '+' ? "step" : "factor") : 2;
  if (from > to)
    reject_axis(fmt::format("the range {} is descending; write {}..{}", escaped(text, 60), label(k, to),
                            label(k, from)));
  if (op == '+' ? by == 0 : by < 2)
    reject_axis(fmt::format("'{}' is endless: the step must be at least 1, the factor at least 2",
                            escaped(text, 60)));
  if (op != '+' && from == 0)
    reject_axis(fmt::format("'{}' cannot double or multiply 0: use a step, as in 0..8+1", escaped(text, 60)));
  // Only the ends are checked: limits of the schema are intervals, so all values between them are valid too.
  check(k, from), check(k, to);
  assert(from <= to && (op == '+' ? by >= 1 : by >= 2));
  for (std::uint64_t n = from; n < to;) {
    axis.values.push_back({double(n), label(k, n)});
    if (axis.values.size() >= kMostPoints)
      reject_axis(fmt::format("'{}' has more than {} values", escaped(text, 60), kMostPoints),
                  "use a larger step");
    // The next value would wrap around; the loop then ends and `to` is added as the last point.
    if (op == '+' ? n > UINT64_MAX - by : n > UINT64_MAX / by) break;
    n = op == '+' ? n + by : n * by;
  }
  axis.values.push_back({double(to), label(k, to)});
}

/// An empty text is one empty value, which the caller rejects.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(',', at);
    out.push_back(text.substr(at, end - at));
    if (end == text.npos) return out;
    at = end + 1;
  }
}

/// k is null for a key of [plugin.NAME]: its values are texts that only the plugin can check. x is then the
/// index in the list, so points are drawn at equal distances.
void add_list(Axis& axis, const Key* k, const std::string& text) {
  for (const std::string& value : split_list(text)) {
    if (value.empty()) reject_axis(fmt::format("'{}' contains an empty value", escaped(text, 60)));
    AxisValue v{double(axis.values.size()), value};
    if (k && (k->type == Type::kInteger || k->type == Type::kSize)) {
      const std::uint64_t n = number(*k, value, "value");
      check(*k, n);
      v.x = double(n);
    }
    if (k && k->type == Type::kChoice) runfile::validate_value(*k, runfile::text_value(value, kWhere));
    if (axis.values.size() >= kMostPoints)
      reject_axis(fmt::format("more than {} values", kMostPoints), "use fewer values");
    axis.values.push_back(std::move(v));
  }
}

}  // namespace

Axis parse_axis(const std::string& over) {
  const auto equals = over.find('=');
  if (equals == over.npos || equals == 0)
    reject_axis(fmt::format("expected KEY=VALUES, got '{}'", escaped(over, 80)));
  Axis axis;
  axis.key = over.substr(0, equals);
  const std::string text = over.substr(equals + 1);
  const Key* k = runfile::find_key(axis.key);
  const bool of_plugin = axis.key.starts_with("plugin.");
  if (!k && !of_plugin)
    reject_axis(fmt::format("unknown key '{}'{}", escaped(axis.key, 80), runfile::suggest_key(axis.key)), "");
  if (text.empty()) reject_axis(fmt::format("{} has no values", axis.key));
  axis.unit = unit_of(axis.key);
  axis.bytes = k && k->type == Type::kSize;
  axis.whole_numbers = k && k->type == Type::kInteger;
  // Paths may contain "..", so they are never ranges.
  if (k && text.find("..") != text.npos && k->type != Type::kPath && k->type != Type::kPaths)
    add_range(axis, *k, text);
  else
    add_list(axis, k, text);
  return axis;
}

}  // namespace trainhost::planning
