// See local_processes.hpp. From /proc/PID/stat: "PID (name) state ... start ...", where the name may have any
// character.
#include "plugins/mpi/local_processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace trainhost::mpi {
namespace {

struct Status {
  char state = 0;
  std::uint64_t start = 0;
};

std::optional<Status> status_of(std::int32_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == text.npos) return std::nullopt;
  std::istringstream fields(text.substr(end_of_name + 1));
  Status s;
  fields >> s.state;  // field 3; the start is field 22
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> s.start)) return std::nullopt;
  return s;
}

bool runs(const Status& s) { return s.state != 'Z' && s.state != 'X'; }

/// Whether there is no such process; /proc may also be unreadable because no descriptor is free.
bool is_absent(std::int32_t id) { return ::kill(id, 0) != 0 && errno == ESRCH; }

/// Children of a process that run; 0 if the system does not list them.
std::uint32_t running_children(std::int32_t parent) {
  const std::string id = std::to_string(parent);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::uint32_t count = 0;
  for (std::int32_t child = 0; file >> child;)
    if (const std::optional<Status> s = status_of(child); s ? runs(*s) : !is_absent(child)) ++count;
  return count;
}

}  // namespace

Process own_process(std::uint32_t rank) {
  Process p{rank, static_cast<std::int32_t>(::getpid())};
  if (const std::optional<Status> s = status_of(p.id)) p.start = s->start;
  return p;
}

bool has_ended(const Process& p) {
  const std::optional<Status> s = status_of(p.id);
  return s ? s->start != p.start || !runs(*s) : is_absent(p.id);
}

void LocalRanks::set(std::uint32_t own, const std::vector<Process>& all) {
  for (const Process& p : all)
    if (p.rank != own && p.start != 0 && !has_ended(p)) others_.push_back(p);
}

std::optional<Process> LocalRanks::ended() const {
  const auto found = std::ranges::find_if(others_, has_ended);
  return found == others_.end() ? std::nullopt : std::optional(*found);
}

StartedProcesses::StartedProcesses(std::uint32_t expected)
    : parent_(static_cast<std::int32_t>(::getppid())), expected_(expected) {}

bool StartedProcesses::has_lost_one() {
  if (expected_ < 2 || parent_ <= 1 || ::getppid() != parent_) return false;
  const bool all = running_children(parent_) >= expected_;
  if (all) complete_ = true;
  return complete_ && !all;
}

}  // namespace trainhost::mpi
