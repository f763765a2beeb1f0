// Level 3: the process is left as found, by loading, starting and stopping; and start and stop can be
// repeated.
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

constexpr int kTimes = 100, kWarm = 5;  // the first starts may fill caches; from then on nothing may grow

/// One facet of the process over load, start() and stop().
void keeps(Bench& b, const std::string& facet) {
  const ProcessState fresh = process_state();
  const auto same = [&](const char* where) {
    const std::string d = difference(fresh, process_state(), facet);
    expect(d.empty(), "{} changed the {}: {}", where, facet, d);
  };
  b.subject();
  same("loading it");
  b.subject().table();
  same("its entry");
  {
    Started started(b);
    same("its start()");
  }
  same("its stop()");
}

void writes_nothing(Bench& b) {
  CapturedOutput output;
  b.subject();
  { Started started(b); }
  const std::string text = output.written();
  expect(text.empty(), "it wrote to standard output or error: '{}'; the host's log() was expected",
         escaped(text, 100));
}

void says_why_it_cannot_start(Bench& b) {
  const Answer a = b.start();
  if (a.ok()) return b.stop();
  expect(documented(a.status), "its start() returned {}, which no header has", a.status);
  expect(!a.message.empty(), "its start() returned {} without a message", status_text(a.status));
}

void starts_again(Bench& b) {
  for (int i = 1; i <= kTimes; ++i) {
    const Answer a = b.start();
    if (i == 1 && a.status == TH_E_UNAVAILABLE)
      throw NotHere("its start() says that it cannot be used here: " + a.message);
    expect(a.ok(), "start() number {} returned {}; it was expected to be repeatable", i, a.text());
    b.stop();
  }
}

template <class Count>
void stays_flat(Bench& b, Count count, std::uint64_t allowed, const char* what) {
  std::uint64_t before = 0;
  for (int i = 1; i <= kTimes; ++i) {
    { Started started(b); }
    if (i == kWarm) before = count();
  }
  const std::uint64_t after = count();
  expect(after <= before + allowed, "{} start() and stop() left {} more {} than {} did; none were expected",
         kTimes, after - before, what, kWarm);
}

/// In a process of its own, so that the plugin's exit handlers and destructors run.
void lets_the_process_end(Bench& b) {
  b.subject();
  const pid_t child = ::fork();
  if (child == 0) {
    { Started started(b); }
    std::exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(!WIFSIGNALED(status), "the process died of signal {} when it ended after stop()", WTERMSIG(status));
  expect(WEXITSTATUS(status) == 0, "the process ended with code {} after stop(); 0 was expected",
         WEXITSTATUS(status));
}

void starts_fast(Bench& b) {
  const auto begin = std::chrono::steady_clock::now();
  b.subject();
  { Started started(b); }
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  expect(s < 1, "loading and starting it took {:.1f} s; less than 1 s was expected", s);
}

void gives_back_at_stop(Bench& b) {
  { Started started(b); }
  const std::uint64_t held = b.host().ledger().now_total();
  expect(held == 0, "{} bytes of the host's memory were still taken after stop(); none were expected", held);
}

void tables_are_static(Bench& b) {
  const char* id = b.is_trainer() ? TH_TRAINER_ID : TH_ESTIMATOR_ID;
  const void* first = b.subject().interface(id);
  std::uint32_t size = 0;
  std::memcpy(&size, first, sizeof size);
  std::vector<unsigned char> before(size < 4096 ? size : 4096), after(before.size());
  std::memcpy(before.data(), first, before.size());
  for (int i = 0; i < 2; ++i) {
    Started started(b);
    expect(
        b.subject().interface(id) == first,
        "get(\"{}\") gave another table after start(); the same one was expected for the life of the library",
        id);
  }
  std::memcpy(after.data(), first, after.size());
  expect(before == after, "its {} table changed between load and stop(); it was expected to be constant", id);
}

}  // namespace

