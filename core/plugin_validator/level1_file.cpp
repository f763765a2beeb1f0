// Level 1: the file and its manifest. No code of the plugin runs. One check for each group of reasons to
// reject a file, and checks of the exports that only authors need. The table below holds the reason for each
// rule and how to keep it (Check::why); comments here are about the tests themselves.
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

/// The code with which file validation rejects the file; "" if it accepts it. The same function as in the
/// host, so that a check cannot disagree with it.
std::string validation_code(WatchedPlugin& plugin, std::string& reason) try {
  plugin::Trust trust;
  plugin::ValidatedFile passed;
  plugin::validate_file(plugin.file(), trust, passed);
  return "";
} catch (const plugin::Rejection& r) {
  reason = r.what();
  if (!r.hint().empty()) reason += " (" + r.hint() + ")";
  return r.code();
}

/// File validation stops at the first problem, so at most one of these checks fails for it. Each check covers
/// some codes; C-012 covers all others, including codes that are added later.
const std::set<std::string> kUnreadableCodes = {"not_found", "not_regular", "unreadable", "changed"};
const std::set<std::string> kWritableCodes = {"world_writable", "group_writable"},
                            kRunPathCodes = {"run_path"};
const std::set<std::string> kKind = {"not_elf", "wrong_class", "wrong_machine", "executable", "not_shared"};
const std::set<std::string> kTruncatedCodes = {"empty", "truncated"};
const std::set<std::string> kStackCodes = {"executable_stack"}, kRelocationCodes = {"text_relocations"};
const std::set<std::string> kSectionCodes = {"absent", "twice", "outside", "too_big"};
const std::set<std::string> kTomlCodes = {"not_text", "not_toml"}, kKeyCodes = {"missing_key", "bad_value"};

// The codes that do not belong to this check count as success: another check reports them.
void expect_not_rejected_for(WatchedPlugin& plugin, const std::set<std::string>& owned) {
  std::string reason;
  if (owned.count(validation_code(plugin, reason))) throw CheckFailed("the host rejects the file: " + reason);
}

void check_no_other_rejection(WatchedPlugin& plugin) {
  std::string reason;
  const std::string code = validation_code(plugin, reason);
  for (const auto* owned : {&kUnreadableCodes, &kWritableCodes, &kKind, &kTruncatedCodes, &kStackCodes,
                            &kRelocationCodes, &kSectionCodes, &kTomlCodes, &kKeyCodes, &kRunPathCodes})
    if (owned->count(code)) return;
  expect(code.empty(), "the host rejects the file: {} ({})", reason, code);
}

void check_entry_is_exported(WatchedPlugin& plugin) {
  // The exports are read from the file, not by dlsym(): the library is not mapped on this level.
  for (const Exports::Symbol& s : read_exports(plugin.file()).symbols)
    if (s.name == TH_ENTRY_NAME)
      return expect(s.function, "it exports {} as data; a function of that name was expected", TH_ENTRY_NAME);
  throw CheckFailed("it exports no function " TH_ENTRY_NAME
                    "; define it with TH_PLUGIN and export it in the version script");
}

void check_only_entry_is_exported(WatchedPlugin& plugin) {
  // Unique symbols are counted by C-013 alone.
  std::size_t more = 0;
  std::string one;
  for (const Exports::Symbol& s : read_exports(plugin.file()).symbols)
    if (s.name != TH_ENTRY_NAME && !s.unique) ++more, one = s.name;
  expect(more == 0, "it exports {} {} besides the entry, for example {}; only the entry was expected", more,
         more == 1 ? "symbol" : "symbols", escaped(one, 80));
}

void check_no_unique_symbols(WatchedPlugin& plugin) {
  for (const Exports::Symbol& s : read_exports(plugin.file()).symbols)
    expect(!s.unique, "it exports {} as a unique symbol, which prevents unloading the library",
           escaped(s.name, 80));
}

void check_library_search_paths(WatchedPlugin& plugin) {
  for (const std::string& path : read_exports(plugin.file()).search_paths) {
    expect(!path.empty() && (path[0] == '/' || path[0] == '$'),
           "it searches for libraries in '{}', which depends on the working directory; an absolute path or "
           "$ORIGIN was expected",
           escaped(path, 100));
    struct stat s {};
    // A directory that does not exist here may exist where the plugin is installed.
    if (path[0] == '/' && ::stat(path.c_str(), &s) == 0)
      expect(!(s.st_mode & S_IWOTH), "it searches for libraries in {}, which any user can write to",
             escaped(path, 100));
  }
}

void check_summary_and_families(WatchedPlugin& plugin) {
  expect(!plugin.manifest().summary.empty(), "its manifest has no summary; one line was expected");
  // The characters of model_type in published configs, and '*' for a pattern.
  for (const std::string& f : plugin.manifest().families)
    for (char c : f)
      expect((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '*',
             "its manifest names the family '{}', which cannot be a model_type of a config.json",
             escaped(f, 60));
}

}  // namespace

