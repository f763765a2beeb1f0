// See project.hpp. A project is laid together from folders of sdk/templates, the general first: all, the
// build system, the kind, and the kind in that language. In paths and texts @NAME@ is the id, @TYPE@ the same
// as a type, @FAMILY@ the family. Never: a project that does not compile because of its name (kReserved,
// kTaken).
#include "core/plugin_template/project.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin_template/embedded.hpp"

namespace trainhost::plugin_template {
namespace {

const std::vector<std::string> kKinds = {"estimator", "trainer"};
const std::vector<std::string> kLangs = {"c", "c++", "rust"};
// What else people write for a language, in small letters: a hint, not another spelling of the option.
const std::map<std::string, std::string> kMeant = {
    {"cpp", "c++"}, {"cxx", "c++"}, {"cc", "c++"}, {"cplusplus", "c++"}, {"rs", "rust"}};
// Names of targets that CMake keeps for itself, of a library that projects link (m), of crates that Rust
// keeps, and of a file that trainers in C++ have (check.cpp).
const std::vector<std::string> kReserved = {
    "all", "alloc",   "check",      "clean",      "core",          "edit_cache", "help", "install",
    "m",   "package", "preinstall", "proc_macro", "rebuild_cache", "std",        "test", "trainhost-sdk"};
// Types that a project's sources use: those of the crate and of the templates, and what Rust knows
// everywhere. One that is named after the project would stand before them.
const std::vector<std::string> kTaken = {
    "Box",     "Buffer",   "Counters",    "Entry",   "Err",    "Error",    "Estimator",  "Generate",
    "Host",    "Instance", "Leaf",        "Model",   "None",   "Numbered", "Ok",         "Option",
    "Plain",   "Plugin",   "PluginTable", "Profile", "Result", "Run",      "Self",       "Size",
    "Some",    "Step",     "StepResult",  "String",  "Target", "Tensor",   "TensorSink", "Toy",
    "Trainer", "Tree",     "Vec",         "Weights"};
constexpr std::size_t kMaxName = 40;

bool lower(char c) { return c >= 'a' && c <= 'z'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

bool valid(const std::string& name) {
  const auto ok = [](char c) { return lower(c) || digit(c) || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= kMaxName && lower(name[0]) &&
         std::all_of(name.begin(), name.end(), ok);
}

/// The nearest name that would do: "Acme Conv" -> "acme-conv". "" where nothing is left.
std::string tidied(const std::string& name) {
  std::string out;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (lower(c) || (!out.empty() && (digit(c) || c == '_')))
      out += c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  out.resize(std::min(out.size(), kMaxName));
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

void check_name(const char* what, const std::string& name) {
  if (valid(name)) return;
  const std::string better = tidied(name);
  throw usage_error(std::string("the ") + what + " '" + escaped(name) +
                    "' is not 1 to 40 of a-z 0-9 - _ beginning with a letter" +
                    (better.empty() ? "" : "; did you mean '" + better + "'?"));
}

void check_word(const char* option, const std::string& word, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  const auto meant = kMeant.find(tidied(word));
  const bool knows =
      meant != kMeant.end() && std::find(known.begin(), known.end(), meant->second) != known.end();
  const std::string better = knows ? "; did you mean '" + meant->second + "'?" : did_you_mean(word, known);
  const std::string wrong = word.empty() ? " is missing" : " '" + escaped(word) + "' is unknown";
  throw usage_error(option + wrong + better, "one of " + all);
}

/// "acme-conv" -> "AcmeConv"; "model" -> "ModelPlugin", for there is a Model already.
std::string type_of(const std::string& name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (c == '-' || c == '_')
      upper = true;
    else
      out += std::exchange(upper, false) && lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return std::find(kTaken.begin(), kTaken.end(), out) == kTaken.end() ? out : out + "Plugin";
}

std::string filled(std::string_view text, const std::map<std::string, std::string>& words) {
  std::string out(text);
  for (const auto& [word, value] : words)
    for (std::size_t at = 0; (at = out.find(word, at)) != out.npos; at += value.size())
      out.replace(at, word.size(), value);
  return out;
}

}  // namespace

std::vector<File> project(const Request& r) {
  check_name("name", r.name);
  if (std::find(kReserved.begin(), kReserved.end(), r.name) != kReserved.end())
    throw usage_error("the name '" + r.name + "' is a word of CMake or Cargo, or of the project itself",
                      "for example " + r.name + "-memory");
  check_word("--kind", r.kind, kKinds);
  check_word("--lang", r.lang, kLangs);
  const std::string family = r.family.empty() ? r.name : r.family;
  check_name("family", family);

  std::string crate = r.name;
  std::replace(crate.begin(), crate.end(), '-', '_');
  const std::string language = r.lang == "rust" ? "Rust" : r.lang == "c" ? "C" : "C++";  // as in a sentence
  const bool cpp = r.lang == "c++";
  const std::map<std::string, std::string> words = {{"@NAME@", r.name},
                                                    {"@CRATE@", crate},
                                                    {"@TYPE@", type_of(r.name)},
                                                    {"@FAMILY@", family},
                                                    {"@KIND@", r.kind},
                                                    {"@LANG@", language},
                                                    {"@CC@", cpp ? "CXX" : "CC"},
                                                    {"@COMPILER@", cpp ? "c++" : "cc"},
                                                    {"@GCC@", cpp ? "g++" : "gcc"},
                                                    {"@CLANG@", cpp ? "clang++" : "clang"}};
  const std::string lang = r.lang == "c++" ? "cpp" : r.lang;
  std::map<std::string, File> files;  // by path: the particular replaces the general
  const auto add = [&](const std::string& folder, const std::string& to) {
    for (const Embedded& e : templates()) {
      if (e.path.substr(0, folder.size()) != folder) continue;
      File f{to + filled(e.path.substr(folder.size()), words), std::string(e.text), false};
      if (to.empty()) f.text = filled(f.text, words);
      f.executable = f.path.size() > 3 && f.path.compare(f.path.size() - 3, 3, ".sh") == 0;
      files[f.path] = std::move(f);
    }
  };
  for (const std::string& layer : {std::string("all"), std::string(lang == "rust" ? "cargo" : "cmake"),
                                   r.kind, lang, lang + "-" + r.kind})
    add("templates/" + layer + "/", "");
  if (lang == "rust") add("crate/", "vendor/trainhost-sdk/");
  std::vector<File> out;
  for (auto& [path, file] : files) out.push_back(std::move(file));
  return out;
}

}  // namespace trainhost::plugin_template
