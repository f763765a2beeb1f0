// See json_comments.hpp. Strings are skipped; what remains of Hjson is read as YAML.
#include "core/framework_files/json_comments.hpp"

#include <algorithm>
#include <string_view>

namespace trainhost::framework_files {

std::string without_comments(const std::string& text) {
  std::string out = text;
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      if (out[i] != '\n') out[i] = ' ';
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c && text[i] != '\n'; ++i) i += text[i] == '\\';
      continue;
    }
    // Within a word, as in a URL without quotation marks, they begin no comment.
    if (i > 0 && std::string_view(" \t\r\n,{}[]\"'").find(text[i - 1]) == std::string_view::npos) continue;
    std::size_t end = i;
    if (c == '#' || text.compare(i, 2, "//") == 0)
      end = std::min(text.find('\n', i), text.size());
    else if (text.compare(i, 2, "/*") == 0)
      end = text.find("*/", i + 2) == text.npos ? text.size() : text.find("*/", i + 2) + 2;
    if (end > i) blank(i, end), i = end - 1;
  }
  return out;
}

}  // namespace trainhost::framework_files
