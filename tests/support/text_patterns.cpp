// See text_patterns.hpp.
#include "tests/support/text_patterns.hpp"

#include <map>
#include <regex>

namespace trainhost::test {
namespace {

const std::regex& compiled(const std::string& pattern) {
  static std::map<std::string, std::regex> known;
  const auto at = known.find(pattern);
  return at != known.end() ? at->second : known.emplace(pattern, std::regex(pattern)).first->second;
}

Match groups_of(const std::smatch& m) {
  Match out;
  for (const auto& group : m) out.push_back(group.str());
  return out;
}

}  // namespace

Match find_pattern(const std::string& text, const std::string& pattern) {
  std::smatch m;
  return std::regex_search(text, m, compiled(pattern)) ? groups_of(m) : Match();
}

std::vector<Match> find_patterns(const std::string& text, const std::string& pattern) {
  std::vector<Match> out;
  for (std::sregex_iterator it(text.begin(), text.end(), compiled(pattern)), end; it != end; ++it)
    out.push_back(groups_of(*it));
  return out;
}

Match match_pattern(const std::string& text, const std::string& pattern) {
  std::smatch m;
  return std::regex_match(text, m, compiled(pattern)) ? groups_of(m) : Match();
}

std::string replace_patterns(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, compiled(pattern), by);
}

}  // namespace trainhost::test