// Order: a check comes after those in its `needs`, since the runner works through the table once. C-001 to
// C-009 are in the order in which file validation finds the problems.
std::vector<Check> file_checks() {
  return {
      {"C-001",
       1,
       "The file can be read",
       "A plugin is one readable regular file. The host rejects directories, FIFOs, sockets and devices "
       "before it opens them, because reading one of them could block. Fix: give the path of the .so file "
       "itself, and make it readable: chmod u+r FILE.",
       {},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kUnreadableCodes); }},
      {"C-002",
       1,
       "Only its owner can write to the file",
       "Any user who can write to the file can run code as every user of the host, so the host rejects "
       "the file. Fix: install it with mode 644 or 755.",
       {"C-001"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kWritableCodes); }},
      {"C-003",
       1,
       "It is a shared library for this machine",
       "The dynamic linker reports a library for another machine as 'no such file', so the host reads the "
       "ELF header itself and reports what it found. Fix: link with -shared, for the machine on which the "
       "plugin will run.",
       {"C-002"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kKind); }},
      {"C-004",
       1,
       "The file is complete",
       "Loading a truncated library kills the process with SIGBUS. Every segment must lie inside the "
       "file. If one does not, a copy or download was interrupted. Fix: copy the file again.",
       {"C-003"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kTruncatedCodes); }},
      {"C-005",
       1,
       "It does not require an executable stack",
       "One object file without a .note.GNU-stack section, usually hand-written assembly, makes the stack "
       "of every thread of the host executable. Fix: link with -z noexecstack.",
       {"C-004"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kStackCodes); }},
      {"C-006",
       1,
       "It has no text relocations",
       "Code compiled without -fPIC is patched when it is loaded, so its pages become writable and are no "
       "longer shared between processes. Hardened systems do not load such a library. Fix: compile with "
       "-fPIC.",
       {"C-005"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kRelocationCodes); }},
      {"C-007",
       1,
       "It has exactly one manifest",
       "The host reads id, kind and families from the section .trainhost without running code. A file "
       "without that section is not a plugin; with two sections it is not defined which one applies. Fix: "
       "write TH_MANIFEST in one source file.",
       {"C-006"},
       [](WatchedPlugin& plugin) {
         std::string reason;
         const std::string code = validation_code(plugin, reason);
         // The code "empty" also means an empty file; only the message tells an empty manifest from it.
         expect(
             !kSectionCodes.count(code) && !(code == "empty" && reason.find("manifest") != std::string::npos),
             "the host rejects the file: {}", reason);
       }},
      {"C-008",
       1,
       "The manifest is valid TOML",
       "Hosts of every version parse the manifest. It must be UTF-8 without control characters, and valid "
       "TOML. Fix: correct the text in TH_MANIFEST at the line that the message names.",
       {"C-007"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kTomlCodes); }},
      {"C-009",
       1,
       "The manifest has the required keys: id, version, kind",
       "Users type the id after --backend= and --estimator=; the kind selects the interface that the host "
       "requests. The host rejects a file in which a required key is missing or has a value of the wrong "
       "type. Fix: add the missing key to TH_MANIFEST, with a text in quotes as its value.",
       {"C-008"},
       [](WatchedPlugin& plugin) { expect_not_rejected_for(plugin, kKeyCodes); }},
      {"C-010",
       1,
       "It exports the entry as a function",
       "The host looks up one symbol. It must be a function with default visibility that the version "
       "script exports. If the symbol is data, calling it crashes. Fix: define the entry with TH_PLUGIN, "
       "and export trainhost_plugin_v1 in the version script.",
       // C-004: the symbol table of a truncated file may lie outside it.
       {"C-004"},
       check_entry_is_exported},
      {"C-011",
       1,
       "It exports only the entry",
       "Any other exported symbol can replace, or be replaced by, a symbol of the same name in the host "
       "or in another plugin. A C++ library exports dozens of weak std:: symbols unless a version script "
       "hides them. Fix: link with -Wl,--version-script=trainhost_plugin.map and compile with "
       "-fvisibility=hidden.",
       {"C-004"},
       check_only_entry_is_exported},
      {"C-012",
       1,
       "The host does not reject the file for any other reason",
       "File validation has more reasons to reject a file than those with a check of their own. This "
       "check reports the remaining ones, so a plugin that passes level 1 passes file validation. Fix: do "
       "what the message says; it is the message that the host prints when it rejects the file.",
       // Not after C-009: a file that is rejected for a reason of an earlier check passes this one.
       {"C-001"},
       check_no_other_rejection},
      {"C-013",
       1,
       "It exports no unique symbols",
       "A GNU_UNIQUE symbol (a static variable in a template or in an inline function) prevents the "
       "library from being unloaded and is shared with every other library that has a symbol of that "
       "name. Fix: compile with -fno-gnu-unique, or hide the symbol.",
       {"C-004"},
       check_no_unique_symbols},
      {"C-014",
       1,
       "It searches for libraries only in safe directories",
       "If a RUNPATH entry is relative or world-writable, other users can run code in the host by placing "
       "a library there. Fix: use $ORIGIN or absolute directories owned by root.",
       {"C-004"},
       check_library_search_paths},
      {"C-015",
       1,
       "The manifest has a summary and valid family names",
       "`trainhost plugins list` prints the summary. A family name that cannot occur as model_type in a "
       "config.json never matches a model. Fix: add a one-line summary, and name families as config.json "
       "does.",
       // The last check of the level: it reads the manifest that the earlier ones have accepted.
       {"C-009", "C-012", "C-014"},
       check_summary_and_families},
  };
}

}  // namespace trainhost::plugin_validator
