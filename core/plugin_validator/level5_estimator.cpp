// Level 5 for estimators: match() accepts the families of its manifest and is fast; an estimate frees what it
// allocates. Times are medians and memory is compared after a warm-up, so that a loaded machine and lazy
// initialization cause no failure.
#include <algorithm>
#include <chrono>
#include <fstream>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void check_match_of_own_family(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  // match() twice, once for the message: it is deterministic (E-013).
  expect(plugin.match(s) > 0,
         "match() of a small {} model returned {}; its manifest names that family, 1 to 1000 was expected",
         escaped(s.model.family), plugin.match(s));
}

void check_score_range(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  // Families of the sample, two common ones, an unknown and an empty one.
  for (const char* family : {s.model.family.c_str(), "llama", "gpt2", "no-such-family", ""}) {
    Sample other = s;
    other.model.family = family;
    const int score = plugin.match(other);
    expect(score >= 0 && score <= 1000, "match() of family '{}' returned {}; 0 to 1000 was expected",
           escaped(family), score);
  }
}

void check_match_time(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  std::vector<double> ms;
  for (int i = 0; i < 51; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    plugin.match(s);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  // The median of 51: a few calls may be interrupted by the scheduler.
  std::nth_element(ms.begin(), ms.begin() + 25, ms.end());
  expect(ms[25] < 1, "match() had a median of {:.2f} ms over 51 calls; less than 1 ms was expected", ms[25]);
}

/// Calls of read() and write() that this thread has made; throws CheckSkipped where the kernel does not count
/// them (CONFIG_TASK_IO_ACCOUNTING). Per thread, so that other threads of the process do not count.
/// them.
std::uint64_t reads_and_writes() {
  std::ifstream in("/proc/thread-self/io");
  std::uint64_t all = 0, counted = 0;
  // Two words of the file precede the numbers: those of read and of write calls.
  for (std::string word; in >> word;)
    if (std::uint64_t n = 0; (word == "syscr:" || word == "syscw:") && in >> n) all += n, ++counted;
  if (counted != 2) throw CheckSkipped("this kernel does not count a thread's reads and writes");
  return all;
}

void check_match_without_io(WatchedPlugin& plugin) {
  constexpr int kCalls = 20;
  Started started(plugin);
  const Sample s = plugin.sample();
  // The first call may read files for a cache.
  plugin.match(s);
  const std::uint64_t first = reads_and_writes(), second = reads_and_writes(),
                      own = second - first;  // reading the counter counts too
  for (int i = 0; i < kCalls; ++i) plugin.match(s);
  const std::uint64_t made = reads_and_writes() - second - own;
  expect(made == 0, "{} calls of match() read or wrote {} times; none were expected", kCalls, made);
}

void check_match_repeats(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  const int first = plugin.match(s);
  for (int i = 0; i < 20; ++i) {
    const int again = plugin.match(s);
    expect(again == first, "match() of the same model and run returned {} and then {}", first, again);
  }
}

void check_estimate_frees_memory(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  const std::uint64_t held_before = plugin.host().ledger().in_use_total();
  // The first reports are stored by WatchedPlugin and allocate memory of its own.
  for (int i = 0; i < 5; ++i) plugin.report(s);
  // Growth in this process: the plugin's heap is also the host's.
  const auto heap_growth = [&](int calls) {
    const std::uint64_t before = heap_bytes();
    for (int i = 0; i < calls; ++i) plugin.report_and_discard(s);
    const std::uint64_t after = heap_bytes();
    return after > before ? after - before : 0;
  };
  // Measured with calls that store nothing; 200 leaks of 41 bytes exceed the limit.
  heap_growth(20);  // the first calls may fill caches
  const std::uint64_t bytes = heap_growth(200);
  expect(bytes < 8192, "200 estimates left {} bytes of heap allocated; none were expected", bytes);
  // Both kinds of memory: heap, and what was allocated through the host.
  const std::uint64_t held = plugin.host().ledger().in_use_total() - held_before;
  expect(held == 0, "estimate() left {} bytes of the host's memory allocated; none were expected", held);
}

void check_estimate_frees_descriptors(WatchedPlugin& plugin) {
  Started started(plugin);
  const Sample s = plugin.sample();
  for (int i = 0; i < 3; ++i) plugin.report(s);
  // After three calls, so that a pool that is created once is not counted.
  const unsigned before = open_descriptors(), threads = running_threads();
  for (int i = 0; i < 30; ++i) plugin.report(s);
  expect(open_descriptors() <= before, "30 estimates left {} more descriptors open; none were expected",
         open_descriptors() - before);
  // Threads that end by themselves after the call would fail here at random; estimates must have none at all.
  expect(running_threads() <= threads, "30 estimates left {} more threads running; none were expected",
         running_threads() - threads);
}

void check_trainer_profile_accepted(WatchedPlugin& plugin) {
  Started started(plugin);
  th_profile p{};
  // The values of no real trainer: an estimator must use them, not recognize the trainer.
  p.struct_size = sizeof p;
  p.alignment = 128, p.attention_tile_q = p.attention_tile_k = 32, p.threads = 2, p.slots = 8,
  p.tier = TH_TIER_DEVICE;
  std::snprintf(p.trainer, sizeof p.trainer, "check");
  CallVariation t;
  t.profile = &p;
  const ReportResult a = plugin.report(plugin.sample(), t);
  expect(a.ok() && !a.report.nodes.empty(), "estimate() for a trainer's profile returned {} and {} nodes",
         a.text(), a.report.nodes.size());
}

}  // namespace

