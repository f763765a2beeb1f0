// Each reader parses one value or calls wrong(), which throws with key, value and expectation. Which keys a
// plugin has is stated in its manifest, which the host checks. See options.hpp.
#include "plugins/estimators/common/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"

namespace trainhost::rules {
namespace {

std::string plain(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

Options::Options(const th_host* host, std::string plugin)
    : Options([host](const char* key) { return host && host->option ? host->option(host, key) : nullptr; },
              std::move(plugin)) {}

void Options::wrong(const char* key, const std::string& value, const std::string& expected) const {
  // The host passes `framework` with the keys of [plan].
  const std::string table = text_("framework") ? "plan" : "plugin." + plugin_;
  throw abi::StatusError(TH_E_ARG, table + "." + key + " = " + escaped(value, 60) + ": expected " + expected);
}

std::optional<std::string> Options::text(const char* key) const {
  const char* given = text_(key);
  return given ? std::optional<std::string>(given) : std::nullopt;
}

std::optional<std::uint64_t> Options::count(const char* key) const {
  const char* given = text_(key);
  if (!given) return std::nullopt;
  const std::optional<std::uint64_t> n = parse_size(given);
  if (!n || *n == 0) wrong(key, given, "a positive integer or size, for example 7e9 or 25MiB");
  return n;
}

std::optional<double> Options::number(const char* key, double least, double most) const {
  const char* given = text_(key);
  if (!given) return std::nullopt;
  double n = 0;
  const char* end = given + std::strlen(given);
  const auto [rest, failed] = std::from_chars(given, end, n);
  if (failed != std::errc{} || rest != end || !(n >= least && n <= most))
    wrong(key, given, "a number from " + plain(least) + " to " + plain(most));
  return n;
}

std::optional<std::size_t> Options::choice(const char* key, const std::vector<std::string>& values) const {
  const char* given = text_(key);
  if (!given) return std::nullopt;
  const auto at = std::find(values.begin(), values.end(), given);
  if (at != values.end()) return static_cast<std::size_t>(at - values.begin());
  std::string all;
  for (const std::string& w : values) all += (all.empty() ? "" : w == values.back() ? " or " : ", ") + w;
  wrong(key, given, all + did_you_mean(given, values));
}

std::optional<std::string> Options::word(const char* key, const std::vector<std::string>& values) const {
  const std::optional<std::size_t> at = choice(key, values);
  return at ? std::optional(values[*at]) : std::nullopt;
}

bool Options::flag(const char* key, bool otherwise) const {
  return choice(key, {"false", "true"}).value_or(otherwise) == 1;
}

}  // namespace trainhost::rules
