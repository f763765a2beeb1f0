// See targets.hpp. A reader may refuse whatever it likes, in its own words; it may not crash, read outside,
// or accept what it promises to refuse. Those promises are checked here, on everything that is accepted.
#include "tests/fuzz/targets.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/cache_fields.hpp"
#include "core/plugin/config_table.hpp"
#include "core/plugin/elf_file.hpp"
#include "core/plugin/links.hpp"
#include "core/plugin/plugin_cache_format.hpp"
#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin_validator/symbols.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::fuzz {
namespace {

void promise(bool kept, const char* what) {
  if (!kept) throw std::logic_error(what);
}

/// One file in memory for the readers that want one; the next input replaces the last.
class MemoryFile {
 public:
  MemoryFile() : fd(::memfd_create("input", MFD_CLOEXEC)) {
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    promise(fd >= 0, "no file in memory");
  }
  void hold(std::string_view bytes) {
    const bool held = ::ftruncate(fd, static_cast<off_t>(bytes.size())) == 0 &&
                      ::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    promise(held, "the file in memory cannot be written");
  }
  int fd;
  char path[32];
};

MemoryFile& file_of(std::string_view bytes) {
  static MemoryFile file;
  file.hold(bytes);
  return file;
}

void explained(const plugin::Rejection& why, std::initializer_list<std::string_view> stages) {
  promise(std::find(stages.begin(), stages.end(), why.stage()) != stages.end(),
          "refused at a stage of somebody else");
  promise(!why.code().empty() && *why.what(), "refused without a code or a reason");
  promise(valid_utf8(why.what()), "a reason that is no text");
}

void elf(std::string_view input) try {
  const plugin::ElfFile e = plugin::read_elf(file_of(input).fd, input.size());
  promise(e.needed.size() <= 256, "more libraries than are allowed");
  promise(!e.manifest || (!e.manifest->empty() && e.manifest->size() <= plugin::kMaxManifestBytes),
          "a manifest of no size");
} catch (const plugin::Rejection& why) {
  explained(why, {"gate", "manifest"});
}

void manifest(std::string_view input) try {
  const plugin::Manifest m = plugin::parse_manifest(std::string(input));
  promise(!m.id.empty() && m.id.size() <= 64 && escaped(m.id) == m.id, "an id that cannot be shown as it is");
  promise(!m.version.empty() && (m.kind == "trainer" || m.kind == "estimator"), "a needed key is not there");
  promise(m.priority >= -1000 && m.priority <= 1000, "a priority out of its range");
} catch (const plugin::Rejection& why) {
  explained(why, {"manifest"});
}

/// The text as a file, and every line of it as an entry of a file whose digest is right.
void cache(std::string_view input) {
  (void)plugin::parse_cache(input);
  std::map<std::string, std::string> lines;
  for (std::string_view line : plugin::lines_of(input))
    lines.emplace("host\t/" + std::to_string(lines.size()), line);
  promise(plugin::parse_cache(plugin::format_cache(lines)) == lines, "what was written does not come back");
  for (const auto& [key, line] : lines) {
    const std::optional<plugin::CacheEntry> r = plugin::parse_cache_line(line);
    if (!r) continue;
    (void)r->mtime_too_recent();
    const std::string again = plugin::format_cache_line(*r);
    const std::optional<plugin::CacheEntry> twice = plugin::parse_cache_line(again);
    promise(twice && plugin::format_cache_line(*twice) == again, "an entry changes each time it is written");
  }
}

void linker_cache(std::string_view input) {
  for (const std::string& name : plugin::sonames_in_cache(input))
    promise(!name.empty() && name.size() < 256, "a name of no size");
}

/// First line: the key; the rest: config.json.
void config(std::string_view input) {
  static const th_config table = plugin::config_table();
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string key(input.substr(0, end)), json(input.substr(std::min(end + 1, input.size())));
  th_model m{};
  m.struct_size = sizeof m, m.config_json = json.c_str();
  std::int64_t whole = 0;
  double real = 0;
  std::uint64_t length = 0, items = 0;
  char text[8] = "1234567";
  const th_status s[] = {table.integer(&table, &m, key.c_str(), &whole),
                         table.number(&table, &m, key.c_str(), &real),
                         table.text(&table, &m, key.c_str(), text, sizeof text, &length),
                         table.count(&table, &m, key.c_str(), &items)};
  for (th_status status : s)
    promise(status == TH_OK || status == TH_E_ABSENT || status == TH_E_ARG, "a code of no meaning");
  promise(s[1] != TH_OK || std::isfinite(real), "a number that JSON cannot say");
  promise(s[2] != TH_OK || (std::memchr(text, 0, sizeof text) && valid_utf8(text)),
          "a text without an end, or cut amidst");
}

void exports(std::string_view input) try {
  const plugin_validator::Exports e = plugin_validator::read_exports(file_of(input).path);
  promise(e.symbols.size() <= input.size(), "more symbols than bytes");
} catch (const plugin_validator::CheckFailed& why) {
  promise(*why.what(), "refused without a reason");
}

/// plugins.allow, plugins.path and [plugin.NAME] among the rest.
void run_file(std::string_view input) try {
  const runfile::RunConfig c = runfile::parse_run(std::string(input), "fuzz.toml", "/nonexistent");
  for (const std::string& hash : c.plugin_allow)
    promise(hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == hash.npos,
            "a hash that is none");
  for (const auto& path : c.plugin_path) promise(path.is_absolute(), "a relative folder for plugins");
} catch (const Error& e) {
  promise(*e.what(), "refused without a reason");
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"elf", "a plugin file, by the gate", elf},
      {"manifest", "the text of .trainhost or of NAME.toml", manifest},
      {"cache", "the registry's cache", cache},
      {"linker_cache", "/etc/ld.so.cache", linker_cache},
      {"config", "config.json behind trainhost.config/1", config},
      {"exports", "a plugin file, by the check", exports},
      {"run_file", "a run file, plugins.allow in it", run_file},
  };
  return all;
}

const Target* find(std::string_view name) {
  for (const Target& t : targets())
    if (name == t.name) return &t;
  return nullptr;
}

}  // namespace trainhost::fuzz
