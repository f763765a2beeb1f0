// See process_id.hpp. From /proc/PID/stat: "PID (name) state ... start ...", where the name may have any
// character.
#include "core/process/process_id.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <string>

namespace trainhost {
namespace {

struct ProcessStatus {
  char state = 0;
  std::uint64_t start = 0;
  int result = 0;  // as of waitpid(), of a zombie
};

std::optional<ProcessStatus> status_of(std::int32_t id) {
  const std::string text = file_of_process(id, "stat");
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == text.npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  ProcessStatus s;
  fields >> s.state;  // field 3; the start is field 22
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> s.start)) return std::nullopt;
  for (int field = 23; field < 52; ++field) fields >> skipped;
  fields >> s.result;
  return s;
}

}  // namespace

std::string file_of_process(std::int32_t id, const char* name) {
  std::string text;
  const int file = ::open(("/proc/" + std::to_string(id) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char part[4096];
  for (ssize_t n; (n = ::read(file, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  ::close(file);
  return text;
}

std::optional<ProcessId> process_with(std::int32_t id) {
  const std::optional<ProcessStatus> s = status_of(id);
  return s ? std::optional(ProcessId{id, s->start}) : std::nullopt;
}

ProcessId own_process() {
  const auto id = static_cast<std::int32_t>(::getpid());
  return process_with(id).value_or(ProcessId{id});
}

bool has_ended(const ProcessId& p) {
  if (const std::optional<ProcessStatus> s = status_of(p.id))
    return s->start != p.start || s->state == 'Z' || s->state == 'X';
  // /proc may also be unreadable because no descriptor is free.
  return ::kill(p.id, 0) != 0 && errno == ESRCH;
}

std::string reason_of_end(const ProcessId& p) {
  const std::optional<ProcessStatus> s = status_of(p.id);
  if (!s || s->start != p.start || s->state != 'Z' || s->result == 0) return "";
  if (!WIFSIGNALED(s->result)) return "exit code " + std::to_string(WEXITSTATUS(s->result));
  return "signal " + std::to_string(WTERMSIG(s->result)) + ": " + ::strsignal(WTERMSIG(s->result));
}

}  // namespace trainhost
