// See key_positions.hpp.
#include "core/planning/key_positions.hpp"

#include <string_view>

namespace trainhost::planning {
namespace {

/// "parallel.tensor" of "parallel.tensor = 3 does not divide 32 heads"; "" of a sentence that begins
/// otherwise.
std::string key_at_front(std::string_view sentence) {
  const std::size_t end = sentence.find_first_of(" :");
  if (end == sentence.npos || sentence.substr(0, end).find('.') == sentence.npos) return {};
  return std::string(sentence.substr(0, end));
}

}  // namespace

Where place_of(const runfile::RunConfig& c, const std::string& key) {
  if (const auto at = c.given.find(key); at != c.given.end()) return at->second;
  constexpr std::string_view kPlugin = "plugin.";
  if (!key.starts_with(kPlugin)) return {};
  const auto at = c.plugin_option_lines.find(key.substr(kPlugin.size()));
  if (at == c.plugin_option_lines.end() || at->second.first == 0) return {};  // line 0: from the command line
  return {c.file.string(), at->second.first, at->second.second};
}

std::optional<Error> placed(const runfile::RunConfig& c, const Error& e) {
  if (!e.where().file.empty()) return std::nullopt;
  const Where where = place_of(c, key_at_front(e.what()));
  if (where.file.empty()) return std::nullopt;
  return Error(e.code(), e.what(), e.hint(), where);
}

}  // namespace trainhost::planning