std::vector<Check> estimator_checks() {
  return {
      {"E-010",
       5,
       "match() accepts a model of a family in its manifest",
       "Hosts find estimators by the families in the manifest. If match() returns 0 for all of them, the "
       "estimator is never used. Fix: return a score for each family of the manifest, or remove the "
       "family from the manifest.",
       {"E-002"},
       check_match_of_own_family},
      {"E-011",
       5,
       "match() returns 0 to 1000",
       "The highest score wins. A score above 1000 would win against every better estimator, so the host "
       "limits it to 1000. Fix: return a value between 0 and 1000.",
       {"E-002"},
       check_score_range},
      {"E-012",
       5,
       "match() returns within a millisecond",
       "A search asks every estimator about thousands of parallel layouts. match() should read a few "
       "fields and do no I/O. Fix: read only fields of the two structs in match(), and prepare tables in "
       "start().",
       {"E-002"},
       check_match_time},
      {"E-018",
       5,
       "match() does no file I/O",
       "Reads from disk or network can be slow, and their result can change between calls. Fix: read "
       "everything that you need in start().",
       {"E-002"},
       check_match_without_io},
      {"E-013",
       5,
       "match() is deterministic",
       "Which estimator is chosen must not depend on earlier calls. Fix: compute the score from the "
       "arguments alone.",
       {"E-002"},
       check_match_repeats},
      {"E-014",
       5,
       "Four threads get the same estimate as one",
       "estimate() has the tag [any]: hosts call it from every core. A static buffer causes a different "
       "report or a crash. Fix: keep everything that a call needs in local variables; give each thread "
       "its own buffer if one is needed.",
       {"C-070", "C-077"},
       check_report_from_four_threads},
      {"E-015",
       5,
       "An estimate leaks no memory",
       "A planner runs for hours and calls estimate() millions of times. Fix: free what estimate() "
       "allocates before it returns, also on its error paths.",
       {"C-070"},
       check_estimate_frees_memory},
      {"E-016",
       5,
       "An estimate leaves no descriptor open and no thread running",
       "Estimates are pure: no files, and no threads that outlive the call. Fix: close files and join "
       "threads before estimate() returns.",
       {"C-070"},
       check_estimate_frees_descriptors},
      {"E-017",
       5,
       "It accepts a trainer's profile",
       "With --backend the host passes the th_profile of the trainer that would run the job: alignment, "
       "tile sizes, threads. Fix: read alignment, tiles and threads from the profile, and do not test its "
       "trainer field.",
       {"C-070"},
       check_trainer_profile_accepted},
  };
}

}  // namespace trainhost::plugin_validator
