// See links.hpp. The rules are those of ld.so(8). The aim is a good message before dlopen: a library that is
// missing or could be replaced by another user is named here. Where the rules of the loader are not fully
// known, a library counts as present.
#include "core/plugin/links.hpp"

#include <fmt/format.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/text.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin/trust.hpp"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kCacheHeader = 48, kCacheEntry = 24, kCacheKey = 4, kMaxSoname = 256;

// /etc/ld.so.cache: a header of 48 bytes, entries of 24 bytes (flags, key, value, version, hardware), names;
// offsets count from the header.

/// The 32-bit number at that offset; 0 outside the file.
std::uint32_t cache_number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t n = 0;
  if (at <= bytes.size() && sizeof n <= bytes.size() - at) std::memcpy(&n, bytes.data() + at, sizeof n);
  return n;
}

/// The name at that offset; "" if it is outside the file or has no NUL within kMaxSoname bytes.
std::string_view cache_name_at(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(at, kMaxSoname);
  const std::size_t end = rest.find('\0');
  return end == rest.npos ? std::string_view() : rest.substr(0, end);
}

std::vector<std::string> split(const std::string& text, const char* separators) {
  std::vector<std::string> out(1);
  for (char c : text) {
    if (std::strchr(separators, c))
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

void replace_all(std::string& in, const std::string& what, const std::string& with) {
  for (std::size_t at = in.find(what); at != in.npos; at = in.find(what, at + with.size()))
    in.replace(at, what.size(), with);
}

/// Forms with braces come first, as the others are their prefixes.
std::string expand_variables(std::string element, const fs::path& file) {
  const std::string origin = file.parent_path().string();
  for (const char* form : {"${ORIGIN}", "$ORIGIN"}) replace_all(element, form, origin);
  for (const char* form : {"${LIB}", "$LIB"}) replace_all(element, form, "lib");
  const auto* platform = reinterpret_cast<const char*>(::getauxval(AT_PLATFORM));
  for (const char* form : {"${PLATFORM}", "$PLATFORM"}) replace_all(element, form, platform ? platform : "");
  return element;
}

std::vector<fs::path> run_path_of(const std::string& run_path, const fs::path& file) {
  std::vector<fs::path> out;
  if (run_path.empty()) return out;
  for (const std::string& e : split(run_path, ":")) out.emplace_back(expand_variables(e, file));
  return out;
}

/// Opened read-only and parsed with bounds; the format is documented only in glibc.
std::set<std::string> read_linker_cache() {
  std::ostringstream bytes;
  bytes << std::ifstream("/etc/ld.so.cache", std::ios::binary).rdbuf();
  return sonames_in_cache(bytes.str());
}

/// What this process has mapped is found without any search. A plugin may need a library that the host has
/// loaded.
std::set<std::string> loaded_names() {
  std::set<std::string> out;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        static_cast<std::set<std::string>*>(to)->insert(fs::path(info->dlpi_name).filename().string());
        return 0;
      },
      &out);
  return out;
}

bool readable(const fs::path& p) { return ::access(p.c_str(), R_OK) == 0; }

/// The search order of ld.so: RUNPATH (or RPATH), LD_LIBRARY_PATH, system folders, cache.
bool library_exists(const std::string& soname, const std::vector<fs::path>& run_path) {
  if (soname.find('/') != soname.npos) return readable(soname);
  std::vector<fs::path> folders = run_path;
  // The loader ignores the variable for setuid programs.
  const char* variable = ::getauxval(AT_SECURE) ? nullptr : std::getenv("LD_LIBRARY_PATH");
  if (variable)
    for (const std::string& e : split(variable, ":;")) folders.emplace_back(e.empty() ? "." : e);
  for (const char* system : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) folders.emplace_back(system);
  for (const fs::path& f : folders)
    if (readable(f / soname)) return true;
  static const std::set<std::string> cache = read_linker_cache();
  if (cache.count(soname)) return true;
  const std::set<std::string> loaded = loaded_names();
  return loaded.count(soname) ||
         cache.empty();  // without a cache that we can read, the linker may know more than we
}

std::set<std::string> read_cpu_features() {
  std::set<std::string> out;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features") && !line.starts_with("isa")) continue;
    std::istringstream words(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
    for (std::string w; words >> w;) out.insert(w);
    break;  // one processor speaks for all
  }
  return out;
}

}  // namespace

/// `count` is limited by the size of the file, so a damaged cache cannot make the loop long.
std::set<std::string> sonames_in_cache(std::string_view bytes) {
  std::set<std::string> out;
  const std::size_t base = bytes.find(kCacheMagic);
  if (base == bytes.npos) return out;
  const auto count =
      std::min<std::size_t>(cache_number_at(bytes, base + kCacheMagic.size()), bytes.size() / kCacheEntry);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = cache_name_at(
        bytes, base + cache_number_at(bytes, base + kCacheHeader + i * kCacheEntry + kCacheKey));
    if (!name.empty()) out.emplace(name);
  }
  return out;
}

/// A relative or empty element depends on the working directory; a folder that others can write to lets them
/// place a library there that the plugin then loads.
void validate_run_path(const std::string& run_path, const fs::path& file) {
  const char* const hint =
      "link it with -Wl,-rpath,'$ORIGIN', or with an absolute directory that only its owner can write to";
  for (const fs::path& e : run_path_of(run_path, file)) {
    if (e.empty())
      throw Rejection("validation", "run_path",
                      "its RUNPATH has an empty element, which means the working directory", hint);
    if (e.is_relative())
      throw Rejection("validation", "run_path",
                      fmt::format("its RUNPATH has the relative element '{}'", escaped(e.string())), hint);
    if (others_may_add_files(e.lexically_normal()))
      throw Rejection(
          "validation", "run_path",
          fmt::format("its RUNPATH names {}, where other users can add libraries", escaped(e.string(), 4096)),
          hint);
  }
}

void validate_libraries(const ElfFile& elf, const Manifest& manifest, const fs::path& file) {
  const std::vector<fs::path> run_path = run_path_of(elf.run_path, file);
  std::vector<std::string> all = elf.needed;
  all.insert(all.end(), manifest.libraries.begin(), manifest.libraries.end());
  for (const std::string& soname : all)
    if (!library_exists(expand_variables(soname, file), run_path))
      throw Rejection("validation", "missing_library",
                      fmt::format("it requires the library {}, which is not installed", escaped(soname)),
                      "install the package that contains it, or add its directory to LD_LIBRARY_PATH");
}

/// Names as in /proc/cpuinfo. Missing instructions would end the process with SIGILL at the first use.
void validate_cpu(const std::vector<std::string>& features) {
  static const std::set<std::string> here = read_cpu_features();
  if (here.empty()) return;  // no /proc: nothing is known, so nothing is rejected
  for (const std::string& f : features)
    if (!here.count(f))
      throw Rejection(
          "validation", "cpu_feature",
          fmt::format("it requires the processor feature {}, which this machine does not have", f),
          "install a build for older processors");
}

}  // namespace trainhost::plugin
