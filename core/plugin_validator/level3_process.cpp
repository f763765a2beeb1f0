// Level 3: loading, starting and stopping do not change the state of the process; start() and stop() can be
// repeated. Most of these checks have a process of their own (own_process), because the library stays mapped
// and its constructors have already run in a shared one.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr int kRepetitions = 100,
              kWarm = 5;  // the first starts may fill caches; after them nothing may grow

/// Compares one facet of the process before and after loading, start() and stop(). The state is compared
/// after every step, so that the message names the step that changed it.
/// `facet` is one key of ProcessState.
void expect_unchanged(WatchedPlugin& plugin, const std::string& facet) {
  const ProcessState fresh = process_state();
  const auto same = [&](const char* where) {
    const std::string d = difference(fresh, process_state(), facet);
    expect(d.empty(), "{} changed the {}: {}", where, facet, d);
  };
  plugin.library();
  // Static constructors have run.
  same("loading it");
  plugin.library().table();
  same("its entry");
  // In a block: the destructor calls stop() before the state is compared again.
  {
    Started started(plugin);
    same("its start()");
  }
  same("its stop()");
}

void check_no_output(WatchedPlugin& plugin) {
  // Before the library is mapped: constructors write too.
  CapturedOutput output;
  plugin.library();
  { Started started(plugin); }
  const std::string text = output.written();
  expect(text.empty(), "it wrote to standard output or error: '{}'; the host's log() was expected",
         escaped(text, 100));
}

// Not Started, which turns TH_E_UNAVAILABLE into a skip: here a failing start() is the case under test.
void check_start_failure_has_message(WatchedPlugin& plugin) {
  const CallResult a = plugin.start();
  // Nothing to report about a plugin that starts: the check is about its failure.
  if (a.ok()) return plugin.stop();
  expect(documented(a.status), "its start() returned {}, which is not a documented code", a.status);
  expect(!a.message.empty(), "its start() returned {} without a message", status_text(a.status));
}

void check_repeated_start(WatchedPlugin& plugin) {
  for (int i = 1; i <= kRepetitions; ++i) {
    const CallResult a = plugin.start();
    // Only the first call may say so: a device does not disappear between two starts.
    if (i == 1 && a.status == TH_E_UNAVAILABLE)
      throw CheckSkipped("its start() returned TH_E_UNAVAILABLE: " + a.message);
    expect(a.ok(), "call {} of start() returned {}; TH_OK was expected", i, a.text());
    plugin.stop();
  }
}

template <class Count>
// `count` after kWarm repetitions is the base; growth within kRepetitions - kWarm of them is a leak. One
// descriptor or thread per start is found, and 44 bytes of heap per start.
void expect_no_growth_over_starts(WatchedPlugin& plugin, Count count, std::uint64_t allowed,
                                  const char* what) {
  std::uint64_t before = 0;
  for (int i = 1; i <= kRepetitions; ++i) {
    { Started started(plugin); }
    if (i == kWarm) before = count();
  }
  const std::uint64_t after = count();
  expect(after <= before + allowed,
         "after {} start() and stop() there were {} more {} than after {}; none were expected", kRepetitions,
         after - before, what, kWarm);
}

/// In a process of its own, so that the plugin's exit handlers and destructors run.
void check_process_exit(WatchedPlugin& plugin) {
  plugin.library();
  // fork() copies only this thread; the plugin has not been started, so it normally has no other.
  const pid_t child = ::fork();
  if (child == 0) {
    { Started started(plugin); }
    // exit(), not _exit(): destructors and exit handlers are what is tested.
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(!WIFSIGNALED(status), "the process was ended by signal {} at exit after stop()", WTERMSIG(status));
  expect(WEXITSTATUS(status) == 0, "the process ended with code {} after stop(); 0 was expected",
         WEXITSTATUS(status));
}

void check_start_time(WatchedPlugin& plugin) {
  // Includes the dynamic linker's work, which `trainhost plugins list` waits for too.
  const auto begin = std::chrono::steady_clock::now();
  plugin.library();
  // start() and stop() both count.
  { Started started(plugin); }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  expect(s < 1, "loading and starting it took {:.1f} s; less than 1 s was expected", s);
}

void check_stop_frees_memory(WatchedPlugin& plugin) {
  { Started started(plugin); }
  const std::uint64_t held = plugin.host().ledger().in_use_total();
  expect(held == 0, "{} bytes of the host's memory were still allocated after stop(); none were expected",
         held);
}

// Stop must not free or rewrite what get() returned: hosts keep the pointer.
void check_tables_are_constant(WatchedPlugin& plugin) {
  const char* id = plugin.interface_id();
  const void* first = plugin.library().interface(id);
  std::uint32_t size = 0;
  std::memcpy(&size, first, sizeof size);
  // A wrong struct_size must not let the comparison read far beyond the table.
  std::vector<unsigned char> before(size < 4096 ? size : 4096), after(before.size());
  std::memcpy(before.data(), first, before.size());
  for (int i = 0; i < 2; ++i) {
    Started started(plugin);
    expect(plugin.library().interface(id) == first,
           "get(\"{}\") returned a different table after start(); the same one was expected while the "
           "library is loaded",
           id);
  }
  std::memcpy(after.data(), first, after.size());
  expect(before == after, "its {} table changed between load and stop(); it was expected to be constant", id);
}

}  // namespace

