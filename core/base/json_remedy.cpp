// See json_remedy.hpp.
#include "core/base/json_remedy.hpp"

#include <algorithm>

namespace trainhost {

bool is_truncated_json(std::string_view text, const JsonError& e) {
  if (e.at >= text.size()) return true;
  const std::string_view rest = text.substr(e.at);
  // A string that ends with the text: no quotation mark behind its first one but escaped ones.
  if (rest.front() == '"') {
    for (std::size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == '"') return false;
      i += rest[i] == '\\';
    }
    return true;
  }
  // A word of JSON, or a number, that ends with the text.
  return rest.find_first_of(" \t\r\n,:{}[]\"'") == rest.npos &&
         (std::string_view("true").starts_with(rest) || std::string_view("false").starts_with(rest) ||
          std::string_view("null").starts_with(rest) ||
          rest.find_first_not_of("+-.0123456789eE") == rest.npos);
}

bool is_trailing_comma(std::string_view text, const JsonError& e) {
  if (e.at >= text.size() || (text[e.at] != '}' && text[e.at] != ']')) return false;
  const std::size_t before = text.substr(0, e.at).find_last_not_of(" \t\r\n");
  return before != text.npos && text[before] == ',';
}

std::string json_remedy(std::string_view text, const JsonError& e) {
  if (text.starts_with("version https://git-lfs")) return "the file is a Git LFS pointer: run 'git lfs pull'";
  if (text.starts_with("<"))
    return "the file is a web page: download the file itself, for example with `hf download`";
  if (is_truncated_json(text, e)) return "the file is truncated: copy it again";
  if (is_trailing_comma(text, e))
    return std::string("remove the comma before '") + text[e.at] + "': JSON has none behind the last value";
  return "";
}

}  // namespace trainhost
