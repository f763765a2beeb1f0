// See plugin_manifest.hpp. A manifest is read from a file whose code has not run and may be hostile. Its text
// passes three checks before the TOML parser sees it: size, characters, nesting. Values are limited in
// length, because they are printed in tables.
#include "core/plugin/plugin_manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "core/base/toml_fence.hpp"

#include "core/base/text.hpp"
#include "core/plugin/rejection.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::plugin {
namespace {

// Longest id, version, summary in bytes; most elements of a list.
constexpr std::size_t kMaxId = 64, kMaxVersion = 64, kMaxSummary = 400, kMaxList = 256;
constexpr int kMaxNesting = 8, kMaxDots = 8;

constexpr const char* kKeys = "the keys, values and limits of a manifest are in trainhost/plugin.h";

[[noreturn]] void reject_manifest(const char* code, const std::string& reason, std::string hint = kKeys) {
  throw Rejection("manifest", code, reason, std::move(hint));
}

/// Scans the text for strings and comments. Outside them only ASCII is allowed, and brackets and dotted keys
/// must not nest deeply, because the parser recurses over both (toml++ 3.3 overflows the stack on long dotted
/// keys).
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void run() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (c == '\n') ++line_, dots_ = 0;
      if (c == '#') {
        skip_comment();
      } else if (c == '"' || c == '\'') {
        skip_string(c);
      } else {
        outside(c);
        ++at_;
      }
    }
  }

 private:
  void outside(char c) {
    if (static_cast<unsigned char>(c) >= 0x80)
      reject_manifest(
          "not_toml",
          fmt::format("line {} of its manifest has a non-ASCII character outside a string", line_));
    if (c == '[' || c == '{') ++nesting_;
    if (c == ']' || c == '}') --nesting_;
    if (c == '.') ++dots_;
    if (nesting_ > kMaxNesting || dots_ > kMaxDots)
      reject_manifest("not_toml", fmt::format("line {} of its manifest is nested too deeply", line_));
  }
  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  /// Leaves at_ behind the closing quotes; an unterminated string ends at the line or the text, and the
  /// parser reports it.
  void skip_string(char quote) {
    std::string_view rest = text_.substr(at_);
    bool triple = rest.size() >= 3 && rest[1] == quote && rest[2] == quote;
    at_ += triple ? 3 : 1;
    int run_length = 0;
    for (; at_ < text_.size(); ++at_) {
      char c = text_[at_];
      if (c == '\n') {
        if (!triple) return;  // unterminated string: the parser reports it
        ++line_;
      }
      if (c == '\\' && quote == '"') {
        ++at_, run_length = 0;
        continue;
      }
      run_length = c == quote ? run_length + 1 : 0;
      if (run_length == (triple ? 3 : 1)) {
        ++at_;
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, nesting_ = 0, dots_ = 0;
};

/// Control characters appear if two manifests are linked into one section: NUL separates them.
void validate_text(const std::string& toml) {
  if (toml.size() > kMaxManifestBytes)
    reject_manifest("too_big", fmt::format("its manifest has {} bytes; at most {} are allowed", toml.size(),
                                           kMaxManifestBytes));
  if (!valid_utf8(toml)) reject_manifest("not_text", "its manifest is not UTF-8 text");
  bool control = std::any_of(toml.begin(), toml.end(), [](unsigned char c) {
    return (c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f;
  });
  if (control)
    reject_manifest("not_text", "its manifest contains control characters",
                    "write exactly one TH_MANIFEST, in one source file");
  Scanner(toml).run();
}

/// Both exceptions of toml++ become a rejection with the line, where there is one.
toml::table parse(const std::string& toml) {
  try {
    return toml::parse(toml);
  } catch (const toml::parse_error& e) {
    reject_manifest("not_toml", fmt::format("line {} of its manifest is not TOML: {}", e.source().begin.line,
                                            escaped(e.description())));
  } catch (const TomlAssertion& e) {
    reject_manifest("not_toml", "its manifest is not TOML: " + escaped(e.what()));
  }
}

/// A value that is printed must be one line.
std::string text_of(const toml::table& t, const char* key, bool needed, std::size_t max) {
  const toml::node* n = t.get(key);
  if (!n && needed) reject_manifest("missing_key", fmt::format("its manifest has no '{}'", key));
  if (!n) return {};
  const auto* s = n->as_string();
  if (!s) reject_manifest("bad_value", fmt::format("'{}' in its manifest is not a string", key));
  const std::string& v = s->get();
  if (v.size() > max)
    reject_manifest("bad_value", fmt::format("'{}' in its manifest is longer than {} bytes", key, max));
  if (needed && v.empty()) reject_manifest("bad_value", fmt::format("'{}' in its manifest is empty", key));
  if (std::any_of(v.begin(), v.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    reject_manifest("bad_value", fmt::format("'{}' in its manifest contains control characters", key));
  return v;
}

/// Elements are escaped when they are read, so that every later use is safe.
std::vector<std::string> list_of(const toml::table& t, const char* key) {
  std::vector<std::string> out;
  const toml::node* n = t.get(key);
  if (!n) return out;
  const auto* a = n->as_array();
  if (!a || a->size() > kMaxList)
    reject_manifest("bad_value",
                    fmt::format("'{}' in its manifest is not a list of at most {} strings", key, kMaxList));
  for (const toml::node& e : *a) {
    const auto* s = e.as_string();
    if (!s || s->get().empty() || s->get().size() > kMaxId)
      reject_manifest("bad_value",
                      fmt::format("'{}' in its manifest is not a list of strings of 1 to 64 bytes", key));
    out.push_back(escaped(s->get()));
  }
  return out;
}

/// A list of names of files or features: no spaces, no slashes.
std::vector<std::string> names_of(const toml::table& t, const char* key) {
  std::vector<std::string> out = list_of(t, key);
  for (const std::string& name : out)
    if (name.find_first_of("/ \\") != name.npos)
      reject_manifest(
          "bad_value",
          fmt::format("'{}' in its manifest contains '{}': names must not contain spaces, / or \\", key,
                      name));
  return out;
}

/// "1.0". Another major version is rejected; a newer minor loads with the fields that both sides know.
/// "" if the key is absent: the version of the plugin's table then decides when it is loaded.
std::string abi_of(const toml::table& t) {
  const std::string text = text_of(t, "abi", false, kMaxVersion);
  if (text.empty()) return text;
  unsigned major = 0, minor = 0;
  char rest = 0;
  const bool digits = text.find_first_not_of("0123456789.") == text.npos;
  if (!digits || std::sscanf(text.c_str(), "%5u.%5u%c", &major, &minor, &rest) != 2)
    reject_manifest("bad_value",
                    fmt::format("'abi' in its manifest is '{}'; expected a version like \"{}.{}\"",
                                escaped(text), TH_ABI_MAJOR, TH_ABI_MINOR));
  if (major != TH_ABI_MAJOR)
    reject_manifest(
        "abi",
        fmt::format("it requires plugin interface {}.{}; this program supports {}.{}", major, minor,
                    TH_ABI_MAJOR, TH_ABI_MINOR),
        major < TH_ABI_MAJOR ? "build it with the SDK of this program" : "install a newer trainhost");
  return fmt::format("{}.{}", major, minor);
}

/// Ids are used in option names and paths of caches; a leading dot or dash would look like a hidden file or
/// an option. `id` is not empty.
bool valid_id(const std::string& id) {
  auto ok = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return std::all_of(id.begin(), id.end(), ok) && id[0] != '.' && id[0] != '-';
}

}  // namespace

/// Unknown keys are ignored: a plugin may be newer than this program.
Manifest parse_manifest(const std::string& toml) {
  validate_text(toml);
  toml::table t = parse(toml);
  Manifest m;
  m.id = text_of(t, "id", true, kMaxId);
  if (!valid_id(m.id))
    reject_manifest("bad_value",
                    fmt::format("the id '{}' in its manifest may contain only a-z 0-9 . _ -", escaped(m.id)));
  m.version = text_of(t, "version", true, kMaxVersion);
  m.kind = text_of(t, "kind", true, kMaxId);
  if (m.kind != "estimator" && m.kind != "trainer" && m.kind != "communicator")
    reject_manifest("bad_value",
                    fmt::format("the kind '{}' in its manifest is not estimator, trainer or communicator",
                                escaped(m.kind)));
  m.summary = text_of(t, "summary", false, kMaxSummary);
  m.abi = abi_of(t);
  m.device = text_of(t, "device", false, kMaxId);
  if (!m.device.empty() && !valid_id(m.device))
    reject_manifest("bad_value", fmt::format("the device '{}' in its manifest may contain only a-z 0-9 . _ -",
                                             escaped(m.device)));
  m.interfaces = list_of(t, "interfaces");
  m.families = list_of(t, "families");
  m.modes = list_of(t, "modes");
  m.dtypes = list_of(t, "dtypes");
  m.options = list_of(t, "options");
  m.frameworks = list_of(t, "frameworks");
  m.cpu = names_of(t, "cpu");
  m.libraries = names_of(t, "requires");
  if (const toml::node* n = t.get("priority")) {
    const auto* i = n->as_integer();
    if (!i || i->get() < -1000 || i->get() > 1000)
      reject_manifest("bad_value", "'priority' in its manifest is not an integer from -1000 to 1000");
    m.priority = static_cast<int>(i->get());
  }
  return m;
}

}  // namespace trainhost::plugin
