// See targets.hpp. A reader may reject any input; it may not crash, read out of bounds, or accept what it
// guarantees to reject. These guarantees are checked here for every accepted input.
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
#include "core/plugin/config_table.hpp"
#include "core/plugin/elf_file.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/plugin/links.hpp"
#include "core/plugin/plugin_cache_format.hpp"
#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin_validator/symbols.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/fuzz/file_targets.hpp"
#include "tests/fuzz/reader_checks.hpp"

namespace trainhost::fuzz {
namespace {

/// A file in memory for readers of files; each input replaces the previous one.
class MemoryFile {
 public:
  MemoryFile() : fd(::memfd_create("input", MFD_CLOEXEC)) {
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    require(fd >= 0, "cannot create a file in memory");
  }
  void replace(std::string_view bytes) {
    const bool written = ::ftruncate(fd, static_cast<off_t>(bytes.size())) == 0 &&
                         ::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    require(written, "cannot write the file in memory");
  }
  int fd;
  char path[32];
};

MemoryFile& file_of(std::string_view bytes) {
  static MemoryFile file;
  file.replace(bytes);
  return file;
}

void check_rejection(const plugin::Rejection& why, std::initializer_list<std::string_view> stages) {
  require(std::find(stages.begin(), stages.end(), why.stage()) != stages.end(),
          "rejected at an unexpected stage");
  require(!why.code().empty() && *why.what(), "rejected without a code or a reason");
  require(valid_utf8(why.what()), "the reason is not valid UTF-8");
}

void elf(std::string_view input) try {
  const plugin::ElfFile e = plugin::read_elf(file_of(input).fd, input.size());
  require(e.needed.size() <= 256, "more libraries than are allowed");
  require(!e.manifest || (!e.manifest->empty() && e.manifest->size() <= plugin::kMaxManifestBytes),
          "the size of the manifest is out of range");
} catch (const plugin::Rejection& why) {
  check_rejection(why, {"validation", "manifest"});
}

void manifest(std::string_view input) try {
  const plugin::Manifest m = plugin::parse_manifest(std::string(input));
  require(!m.id.empty() && m.id.size() <= 64 && escaped(m.id) == m.id, "the id is not printable");
  require(!m.version.empty() && (m.kind == "trainer" || m.kind == "estimator"), "a required key is missing");
  require(m.priority >= -1000 && m.priority <= 1000, "the priority is out of range");
} catch (const plugin::Rejection& why) {
  check_rejection(why, {"manifest"});
}

/// The text as a file, and every line of it as an entry of a file with a correct digest.
void cache(std::string_view input) {
  (void)plugin::parse_cache(input);
  std::map<std::string, std::string> lines;
  for (std::string_view line : plugin::lines_of(input))
    lines.emplace("host\t/" + std::to_string(lines.size()), line);
  require(plugin::parse_cache(plugin::format_cache(lines)) == lines, "written entries are not read back");
  for (const auto& [key, line] : lines) {
    const std::optional<plugin::CacheEntry> r = plugin::parse_cache_line(line);
    if (!r) continue;
    (void)r->mtime_too_recent();
    const std::string again = plugin::format_cache_line(*r);
    const std::optional<plugin::CacheEntry> twice = plugin::parse_cache_line(again);
    require(twice && plugin::format_cache_line(*twice) == again, "an entry changes when it is written again");
  }
}

void linker_cache(std::string_view input) {
  for (const std::string& name : plugin::sonames_in_cache(input))
    require(!name.empty() && name.size() < 256, "the length of a name is out of range");
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
    require(status == TH_OK || status == TH_E_ABSENT || status == TH_E_ARG, "an unexpected status code");
  require(s[1] != TH_OK || std::isfinite(real), "a number is not finite");
  require(s[2] != TH_OK || (std::memchr(text, 0, sizeof text) && valid_utf8(text)),
          "a text is unterminated or cut within a character");
}

void exports(std::string_view input) try {
  const plugin_validator::Exports e = plugin_validator::read_exports(file_of(input).path);
  require(e.symbols.size() <= input.size(), "more symbols than bytes");
} catch (const plugin_validator::CheckFailed& why) {
  require(*why.what(), "rejected without a reason");
}

/// Includes plugins.allow, plugins.path and [plugin.NAME].
void run_file(std::string_view input) try {
  const runfile::RunConfig c = runfile::parse_run(std::string(input), "fuzz.toml", "/nonexistent");
  for (const std::string& hash : c.plugin_allow)
    require(hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == hash.npos,
            "a digest is malformed");
  for (const auto& path : c.plugin_path) require(path.is_absolute(), "a plugin folder is relative");
} catch (const Error& e) {
  require(*e.what(), "rejected without a reason");
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list = {
        {"elf", "a plugin file, by the file validation", elf},
        {"manifest", "the text of .trainhost or of NAME.toml", manifest},
        {"cache", "the registry's cache", cache},
        {"linker_cache", "/etc/ld.so.cache", linker_cache},
        {"config", "config.json, by trainhost.config/1", config},
        {"exports", "a plugin file, by plugins check", exports},
        {"run_file", "a run file with plugins.allow", run_file},
    };
    for (const FileTarget& t : file_targets()) list.push_back(t.target);
    return list;
  }();
  return all;
}

const Target* find(std::string_view name) {
  for (const Target& t : targets())
    if (name == t.name) return &t;
  return nullptr;
}

}  // namespace trainhost::fuzz
