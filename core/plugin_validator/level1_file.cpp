// Level 1: the file and its manifest. No code of the plugin runs: what the host's gate refuses, one check for
// each kind of refusal, and what only an author would want to know before others do.
#include <sys/stat.h>

#include <set>

#include "core/base/text.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/symbols.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

/// What the gate says: "" where it lets the file pass, else the code.
std::string gate_code(Bench& b, std::string& reason) try {
  plugin::Trust trust;
  plugin::Passed passed;
  plugin::pass_gate(b.file(), trust, passed);
  return "";
} catch (const plugin::Refused& r) {
  reason = r.what();
  if (!r.hint().empty()) reason += " (" + r.hint() + ")";
  return r.code();
}

/// The gate stops at the first thing that it finds: each check owns some codes, and C-012 all that no other
/// owns.
const std::set<std::string> kFile = {"not_found", "not_regular", "unreadable", "changed"};
const std::set<std::string> kOpenToAll = {"world_writable", "group_writable"}, kRunPath = {"run_path"};
const std::set<std::string> kKind = {"not_elf", "wrong_class", "wrong_machine", "executable", "not_shared"};
const std::set<std::string> kWhole = {"empty", "truncated"};
const std::set<std::string> kStack = {"executable_stack"}, kText = {"text_relocations"};
const std::set<std::string> kSection = {"absent", "twice", "outside", "too_big"};
const std::set<std::string> kToml = {"not_text", "not_toml"}, kKeys = {"missing_key", "bad_value"};

void expect_no_refusal(Bench& b, const std::set<std::string>& owned) {
  std::string reason;
  if (owned.count(gate_code(b, reason))) throw Broken("refused at the gate: " + reason);
}

void nothing_else(Bench& b) {
  std::string reason;
  const std::string code = gate_code(b, reason);
  for (const auto* owned :
       {&kFile, &kOpenToAll, &kKind, &kWhole, &kStack, &kText, &kSection, &kToml, &kKeys, &kRunPath})
    if (owned->count(code)) return;
  expect(code.empty(), "refused at the gate: {} ({})", reason, code);
}

void exports_the_entry(Bench& b) {
  for (const Exports::Symbol& s : read_exports(b.file()).symbols)
    if (s.name == TH_ENTRY_NAME)
      return expect(s.function, "it exports {} as data; a function of that name was expected", TH_ENTRY_NAME);
  throw Broken("it exports no function " TH_ENTRY_NAME
               "; TH_PLUGIN makes one, and a version script must let it out");
}

void exports_nothing_else(Bench& b) {
  std::size_t more = 0;
  std::string one;
  for (const Exports::Symbol& s : read_exports(b.file()).symbols)
    if (s.name != TH_ENTRY_NAME && !s.unique) ++more, one = s.name;
  expect(more == 0, "it exports {} more {} than the entry, {} among them; nothing else was expected", more,
         more == 1 ? "symbol" : "symbols", escaped(one, 80));
}

void exports_nothing_unique(Bench& b) {
  for (const Exports::Symbol& s : read_exports(b.file()).symbols)
    expect(!s.unique, "it exports {} as a unique symbol, which pins the library in memory for ever",
           escaped(s.name, 80));
}

void searches_safe_places(Bench& b) {
  for (const std::string& path : read_exports(b.file()).search_paths) {
    expect(!path.empty() && (path[0] == '/' || path[0] == '$'),
           "it looks for libraries in '{}', which depends on the working directory; /... or $ORIGIN was "
           "expected",
           escaped(path, 100));
    struct stat s {};
    if (path[0] == '/' && ::stat(path.c_str(), &s) == 0)
      expect(!(s.st_mode & S_IWOTH), "it looks for libraries in {}, where anybody may put one",
             escaped(path, 100));
  }
}

void summary_and_families(Bench& b) {
  expect(!b.manifest().summary.empty(), "its manifest has no summary; one line for people was expected");
  for (const std::string& f : b.manifest().families)
    for (char c : f)
      expect((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '*',
             "its manifest names the family '{}', which cannot be a model_type of a config.json",
             escaped(f, 60));
}

}  // namespace

