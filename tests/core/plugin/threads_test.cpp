// Many threads and processes: estimates of every estimator, scans that share one cache, concurrent trial
// loads. `tools/dev tsan` builds it with -fsanitize=thread; other builds only compare the results.
#include <sys/wait.h>

#include <atomic>
#include <barrier>
#include <boost/test/unit_test.hpp>
#include <map>
#include <thread>

#include "plugin_fixture.hpp"

using namespace plugin_fixture;

namespace {

constexpr int kThreads = 4;

/// Runs work() in each thread and waits.
template <class F>
void in_threads(F work) {
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t) all.emplace_back(work);
  for (std::thread& t : all) t.join();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_AUTO_TEST_CASE(estimates_from_four_threads_equal_those_of_one) {
  Directory d;
  for (const char* name : {"good", "helper_1", "helper_2", "misbehave"}) d.copy(name);
  Host host({fs::path(TRAINHOST_BINARY_DIR) / "lib/trainhost/plugins",
             d.path()});  // installed plugins and test plugins
  std::vector<std::string> ids = host->ids("estimator");
  BOOST_REQUIRE(ids.size() >= 4u);
  std::map<std::string, std::string> alone;
  const auto ask = [](tp::Estimator& e) {
    try {
      if (e.match(small_model(), {}) <= 0) return std::string("no match");
      const trainhost::MemoryReport r = e.estimate(small_model(), {}, nullptr);
      return std::to_string(r.total_bytes()) + " in " + std::to_string(r.entries.size()) + ", " +
             std::to_string(r.digest);
    } catch (const tp::PluginError& why) {
      return why.status() + ": " + why.what();
    }
  };
  std::map<std::string, tp::Estimator*> all;  // loaded by one thread: the registry itself is not shared
  for (const std::string& id : ids) all[id] = &host->estimator(id);
  for (const std::string& id : ids) alone[id] = ask(*all.at(id));
  std::atomic<int> wrong{0};
  std::barrier together(kThreads);  // one estimator at a time, so that its calls do overlap
  in_threads([&] {
    for (const std::string& id : ids) {
      together.arrive_and_wait();
      for (int i = 0; i < 50; ++i) wrong += ask(*all.at(id)) != alone.at(id);
    }
  });
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(scans_of_threads_and_processes_share_one_cache) {
  Directory plugins, home;
  for (const char* name : {"good", "helper_1", "aborts", "no_entry"}) plugins.copy(name);
  const fs::path cache = home / "plugins-1.cache";
  const auto listed = [&] {
    Host host(plugins, with_trial_loads(30, cache));
    host->probe_all();
    std::string out;
    for (const tp::Candidate& c : host->candidates())
      out += c.file.filename().string() + " " + c.stage + "/" + c.code + "\n";
    return out;
  };
  Host cold(plugins, with_trial_loads(30));
  cold->probe_all();
  std::string expected;
  for (const tp::Candidate& c : cold->candidates())
    expected += c.file.filename().string() + " " + c.stage + "/" + c.code + "\n";
  std::atomic<int> wrong{0};
  const auto two_threads = [&] {
    std::thread other([&] { wrong += listed() != expected; });
    wrong += listed() != expected;
    other.join();
  };
  const pid_t child = ::fork();  // before this process has threads
  if (child == 0) {
    two_threads();
    ::_exit(wrong);
  }
  two_threads();
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(wrong == 0);
  BOOST_TEST(status == 0);
  BOOST_TEST(listed() == expected);
}

BOOST_AUTO_TEST_SUITE_END()
