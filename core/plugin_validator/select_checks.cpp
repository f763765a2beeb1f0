// See select_checks.hpp.
#include "core/plugin_validator/select_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::plugin_validator {
namespace {

bool is_number(const std::string& w) {
  return !w.empty() && w.size() < 4 &&
         std::all_of(w.begin(), w.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void require_known(const std::vector<std::string>& words, const char* option) {
  for (const std::string& w : words) {
    if (is_number(w)) {
      if (const int level = std::stoi(w); level < 1 || level > kLevels)
        throw usage_error(fmt::format("{} {}: no such level; levels are 1 to {}", option, w, kLevels));
      continue;
    }
    if (find(w)) continue;
    std::vector<std::string> ids;
    for (const Check& c : checks()) ids.push_back(c.id);
    throw usage_error(fmt::format("{}: no check '{}'", option, escaped(w)) + did_you_mean(w, ids),
                      "trainhost plugins check --list");
  }
}

bool names(const std::vector<std::string>& words, const Check& c) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& w) {
    return is_number(w) ? std::stoi(w) == c.level : w == c.id;
  });
}

void add_with_needs(const Check& c, std::set<std::string>& all) {
  if (!all.insert(c.id).second) return;
  for (const std::string& id : c.needs)
    if (const Check* need = find(id)) add_with_needs(*need, all);
}

}  // namespace

Selection select(int level, const std::vector<std::string>& only, const std::vector<std::string>& skip,
                 const std::string& kind) {
  require_known(only, "--only");
  require_known(skip, "--skip");
  Selection s;
  std::set<std::string> all;
  for (const Check& c : checks()) {
    const bool of_kind = c.kind() == Kind::kCommon || kind == name_of(c.kind());
    if (!of_kind || names(skip, c) || (only.empty() ? c.level > level : !names(only, c))) continue;
    s.asked.insert(c.id);
    add_with_needs(c, all);
  }
  for (const Check& c : checks())
    if (all.count(c.id)) s.plan.push_back(&c);
  return s;
}

}  // namespace trainhost::plugin_validator
