// See options.hpp.
#include "plugins/estimators/common/options.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "core/base/text.hpp"
#include "core/bridge/guard.hpp"

namespace trainhost::rules {
namespace {

std::string plain(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

const char* Options::text(const char* key) const {
  return host_ && host_->option ? host_->option(host_, key) : nullptr;
}

void Options::wrong(const char* key, const std::string& value, const std::string& expected) const {
  throw bridge::StatusError(
      TH_E_ARG, "plugin." + plugin_ + "." + key + " = " + escaped(value, 60) + ": expected " + expected);
}

std::optional<std::uint64_t> Options::count(const char* key) const {
  const char* given = text(key);
  if (!given) return std::nullopt;
  const std::optional<std::uint64_t> n = parse_size(given);
  if (!n || *n == 0) wrong(key, given, "a whole number above zero, like 7e9 or 25MiB");
  return n;
}

std::optional<double> Options::number(const char* key, double least, double most) const {
  const char* given = text(key);
  if (!given) return std::nullopt;
  double n = 0;
  const char* end = given + std::strlen(given);
  const auto [rest, failed] = std::from_chars(given, end, n);
  if (failed != std::errc{} || rest != end || !(n >= least && n <= most))
    wrong(key, given, "a number from " + plain(least) + " to " + plain(most));
  return n;
}

std::optional<std::string> Options::word(const char* key, const std::vector<std::string>& words) const {
  const char* given = text(key);
  if (!given) return std::nullopt;
  if (std::find(words.begin(), words.end(), given) != words.end()) return given;
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? "" : w == words.back() ? " or " : ", ") + w;
  wrong(key, given, all + did_you_mean(given, words));
}

}  // namespace trainhost::rules