std::vector<Check> process_checks() {
  return {
      {"C-048",
       3,
       "A start() that fails says why",
       "The message of a failing start() is all that a user sees of the plugin in `trainhost plugins list`.",
       {"C-024"},
       says_why_it_cannot_start},
      {"C-040",
       3,
       "It leaves the floating-point mode as found",
       "A library that is linked with -ffast-math flushes denormals to zero in the whole thread, from the "
       "moment it is "
       "loaded: other plugins compute other numbers. Compile with it if you must, but do not link with it.",
       {"C-048"},
       [](Bench& b) { keeps(b, "floating-point mode"); },
       true},
      {"C-041",
       3,
       "It leaves signal handlers and masks as found",
       "The host turns SIGINT and SIGTERM into a checkpoint. A handler or mask that a plugin leaves behind "
       "loses the run.",
       {"C-048"},
       [](Bench& b) { keeps(b, "signal handlers"); },
       true},
      {"C-042",
       3,
       "It leaves the locale as found",
       "With another LC_NUMERIC the host writes 0,5 into JSON. Use the _l functions or std::to_chars.",
       {"C-048"},
       [](Bench& b) { keeps(b, "locale"); },
       true},
      {"C-043",
       3,
       "It leaves working directory and umask as found",
       "Paths of the run file are relative to where the user stands.",
       {"C-048"},
       [](Bench& b) { keeps(b, "working directory and umask"); },
       true},
      {"C-044",
       3,
       "It leaves the environment as found",
       "setenv() while another thread calls getenv() is a crash, and children inherit it. Pass settings to "
       "your libraries "
       "by their functions.",
       {"C-048"},
       [](Bench& b) { keeps(b, "environment"); },
       true},
      {"C-045",
       3,
       "It leaves resource limits as found",
       "A raised or lowered limit changes what the host and every other plugin can do.",
       {"C-048"},
       [](Bench& b) { keeps(b, "resource limits"); },
       true},
      {"C-046",
       3,
       "It leaves the standard streams as found",
       "Closing or replacing descriptors 0 to 2 sends the host's output into whatever is opened next.",
       {"C-048"},
       [](Bench& b) { keeps(b, "standard streams"); },
       true},
      {"C-047",
       3,
       "It writes nothing to standard output and error",
       "Standard output may be JSON that a program reads. What users shall know goes through the host's "
       "log().",
       {"C-048"},
       writes_nothing,
       true},
      {"C-049",
       3,
       "start() and stop() can be repeated",
       "A host stops a plugin when its last run ends, and starts it again for the next.",
       {"C-048"},
       starts_again},
      {"C-031",
       3,
       "Its tables stay where and what they are",
       "Tables are STATIC: a host keeps the pointer for the life of the library. Building one on the stack "
       "or in start() "
       "leaves hosts with a dangling or a changing one.",
       {"C-029", "C-030", "C-049"},
       tables_are_static},
      {"C-050",
       3,
       "Starting and stopping leaves no descriptors open",
       "A descriptor a start: a long-lived host runs into its limit and can open no checkpoint.",
       {"C-049"},
       [](Bench& b) { stays_flat(b, open_descriptors, 0, "open descriptors"); }},
      {"C-051",
       3,
       "Starting and stopping leaves no threads running",
       "A thread that lives on after stop() runs code of a plugin that the host has forgotten. A pool of a "
       "library that "
       "stays loaded may stay, if it does not grow.",
       {"C-049"},
       [](Bench& b) { stays_flat(b, running_threads, 0, "threads"); }},
      {"C-052",
       3,
       "Starting and stopping leaks no memory",
       "Some bytes a start are nothing in a command and gigabytes in a service.",
       {"C-051"},
       [](Bench& b) { stays_flat(b, heap_bytes, 4096, "bytes of heap"); }},
      {"C-053",
       3,
       "stop() has given the host's memory back",
       "Memory of the host's alloc() belongs to what was started. The ledger must be at zero after stop().",
       {"C-049"},
       gives_back_at_stop},
      {"C-054",
       3,
       "The process ends well after it",
       "Exit handlers and destructors of static objects of the plugin run when the host ends, after "
       "everything was saved: "
       "a crash there turns a good run into a failed one.",
       {"C-049"},
       lets_the_process_end,
       true},
      {"C-055",
       3,
       "Loading and starting takes less than a second",
       "`trainhost plugins list` starts every plugin. What takes long belongs into create().",
       {"C-048"},
       starts_fast,
       true},
  };
}

}  // namespace trainhost::plugin_validator
