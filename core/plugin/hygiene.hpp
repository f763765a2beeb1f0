// The state that a plugin shares with the whole process, compared before and after its code ran: signals,
// locale, working directory, umask, environment, standard streams, limits, descriptors. Compared in the
// trial-load child. The floating-point mode is handled in plugin_library.hpp. Threads are allowed: a loaded
// library may keep a pool.
#pragma once
#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trainhost::plugin {

struct ProcessState {
  struct Signal {
    std::uintptr_t handler = 0;  // its address, 0 for the default
    bool blocked = false;
    bool operator==(const Signal&) const = default;
  };
  std::string cwd, locale;
  unsigned umask = 0;
  std::set<std::string> environment;    // "NAME=value"
  std::array<std::string, 3> streams;   // which file each is; "" = closed
  std::map<int, Signal> signals;        // by number
  std::map<int, std::uint64_t> limits;  // soft limit by resource
  std::set<int> descriptors;            // open files beyond the streams, devices left out
};

ProcessState process_state();

/// One thing that is not as it was. Rejection where the host or another plugin would be harmed without
/// noticing (numbers parsed by another locale, files in another folder, a run that can no longer be stopped);
/// else only a warning.
struct Change {
  bool reject = false;
  std::string code;  // "cwd", "locale", "umask", "streams", "signals", "limits", "environment", "descriptors"
  std::string what;  // a phrase without subject
};

/// The differences; those that reject come first.
std::vector<Change> compare_states(const ProcessState& before, const ProcessState& after);

}  // namespace trainhost::plugin
