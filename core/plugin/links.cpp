// See links.hpp.
#include "core/plugin/links.hpp"

#include <fmt/format.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "core/base/text.hpp"
#include "core/plugin/linker_cache.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin/trust.hpp"

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

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

std::string expanded(std::string element, const fs::path& file) {
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
  for (const std::string& e : split(run_path, ":")) out.emplace_back(expanded(e, file));
  return out;
}

std::set<std::string> read_linker_cache() {
  std::ifstream in("/etc/ld.so.cache", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  return sonames_in_cache(bytes);
}

/// What this process has mapped is found without any search.
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

bool found(const std::string& soname, const std::vector<fs::path>& run_path) {
  if (soname.find('/') != soname.npos) return readable(soname);
  std::vector<fs::path> folders = run_path;
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

void check_run_path(const std::string& run_path, const fs::path& file) {
  const char* const hint =
      "link it with -Wl,-rpath,'$ORIGIN' or with an absolute folder that only its owner may write";
  for (const fs::path& e : run_path_of(run_path, file)) {
    if (e.empty())
      throw Refused("gate", "run_path",
                    "its RUNPATH has an empty element, which would mean the working directory", hint);
    if (e.is_relative())
      throw Refused("gate", "run_path",
                    fmt::format("its RUNPATH has the relative element '{}'", escaped(e.string())), hint);
    if (anyone_may_add(e.lexically_normal()))
      throw Refused(
          "gate", "run_path",
          fmt::format("others may add libraries to {}, which its RUNPATH names", escaped(e.string(), 4096)),
          hint);
  }
}

void check_libraries(const ElfFile& elf, const Manifest& manifest, const fs::path& file) {
  const std::vector<fs::path> run_path = run_path_of(elf.run_path, file);
  std::vector<std::string> all = elf.needed;
  all.insert(all.end(), manifest.libraries.begin(), manifest.libraries.end());
  for (const std::string& soname : all)
    if (!found(expanded(soname, file), run_path))
      throw Refused("gate", "missing_library",
                    fmt::format("needs the library {}, which is not on this machine", escaped(soname)),
                    "install the package that has it, or name its folder in LD_LIBRARY_PATH");
}

void check_cpu(const std::vector<std::string>& features) {
  static const std::set<std::string> here = read_cpu_features();
  if (here.empty()) return;  // no /proc: nothing is known, so nothing is refused
  for (const std::string& f : features)
    if (!here.count(f))
      throw Refused("gate", "cpu_feature",
                    fmt::format("needs the processor feature {}, which this machine lacks", f),
                    "a build of it for older processors is needed");
}

}  // namespace trainhost::plugin