std::vector<Check> file_checks() {
  return {
      {"C-001",
       1,
       "The file can be read",
       "A plugin is one regular file. A directory, a FIFO or a device of that name would make a host hang or "
       "fail before "
       "it could say why, so it looks first and refuses.",
       {},
       [](Bench& b) { expect_no_refusal(b, kFile); }},
      {"C-002",
       1,
       "Only those may write to it who own it",
       "Whoever may write to the file runs code as every user of the host. The host refuses such a file: "
       "install it with "
       "mode 644 or 755.",
       {"C-001"},
       [](Bench& b) { expect_no_refusal(b, kOpenToAll); }},
      {"C-003",
       1,
       "It is a shared library for this machine",
       "The dynamic linker calls a library for another machine 'no such file'. The host reads the ELF header "
       "itself and "
       "says what it found. Link with -shared, for the machine that it shall run on.",
       {"C-002"},
       [](Bench& b) { expect_no_refusal(b, kKind); }},
      {"C-004",
       1,
       "It is whole",
       "Loading a library that was cut off kills the process with SIGBUS. Every segment must lie inside the "
       "file; when one "
       "does not, the copy or the download was interrupted.",
       {"C-003"},
       [](Bench& b) { expect_no_refusal(b, kWhole); }},
      {"C-005",
       1,
       "It asks for no executable stack",
       "One object file without a .note.GNU-stack section, mostly hand-written assembly, makes the stack of "
       "every thread "
       "of the host executable. Link with -z noexecstack.",
       {"C-004"},
       [](Bench& b) { expect_no_refusal(b, kStack); }},
      {"C-006",
       1,
       "It has no text relocations",
       "Code that was compiled without -fPIC is patched when it is loaded, which makes its pages writable "
       "and no longer "
       "shared. Hardened systems refuse to load it at all.",
       {"C-005"},
       [](Bench& b) { expect_no_refusal(b, kText); }},
      {"C-007",
       1,
       "It has one manifest",
       "The host reads id, kind and families from the section .trainhost without running code. Without the "
       "section the "
       "file is no plugin; with two nobody knows which one counts. Write TH_MANIFEST in one source file.",
       {"C-006"},
       [](Bench& b) {
         std::string reason;
         const std::string code = gate_code(b, reason);
         expect(!kSection.count(code) && !(code == "empty" && reason.find("manifest") != std::string::npos),
                "refused at the gate: {}", reason);
       }},
      {"C-008",
       1,
       "The manifest is TOML",
       "The manifest is text that hosts of every version parse. It must be UTF-8 without control characters, "
       "and TOML.",
       {"C-007"},
       [](Bench& b) { expect_no_refusal(b, kToml); }},
      {"C-009",
       1,
       "The manifest has its keys: id, version, kind",
       "The id is what users type after --backend= and --estimator=; kind decides what the host asks the "
       "plugin for. A key "
       "that is missing or has a value of another type makes the host refuse the file.",
       {"C-008"},
       [](Bench& b) { expect_no_refusal(b, kKeys); }},
      {"C-010",
       1,
       "It exports the entry as a function",
       "The host looks up one name. It must be a function with default visibility that the version script "
       "lets out; data "
       "of that name would be called and crash.",
       {"C-004"},
       exports_the_entry},
      {"C-011",
       1,
       "It exports nothing but the entry",
       "Every other exported symbol may answer for one of the same name in another plugin or in the host, "
       "and the other "
       "way round. A C++ library leaks dozens of weak std:: symbols unless a version script keeps them in: "
       "link with "
       "-Wl,--version-script=trainhost_plugin.map and compile with -fvisibility=hidden.",
       {"C-004"},
       exports_nothing_else},
      {"C-012",
       1,
       "Nothing else stops it at the gate",
       "The host's gate knows more reasons to refuse a file than those that have a check of their own. This "
       "one reports "
       "whatever is left, so that a plugin that passes level 1 passes the gate.",
       {"C-001"},
       nothing_else},
      {"C-013",
       1,
       "It exports no unique symbols",
       "A GNU_UNIQUE symbol (a static variable in a template or an inline function) pins the library in "
       "memory, and is "
       "shared with every other library that has one of that name. Compile with -fno-gnu-unique, or hide it.",
       {"C-004"},
       exports_nothing_unique},
      {"C-014",
       1,
       "It looks for libraries in safe places only",
       "A RUNPATH that is relative or world-writable lets anybody who may write there run code in the host. "
       "Use $ORIGIN "
       "or absolute directories that root owns.",
       {"C-004"},
       searches_safe_places},
      {"C-015",
       1,
       "The manifest says what it is for",
       "`trainhost plugins list` shows the summary, and a family that can be no model_type of a config.json "
       "can never "
       "match. Both cost a minute to write and save every user a question.",
       {"C-009", "C-012", "C-014"},
       summary_and_families},
  };
}

}  // namespace trainhost::plugin_validator
