// See select_checks.hpp. A number in --only and --skip is a level, anything else an id.
#include "core/plugin_validator/select_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::plugin_validator {
namespace {

bool is_number(const std::string& selector) {
  // At most three digits, so that stoi() cannot overflow.
  return !selector.empty() && selector.size() < 4 &&
         std::all_of(selector.begin(), selector.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void require_known(const std::vector<std::string>& selectors, const char* option) {
  for (const std::string& selector : selectors) {
    if (is_number(selector)) {
      if (const int level = std::stoi(selector); level < 1 || level > kLevels)
        throw usage_error(fmt::format("{} {}: no such level; levels are 1 to {}", option, selector, kLevels));
      continue;
    }
    if (find(selector)) continue;
    std::vector<std::string> ids;
    for (const Check& c : checks()) ids.push_back(c.id);
    throw usage_error(
        fmt::format("{}: no check '{}'", option, escaped(selector)) + did_you_mean(selector, ids),
        "trainhost plugins check --list");
  }
}

bool is_selected(const std::vector<std::string>& selectors, const Check& c) {
  return std::any_of(selectors.begin(), selectors.end(), [&](const std::string& selector) {
    return is_number(selector) ? std::stoi(selector) == c.level : selector == c.id;
  });
}

// Prerequisites of prerequisites too; the set ends cycles, of which the table has none.
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
    // The checks of the later levels call estimators and trainers; a communicator needs other processes.
    constexpr int kWithoutCalls = 3;
    if (kind == "communicator" && c.level > kWithoutCalls) continue;
    // --skip wins over --only. A skipped check that another one needs is still run (below).
    if (!of_kind || is_selected(skip, c) || (only.empty() ? c.level > level : !is_selected(only, c)))
      continue;
    s.asked.insert(c.id);
    add_with_needs(c, all);
  }
  // In the order of the table, in which prerequisites come first.
  for (const Check& c : checks())
    if (all.count(c.id)) s.plan.push_back(&c);
  return s;
}

}  // namespace trainhost::plugin_validator
