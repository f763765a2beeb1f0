// See file_keys.hpp.
#include "core/report/file_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {
namespace {

using runfile::FileKey;
using runfile::KeyUse;

/// "a, b, c" of the keys with that use, each once.
std::string keys_of(const std::vector<FileKey>& keys, KeyUse use) {
  std::string out;
  std::set<std::string> seen;
  for (const FileKey& k : keys)
    if (k.use == use && (use != KeyUse::kUsed || k.note.empty()) && seen.insert(k.key).second)
      out += (out.empty() ? "" : ", ") + escaped(k.key, 80);
  return out;
}

std::string files_of(const std::vector<FileKey>& keys) {
  std::vector<std::string> files;
  for (const FileKey& k : keys)
    if (std::ranges::find(files, k.where.file) == files.end()) files.push_back(k.where.file);
  return escaped(fmt::format("{}", fmt::join(files, ", ")), 400);
}

std::string one_key(const FileKey& k) {
  // An option of the command line has no line.
  const std::string place =
      k.where.line ? fmt::format("{}:{} ", escaped(k.where.file, 200), k.where.line) : "";
  return fmt::format("{}{} = {}{}", place, escaped(k.key, 80), k.value,
                     k.note.empty() ? "" : " (" + k.note + ")");
}

const char* word_of(KeyUse use) {
  switch (use) {
    case KeyUse::kUsed:
      return "used";
    case KeyUse::kWithoutEffect:
      return "without_effect";
    case KeyUse::kNotModelled:
      return "not_modelled";
    case KeyUse::kNotUnderstood:
      return "not_understood";
  }
  return "";
}

}  // namespace

std::string needs_more_text(const std::vector<FileKey>& keys) {
  std::string out;
  for (const FileKey& k : keys)
    if (k.needs_more)
      out += (out.empty() ? "not planned, and may need more memory: " : ", ") +
             // The name of a model states what is not planned; an option alone does not.
             escaped(k.key.starts_with("--") ? k.value : k.key, 80);
  // A key without a similar one may be of another program; a misspelt one was meant to count.
  std::string misspelt;
  for (const FileKey& k : keys)
    if (k.use == KeyUse::kNotUnderstood && !k.note.empty())
      misspelt += (misspelt.empty() ? "not understood, perhaps misspelt: " : ", ") + escaped(k.key, 80);
  return out + (out.empty() || misspelt.empty() ? "" : "; ") + misspelt;
}

void add_file_keys(JsonValue& document, const std::vector<FileKey>& keys) {
  if (keys.empty()) return;
  JsonValue list = JsonValue::array();
  for (const FileKey& k : keys) {
    JsonValue key = {{"key", k.key},         {"value", k.value},      {"file", k.where.file},
                     {"line", k.where.line}, {"use", word_of(k.use)}, {"note", k.note}};
    if (k.needs_more) key["needs_more"] = true;
    list.push_back(std::move(key));
  }
  document["file_keys"] = std::move(list);
}

std::vector<std::string> file_keys_sentences(const std::vector<FileKey>& keys) {
  std::vector<std::string> out;
  if (const std::string used = keys_of(keys, KeyUse::kUsed); !used.empty()) out.push_back("used: " + used);
  if (const std::string rest = keys_of(keys, KeyUse::kWithoutEffect); !rest.empty())
    out.push_back("without effect on memory: " + rest);
  for (const FileKey& k : keys)  // values that a script only has by default
    if (k.use == KeyUse::kUsed && !k.note.empty()) out.push_back("assumed: " + one_key(k));
  for (const FileKey& k : keys)
    if (k.use == KeyUse::kNotModelled)
      out.push_back((k.needs_more ? "not modelled, may need more: " : "not modelled: ") + one_key(k));
  for (const FileKey& k : keys)
    if (k.use == KeyUse::kNotUnderstood) out.push_back("not understood: " + one_key(k));
  return out;
}

std::string file_keys_text(const std::vector<FileKey>& keys, const Terminal& t) {
  if (keys.empty()) return "";
  std::string out = styled(t, Style::kAccent, "keys of " + files_of(keys)) + "\n";
  for (const std::string& sentence : file_keys_sentences(keys))
    out += wrapped("  " + sentence, line_width(t), "    ") + "\n";
  return out;
}

}  // namespace trainhost::report
