// Level 5 for estimators: it matches what it says it is made for, quickly, and estimates the same from every
// thread.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/process_state.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void matches_its_family(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  expect(b.match(s) > 0,
         "match() of a small {} model returned {}; its manifest names that family, 1 to 1000 was expected",
         escaped(s.model.family), b.match(s));
}

void score_in_range(Bench& b) {
  Started started(b);
  Sample s = b.sample();
  for (const char* family : {s.model.family.c_str(), "llama", "gpt2", "no-such-family", ""}) {
    Sample other = s;
    other.model.family = family;
    const int score = b.match(other);
    expect(score >= 0 && score <= 1000, "match() of family '{}' returned {}; 0 to 1000 was expected",
           escaped(family), score);
  }
}

void match_is_fast(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  std::vector<double> ms;
  for (int i = 0; i < 51; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    b.match(s);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(ms.begin(), ms.begin() + 25, ms.end());
  expect(ms[25] < 1, "match() took {:.2f} ms in the middle of 51 calls; less than 1 ms was expected", ms[25]);
}

/// Calls of read() and write() that this thread has made; throws NotHere where the kernel does not count
/// them.
std::uint64_t reads_and_writes() {
  std::ifstream in("/proc/thread-self/io");
  std::uint64_t all = 0, counted = 0;
  for (std::string word; in >> word;)
    if (std::uint64_t n = 0; (word == "syscr:" || word == "syscw:") && in >> n) all += n, ++counted;
  if (counted != 2) throw NotHere("this kernel does not count a thread's reads and writes");
  return all;
}

void match_does_no_io(Bench& b) {
  constexpr int kCalls = 20;
  Started started(b);
  const Sample s = b.sample();
  b.match(s);
  const std::uint64_t first = reads_and_writes(), second = reads_and_writes(),
                      own = second - first;  // looking counts too
  for (int i = 0; i < kCalls; ++i) b.match(s);
  const std::uint64_t made = reads_and_writes() - second - own;
  expect(made == 0, "{} calls of match() read or wrote {} times; none were expected", kCalls, made);
}

void match_is_constant(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  const int first = b.match(s);
  for (int i = 0; i < 20; ++i) {
    const int again = b.match(s);
    expect(again == first, "match() of the same model and run returned {} and then {}", first, again);
  }
}

void from_four_threads(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  const std::string expected = printed(b.estimate(s).report);
  std::vector<std::string> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50 && wrong[t].empty(); ++i) {
        const ReportAnswer a = b.estimate(s);
        if (!a.ok())
          wrong[t] = "returned " + a.text();
        else if (printed(a.report) != expected)
          wrong[t] = "gave another report";
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& w : wrong)
    expect(w.empty(), "estimate() {} when four threads called it at once; the same as from one was expected",
           w);
}

void takes_nothing(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  const std::uint64_t held_before = b.host().ledger().now_total();
  for (int i = 0; i < 5; ++i) b.estimate(s);
  // Without the bench, which keeps what it was given.
  const auto grown = [&](int calls) {
    const std::uint64_t before = heap_bytes();
    for (int i = 0; i < calls; ++i) {
      const th_estimator e = b.subject().estimator();
      th_model m = s.c_model();
      th_run r = s.c_run();
      static th_mem_sink sink{sizeof sink, 0, nullptr,
                              [](th_mem_sink*, const th_mem*) { return th_status{TH_OK}; },
                              [](th_mem_sink*, const char*) { return th_status{TH_OK}; }};
      Guarded<th_mem_summary> sum;
      Guarded<th_error> error;
      CheckingHost::Legal legal(b.host());
      e.estimate(b.host().get(), &m, &r, nullptr, &sink, sum.get(), error.get());
    }
    const std::uint64_t after = heap_bytes();
    return after > before ? after - before : 0;
  };
  grown(20);
  const std::uint64_t bytes = grown(200);
  expect(bytes < 8192, "200 estimates left {} bytes of heap taken; none were expected", bytes);
  const std::uint64_t held = b.host().ledger().now_total() - held_before;
  expect(held == 0, "estimate() left {} bytes of the host's memory taken; an estimate takes none", held);
}

void leaves_no_descriptor(Bench& b) {
  Started started(b);
  const Sample s = b.sample();
  for (int i = 0; i < 3; ++i) b.estimate(s);
  const unsigned before = open_descriptors(), threads = running_threads();
  for (int i = 0; i < 30; ++i) b.estimate(s);
  expect(open_descriptors() <= before, "30 estimates left {} more descriptors open; none were expected",
         open_descriptors() - before);
  expect(running_threads() <= threads, "30 estimates left {} more threads running; none were expected",
         running_threads() - threads);
}

void same_with_a_profile(Bench& b) {
  Started started(b);
  th_profile p{};
  p.struct_size = sizeof p;
  p.alignment = 128, p.attention_tile_q = p.attention_tile_k = 32, p.threads = 2, p.slots = 8,
  p.tier = TH_TIER_DEVICE;
  std::snprintf(p.trainer, sizeof p.trainer, "check");
  Twist t;
  t.profile = &p;
  const ReportAnswer a = b.estimate(b.sample(), t);
  expect(a.ok() && !a.report.nodes.empty(), "estimate() for a trainer's profile returned {} and {} nodes",
         a.text(), a.report.nodes.size());
}

}  // namespace

std::vector<Check> estimator_checks() {
  return {
      {"E-010",
       5,
       "match() takes a model of its own family",
       "The manifest names families so that hosts find the plugin; a match() of 0 for all of them means that "
       "it is never "
       "asked.",
       {"E-002"},
       matches_its_family},
      {"E-011",
       5,
       "match() stays within 0 to 1000",
       "The best score wins. A score beyond the scale would win against every better estimator, and is cut.",
       {"E-002"},
       score_in_range},
      {"E-012",
       5,
       "match() answers within a millisecond",
       "A search asks every estimator about thousands of layouts. match() reads a few fields and does no "
       "I/O.",
       {"E-002"},
       match_is_fast},
      {"E-018",
       5,
       "match() reads and writes no file",
       "What a disk or a network gives is slow once in a while, and another answer tomorrow. Read what you "
       "need in start().",
       {"E-002"},
       match_does_no_io},
      {"E-013",
       5,
       "match() of the same run is the same",
       "Which estimator answers must not depend on what was asked before.",
       {"E-002"},
       match_is_constant},
      {"E-014",
       5,
       "Four threads get what one gets",
       "estimate() is [any]: hosts search with every core. A static buffer shows here as another report or a "
       "crash.",
       {"C-070", "C-077"},
       from_four_threads},
      {"E-015",
       5,
       "An estimate takes no memory",
       "A planner runs for hours and asks millions of times.",
       {"C-070"},
       takes_nothing},
      {"E-016",
       5,
       "An estimate leaves no descriptor and no thread",
       "Estimates are pure: no files, no threads that outlive the call.",
       {"C-070"},
       leaves_no_descriptor},
      {"E-017",
       5,
       "It estimates for a trainer's profile too",
       "With --backend the host hands over the profile of the trainer that would run it: alignment, tiles, "
       "threads.",
       {"C-070"},
       same_with_a_profile},
  };
}

}  // namespace trainhost::plugin_validator