// Prerequisites: C-048 first, since a plugin whose start() fails for another reason than a missing device has
// no state to compare; C-049 for the checks that start it many times. `true` at the end of a row:
// own_process. The checks of process state compare with a process in which the library was never mapped.
std::vector<Check> process_checks() {
  return {
      {"C-048",
       3,
       "A failing start() gives a reason",
       "The message of a failing start() is the only information about the plugin that `trainhost plugins "
       "list` can print. Fix: fill in the message of the th_error.",
       {"C-024"},
       check_start_failure_has_message},
      {"C-040",
       3,
       "It does not change the floating-point mode",
       "A library linked with -ffast-math flushes denormals to zero in the whole thread as soon as it is "
       "loaded, which changes the results of other plugins. Fix: link without -ffast-math; compiling with "
       "it is allowed.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "floating-point mode"); },
       true},
      {"C-041",
       3,
       "It does not change signal handlers or masks",
       "The host turns SIGINT and SIGTERM into a checkpoint. If a plugin leaves its own handler or mask "
       "installed, the run is lost on Ctrl-C. Fix: do not install handlers; if a library of yours does, "
       "restore the old ones with sigaction() before start() returns.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "signal handlers"); },
       true},
      {"C-042",
       3,
       "It does not change the locale",
       "With another LC_NUMERIC the host would write 0,5 instead of 0.5 into JSON. Fix: use the _l "
       "functions or std::to_chars.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "locale"); },
       true},
      {"C-043",
       3,
       "It does not change the working directory or umask",
       "Relative paths on the command line are resolved in the user's working directory, and new files "
       "get the user's umask. Fix: use absolute paths and openat() instead of chdir(), and pass modes to "
       "open() instead of setting the umask.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "working directory and umask"); },
       true},
      {"C-044",
       3,
       "It does not change the environment",
       "setenv() crashes if another thread calls getenv() at the same time, and child processes inherit "
       "the change. Fix: configure your libraries through their functions.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "environment"); },
       true},
      {"C-045",
       3,
       "It does not change resource limits",
       "A raised or lowered limit applies to the host and to every other plugin. Fix: do not call "
       "setrlimit(); if a library needs a limit, return TH_E_UNAVAILABLE with a message that names it.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "resource limits"); },
       true},
      {"C-046",
       3,
       "It does not close or replace the standard streams",
       "If descriptors 0 to 2 are closed or replaced, the host's output goes to the next file that is "
       "opened. Fix: close only descriptors that you opened.",
       {"C-048"},
       [](WatchedPlugin& plugin) { expect_unchanged(plugin, "standard streams"); },
       true},
      {"C-047",
       3,
       "It writes nothing to standard output or standard error",
       "Standard output may be JSON that a program reads. Fix: send messages for the user through the "
       "host's log().",
       {"C-048"},
       check_no_output,
       true},
      {"C-049",
       3,
       "start() and stop() can be repeated",
       "A host stops a plugin after its last run and may start it again for the next one. Fix: reset in "
       "stop() everything that start() sets, static variables included.",
       {"C-048"},
       check_repeated_start},
      {"C-031",
       3,
       "Its tables keep their address and content",
       "Tables are STATIC: a host keeps the pointer for as long as the library is loaded. A table built "
       "on the stack or in start() leaves the host with a dangling pointer or with changing content. Fix: "
       "declare tables static const.",
       {"C-029", "C-030", "C-049"},
       check_tables_are_constant},
      {"C-050",
       3,
       "start() and stop() leave no descriptors open",
       "A long-running host that loses one descriptor per start reaches its limit and can no longer open "
       "checkpoints. Fix: close in stop() what start() opens, with O_CLOEXEC set while it is open.",
       {"C-049"},
       // 0: a descriptor is open or closed; no library keeps some in a cache that grows.
       [](WatchedPlugin& plugin) {
         expect_no_growth_over_starts(plugin, open_descriptors, 0, "open descriptors");
       }},
      {"C-051",
       3,
       "start() and stop() leave no threads running",
       "A thread that is still running after stop() executes code of a plugin that the host no longer "
       "uses. A library that stays loaded may keep a thread pool if the pool does not grow. Fix: end and "
       "join your threads in stop().",
       {"C-049"},
       [](WatchedPlugin& plugin) { expect_no_growth_over_starts(plugin, running_threads, 0, "threads"); }},
      {"C-052",
       3,
       "start() and stop() leak no memory",
       "A few bytes per start do not matter in a command, but add up to gigabytes in a service. Fix: free "
       "in stop() what start() allocates; valgrind --leak-check=full names the call.",
       // After C-051: a thread that is left keeps heap memory, which would be reported as a leak.
       {"C-051"},
       [](WatchedPlugin& plugin) {
         // 4096 bytes: room for caches of the C library.
         expect_no_growth_over_starts(plugin, heap_bytes, 4096, "bytes of heap");
       }},
      {"C-053",
       3,
       "stop() frees the host's memory",
       "Memory obtained from the host's alloc() must be released by stop(). The ledger must show 0 bytes "
       "in use after stop(). Fix: call release() in stop() for every block of start().",
       {"C-049"},
       check_stop_frees_memory},
      {"C-054",
       3,
       "The process exits normally after stop()",
       "Exit handlers and static destructors of the plugin run when the host exits, after everything was "
       "saved. A crash there makes a successful run look failed. Fix: free resources in stop() rather "
       "than in static destructors and atexit() handlers.",
       {"C-049"},
       check_process_exit,
       true},
      {"C-055",
       3,
       "Loading and starting takes less than one second",
       "`trainhost plugins list` starts every plugin. Fix: move slow work to create().",
       {"C-048"},
       check_start_time,
       true},
  };
}

}  // namespace trainhost::plugin_validator
