// See check_pages.hpp.
#include "core/plugin_validator/check_pages.hpp"

#include <fmt/format.h>

#include <sstream>

namespace trainhost::plugin_validator {
namespace {

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream in(text);
  std::string out, line;
  for (std::string w; in >> w;) {
    if (!line.empty() && line.size() + 1 + w.size() > width) out += line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + w;
  }
  return out + line + "\n";
}

std::string joined(const std::vector<std::string>& ids, bool links) {
  std::string out;
  for (const std::string& id : ids)
    out += (out.empty() ? "" : ", ") + (links ? fmt::format("[{}]({}.md)", id, id) : id);
  return out;
}

const char* whom(const Check& c) {
  return c.kind() == Kind::kCommon      ? "every plugin"
         : c.kind() == Kind::kEstimator ? "estimators"
                                        : "trainers";
}

std::string page(const Check& c) {
  std::string out = fmt::format("# {}: {}\n\n", c.id, c.title);
  out += fmt::format("Level {} ({}), for {}.\n\n", c.level, level_title(c.level), whom(c));
  out += wrapped(c.why, 110);
  if (!c.needs.empty()) out += fmt::format("\nIs skipped unless these passed: {}.\n", joined(c.needs, true));
  out += fmt::format("\n```sh\ntrainhost plugins check FILE.so --only {}\n```\n", c.id);
  return out;
}

}  // namespace

std::string explain(const Check& c) {
  std::string out = fmt::format("{}  {}\nlevel {}: {}; for {}\n\n{}", c.id, c.title, c.level,
                                level_title(c.level), whom(c), wrapped(c.why, 100));
  if (!c.needs.empty()) out += fmt::format("\nneeds {}\n", joined(c.needs, false));
  return out;
}

std::map<std::string, std::string> pages() {
  std::map<std::string, std::string> out;
  std::string index =
      "# What `trainhost plugins check` checks\n\n"
      "Written by `trainhost plugins check --pages DIR` from the table of checks; do not edit.\n";
  int level = 0;
  for (const Check& c : checks()) {
    if (c.level != level) index += fmt::format("\n## Level {}: {}\n\n", c.level, level_title(c.level));
    level = c.level;
    index += fmt::format("- [{}]({}.md) {}\n", c.id, c.id, c.title);
    out[c.id + ".md"] = page(c);
  }
  out["README.md"] = index;
  return out;
}

}  // namespace trainhost::plugin_validator
