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

using Settings = std::map<std::string, std::string>;

/// The value without its line; "" if the key is not set.
inline std::string value(const Settings& s, const std::string& key) {
  const auto found = s.find(key);
  return found == s.end() ? "" : found->second.substr(0, found->second.find(" @"));
}

inline Settings settings(const std::string& name, const std::string& text,
                         const std::vector<runfile::Override>& given = {}) {
  return by_key(read_text(name, text, given));
}

/// What became of `key`, and the note.
inline std::pair<runfile::KeyUse, std::string> fate(const std::string& name, const std::string& text,
                                                    const std::string& key,
                                                    const std::vector<runfile::Override>& given = {}) {
  for (const runfile::FileKey& k : read_text(name, text, given).keys)
    if (k.key == key) return {k.use, k.note};
  return {runfile::KeyUse::kNotUnderstood, "no such key"};
}

inline const std::vector<runfile::Override> kModelOf8Ranks = {{"model.preset", "llama-3-8b"},
                                                              {"data.seq_len", "128"},
                                                              {"train.micro_batch", "1"},
                                                              {"parallel.data", "8"}};

}  // namespace trainhost::testing
