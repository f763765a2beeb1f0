// Limits of this process (ulimit) and its locale.
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <sys/resource.h>

#include <cstdlib>

#include "core/base/text.hpp"
#include "core/machine/check_machine.hpp"
#include "core/machine/system_files.hpp"

namespace trainhost::machine {
namespace {

std::optional<std::uint64_t> soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

Finding limit_finding(const char* name, const std::optional<std::uint64_t>& limit, bool bytes, bool warn,
                      const std::string& hint) {
  Finding f{"limits", name};
  f.value = !limit ? "unlimited" : bytes ? format_bytes(*limit) : std::to_string(*limit);
  f.data = {{bytes ? "bytes" : "count", limit ? JsonValue(*limit) : JsonValue()}};
  if (warn) f.state = State::kWarning, f.hint = hint;
  return f;
}

}  // namespace

ProcessLimits process_limits() {
  return {soft_limit(RLIMIT_NOFILE),  soft_limit(RLIMIT_NPROC), soft_limit(RLIMIT_STACK),
          soft_limit(RLIMIT_MEMLOCK), soft_limit(RLIMIT_AS),    soft_limit(RLIMIT_FSIZE),
          soft_limit(RLIMIT_CPU)};
}

Findings check_limits(const ProcessLimits& l, const std::filesystem::path& root) {
  const auto below = [](const std::optional<std::uint64_t>& limit, std::uint64_t least) {
    return limit && *limit < least;
  };
  const bool infiniband = !names_in(root / "sys/class/infiniband").empty();
  return {
      limit_finding("open files", l.open_files, false, below(l.open_files, 1024), "ulimit -n 4096"),
      limit_finding("processes and threads", l.processes, false, below(l.processes, 512), "ulimit -u 4096"),
      limit_finding("stack", l.stack_bytes, true, below(l.stack_bytes, 1 << 20), "ulimit -s 8192"),
      limit_finding("locked memory", l.locked_bytes, true, infiniband && l.locked_bytes.has_value(),
                    "InfiniBand needs locked memory: ulimit -l unlimited"),
      limit_finding("address space", l.address_space_bytes, true, l.address_space_bytes.has_value(),
                    "plans count resident memory, and CUDA reserves far more addresses: ulimit -v unlimited"),
      limit_finding("file size", l.file_bytes, true, l.file_bytes.has_value(),
                    "larger checkpoints and models cannot be written: ulimit -f unlimited"),
      limit_finding("CPU seconds", l.cpu_seconds, false, l.cpu_seconds.has_value(),
                    "a run stops there with a checkpoint; continue it with --resume, or ulimit -t unlimited"),
  };
}

Locale locale_of_environment() {
  Locale out;
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(variable); out.name.empty() && value) out.name = value;
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, out.name.empty() ? "C" : out.name.c_str(), nullptr);
  out.exists = locale != nullptr;
  if (!locale) return out;
  out.charset = ::nl_langinfo_l(CODESET, locale);
  ::freelocale(locale);
  return out;
}

Finding check_locale(const Locale& l) {
  Finding f{"system", "locale"};
  f.data = {{"name", l.name}, {"charset", l.charset}};
  f.value = l.name.empty() ? "none is set" : escaped(l.name);
  if (!l.exists) {
    f.state = State::kWarning;
    f.value += ", which is not installed";
  } else if (l.charset != "UTF-8" && l.charset != "ANSI_X3.4-1968") {  // the latter: ASCII, of the locale C
    f.state = State::kWarning;
    f.value += fmt::format(", with the characters of {}", escaped(l.charset));
  }
  if (f.state != State::kOk) f.hint = "tables and texts are printed in UTF-8: export LC_ALL=C.UTF-8";
  return f;
}

}  // namespace trainhost::machine
