// See hygiene.hpp. State of the process that a plugin shares with the host and with all other plugins. A
// trial load compares it before start() and after stop(). Changes that would alter the host's behaviour
// reject the plugin; others are warnings.
#include "core/plugin/hygiene.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <filesystem>

#include "core/base/directory.hpp"
#include "core/base/text.hpp"
#include "core/process/child_side.hpp"

extern char** environ;

namespace trainhost::plugin {
namespace {

namespace fs = std::filesystem;

/// Signals that stop the host, or that it turns into errors.
constexpr int kHostSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ, SIGCHLD};

/// Device and inode identify what a standard stream refers to, whatever its number.
std::string file_behind(int fd) {
  struct stat s {};
  return ::fstat(fd, &s) == 0 ? fmt::format("{}:{}", s.st_dev, s.st_ino) : "";
}

/// Descriptors above 2 that refer to files. Those of /proc and /dev are left out: libraries keep them open
/// (GPU drivers), and the listed directory itself is one.
std::set<int> open_descriptors() {
  std::set<int> out;
  std::error_code failed;
  for (const std::string& name : names_in_directory("/proc/self/fd", failed)) {
    const int fd = std::atoi(name.c_str());
    std::error_code gone;
    const fs::path target = fs::read_symlink("/proc/self/fd/" + name, gone);
    const bool passing =
        gone || target.string().starts_with("/proc/") || target.string().starts_with("/dev/");
    if (fd > 2 && fd != kChildRecordDescriptor && !passing) out.insert(fd);
  }
  return out;
}

std::string signal_name(int number) {
  const char* name = nullptr;
#if __GLIBC_PREREQ(2, 32)
  name = ::sigabbrev_np(number);
#endif
  return name ? std::string("SIG") + name : fmt::format("signal {}", number);
}

/// The name only: values may be secrets.
std::string variable(const std::string& entry) { return escaped(entry.substr(0, entry.find('=')), 40); }

/// Names of variables that were set, changed or removed. Sets of "NAME=VALUE": a changed value is one entry
/// removed and one added.
std::set<std::string> changed_variables(const std::set<std::string>& before,
                                        const std::set<std::string>& after) {
  std::set<std::string> names;
  for (const std::string& e : before)
    if (!after.count(e)) names.insert(variable(e));
  for (const std::string& e : after)
    if (!before.count(e)) names.insert(variable(e));
  return names;
}

/// Replacing the handler of a signal that the host handles would disable a clean stop. Other signals, such as
/// SIGSEGV of a debugging library, are only reported.
void compare_signals(const ProcessState& before, const ProcessState& after, std::vector<Change>& out) {
  std::vector<std::string> ours, others;
  for (const auto& [number, was] : before.signals) {
    const auto now = after.signals.find(number);
    if (now == after.signals.end() || now->second == was) continue;
    const bool mine =
        std::find(std::begin(kHostSignals), std::end(kHostSignals), number) != std::end(kHostSignals);
    (mine ? ours : others).push_back(signal_name(number));
  }
  if (!ours.empty())
    out.push_back({true, "signals",
                   fmt::format("it replaced or blocked {}, which the host handles", fmt::join(ours, ", "))});
  if (!others.empty())
    out.push_back({false, "signals", fmt::format("it replaced or blocked {}", fmt::join(others, ", "))});
}

std::string limit_name(int resource) {
  switch (resource) {
    case RLIMIT_NOFILE:
      return "of open files (RLIMIT_NOFILE)";
    case RLIMIT_AS:
      return "of address space (RLIMIT_AS)";
    case RLIMIT_DATA:
      return "of data (RLIMIT_DATA)";
    case RLIMIT_STACK:
      return "of stack (RLIMIT_STACK)";
    case RLIMIT_CPU:
      return "of processor time (RLIMIT_CPU)";
    case RLIMIT_FSIZE:
      return "of file size (RLIMIT_FSIZE)";
    case RLIMIT_MEMLOCK:
      return "of locked memory (RLIMIT_MEMLOCK)";
    case RLIMIT_NPROC:
      return "of processes (RLIMIT_NPROC)";
    default:
      return fmt::format("number {} of setrlimit(2)", resource);
  }
}

/// Only lowered limits matter: the host plans with the old ones. Raising a limit is harmless.
void compare_limits(const ProcessState& before, const ProcessState& after, std::vector<Change>& out) {
  for (const auto& [resource, was] : before.limits)
    if (const auto now = after.limits.find(resource); now != after.limits.end() && now->second < was)
      out.push_back(
          {true, "limits", fmt::format("it lowered the limit {} to {}", limit_name(resource), now->second)});
}

}  // namespace

/// No atomicity is needed: in the child of a trial load nothing else runs.
ProcessState process_state() {
  ProcessState s;
  std::error_code failed;
  s.cwd = fs::current_path(failed).string();
  if (const char* l = std::setlocale(LC_ALL, nullptr)) s.locale = l;
  // umask can only be read by setting it.
  s.umask = ::umask(0);
  ::umask(static_cast<mode_t>(s.umask));
  for (char** e = environ; e && *e; ++e) s.environment.insert(*e);
  for (int fd : {0, 1, 2}) s.streams[static_cast<std::size_t>(fd)] = file_behind(fd);
  sigset_t blocked;
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (int n = 1; n < NSIG; ++n) {
    struct sigaction a {};
    if (::sigaction(n, nullptr, &a) == 0)
      s.signals[n] = {reinterpret_cast<std::uintptr_t>(a.sa_handler), ::sigismember(&blocked, n) == 1};
  }
  for (int r = 0; r < static_cast<int>(RLIMIT_NLIMITS); ++r) {
    rlimit l{};
    if (::getrlimit(static_cast<__rlimit_resource>(r), &l) == 0) s.limits[r] = l.rlim_cur;
  }
  s.descriptors = open_descriptors();
  return s;
}

/// Order of the result: rejections first, since only the first one is reported.
std::vector<Change> compare_states(const ProcessState& before, const ProcessState& after) {
  std::vector<Change> out;
  if (before.cwd != after.cwd)
    out.push_back({true, "cwd", fmt::format("it changed the working directory to {}", escaped(after.cwd))});
  if (before.locale != after.locale)
    out.push_back({true, "locale", fmt::format("it changed the locale to {}", escaped(after.locale))});
  if (before.umask != after.umask)
    out.push_back({true, "umask",
                   fmt::format("it changed the umask from {:03o} to {:03o}", before.umask, after.umask)});
  if (before.streams != after.streams)
    out.push_back({true, "streams", "it closed or replaced a standard stream"});
  compare_limits(before, after, out);
  compare_signals(before, after, out);
  if (const auto names = changed_variables(before.environment, after.environment); !names.empty())
    out.push_back(
        {false, "environment", fmt::format("it changed the environment: {}", fmt::join(names, ", "))});
  std::size_t opened = 0;
  for (int fd : after.descriptors) opened += !before.descriptors.count(fd);
  if (opened)
    out.push_back({false, "descriptors", fmt::format("it left {} file(s) open after stop()", opened)});
  std::stable_partition(out.begin(), out.end(), [](const Change& c) { return c.reject; });
  return out;
}

}  // namespace trainhost::plugin
