// See project.hpp. A project is combined from folders of sdk/templates, from general to specific: all, the
// build system, the kind, the language, and the kind in that language. In paths and texts @NAME@ is the id,
// @TYPE@ the id as a type name, @FAMILY@ the family. kReserved and kTaken list names with which a project
// would not compile.
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
// Other common names of the languages, in lower case: used for a hint, not accepted as values.
const std::map<std::string, std::string> kMeant = {
    {"cpp", "c++"}, {"cxx", "c++"}, {"cc", "c++"}, {"cplusplus", "c++"}, {"rs", "rust"}};
// Reserved CMake targets, a library that projects link (m), reserved Rust crates, and a source file of C++
// trainers (check.cpp).
const std::vector<std::string> kReserved = {
    "all", "alloc",   "check",      "clean",      "core",          "edit_cache", "help", "install",
    "m",   "package", "preinstall", "proc_macro", "rebuild_cache", "std",        "test", "trainhost-sdk"};
// Types of the crate, of the templates and of the Rust prelude. A project type with such a name would hide
// them.
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

/// The nearest valid name: "Acme Conv" -> "acme-conv". "" if no character is valid.
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
                    "' must be 1 to 40 characters of a-z 0-9 - _ and begin with a letter" +
                    (better.empty() ? "" : "; did you mean '" + better + "'?"));
}

void validate_choice(const char* option, const std::string& value, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  const auto meant = kMeant.find(tidied(value));
  const bool knows =
      meant != kMeant.end() && std::find(known.begin(), known.end(), meant->second) != known.end();
  const std::string better = knows ? "; did you mean '" + meant->second + "'?" : did_you_mean(value, known);
  const std::string wrong = value.empty() ? " is missing" : " '" + escaped(value) + "' is unknown";
  throw usage_error(option + wrong + better, "one of " + all);
}

/// "acme-conv" -> "AcmeConv"; "model" -> "ModelPlugin", because Model is in kTaken.
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

/// Words do not contain each other, and no value contains a word, so the order of replacement has no effect.
std::string replace_placeholders(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out(text);
  for (const auto& [placeholder, value] : values)
    for (std::size_t at = 0; (at = out.find(placeholder, at)) != out.npos; at += value.size())
      out.replace(at, placeholder.size(), value);
  return out;
}

}  // namespace

std::vector<File> project(const Request& r) {
  // Everything is checked before a file is made. Names become file names, identifiers and targets, so only
  // characters that are valid in all of these pass.
  check_name("name", r.name);
  if (std::find(kReserved.begin(), kReserved.end(), r.name) != kReserved.end())
    throw usage_error("the name '" + r.name + "' is reserved by CMake, Cargo or the project",
                      "use another name, for example " + r.name + "-memory");
  validate_choice("--kind", r.kind, kKinds);
  validate_choice("--lang", r.lang, kLangs);
  const std::string family = r.family.empty() ? r.name : r.family;
  check_name("family", family);

  std::string crate = r.name;
  std::replace(crate.begin(), crate.end(), '-', '_');
  const std::string language = r.lang == "rust" ? "Rust" : r.lang == "c" ? "C" : "C++";  // as in a sentence
  const bool cpp = r.lang == "c++";
  const std::map<std::string, std::string> values = {{"@NAME@", r.name},
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
  std::map<std::string, File> files;  // by path: a specific file replaces the general one
  const auto add = [&](const std::string& folder, const std::string& to) {
    for (const Embedded& e : templates()) {
      if (e.path.substr(0, folder.size()) != folder) continue;
      File f{to + replace_placeholders(e.path.substr(folder.size()), values), std::string(e.text), false};
      // The vendored crate is copied as it is: it has no placeholders.
      if (to.empty()) f.text = replace_placeholders(f.text, values);
      f.executable = f.path.size() > 3 && f.path.compare(f.path.size() - 3, 3, ".sh") == 0;
      files[f.path] = std::move(f);
    }
  };
  // From general to specific: a later layer replaces files of an earlier one.
  for (const std::string& layer : {std::string("all"), std::string(lang == "rust" ? "cargo" : "cmake"),
                                   r.kind, lang, lang + "-" + r.kind})
    add("templates/" + layer + "/", "");
  if (lang == "rust") add("crate/", "vendor/trainhost-sdk/");
  std::vector<File> out;
  for (auto& [path, file] : files) out.push_back(std::move(file));
  return out;
}

}  // namespace trainhost::plugin_template
