// Files of other frameworks in tests: the fixtures beside this file, or text written to a temporary folder.
#pragma once
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/framework_files/read_files.hpp"
#include "tests/core/runfile/folder.hpp"

namespace trainhost::testing {

inline std::string fixture(const std::string& name) { return std::string(TRAINHOST_FIXTURES) + "/" + name; }

/// Run-file key -> "value", or "value @LINE" where a line of a file gives it.
inline std::map<std::string, std::string> by_key(const framework_files::FileSettings& s) {
  std::map<std::string, std::string> out;
  for (const runfile::Override& o : s.settings)
    out[o.key] = o.where.line ? fmt::format("{} @{}", o.value, o.where.line) : o.value;
  return out;
}

/// The settings of one text with the file name `name`.
inline framework_files::FileSettings read_text(const std::string& name, const std::string& text,
                                               const std::vector<runfile::Override>& given = {}) {
  const Folder folder;
  std::ofstream(folder.path() / name) << text;
  return framework_files::read_files({(folder.path() / name).string()}, given);
}

/// "FILE:LINE: message (hint)" of the error of reading that text, with the file name alone; "" without an
/// error.
inline std::string error_of(const std::string& name, const std::string& text,
                            const std::vector<runfile::Override>& given = {}) {
  try {
    read_text(name, text, given);
    return "";
  } catch (const Error& e) {
    const std::string file = e.where().file.substr(e.where().file.find_last_of('/') + 1);
    return fmt::format("{}:{}: {}{}", file, e.where().line, e.what(),
                       e.hint().empty() ? "" : " (" + e.hint() + ")");
  }
}

}  // namespace trainhost::testing
