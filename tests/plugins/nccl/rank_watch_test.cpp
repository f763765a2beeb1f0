// A process of a run ends: the others end, and one of them says which it was and why. Without
// NCCL: each process only waits, as in a collective on the device.
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "plugins/nccl/rank_watch.hpp"
#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost;
using namespace trainhost::nccl;
namespace fs = std::filesystem;

namespace {

/// Rank 0 writes the text into a file, from which the others read it.
std::string exchange(const fs::path& file, std::uint32_t rank, const std::function<std::string()>& make) {
  if (rank == 0) {
    const std::string text = make();
    std::ofstream(file.string() + ".new", std::ios::binary) << text;
    fs::rename(file.string() + ".new", file);
    return text;
  }
  while (!fs::exists(file)) ::usleep(1000);
  return test::read_file(file);
}

struct Ended {
  std::vector<int> codes;  // by rank: exit code, or 128 + signal
  std::string printed;     // by all
  std::vector<pid_t> processes;
  double seconds = 0;
};

/// Starts `ranks` processes, each with a RankWatch; `last` is called by rank `victim` when all are connected.
/// The others wait for 20 s, then leave.
Ended run(std::uint32_t ranks, std::uint32_t victim, const std::function<void(RankWatch&)>& last,
          std::uint32_t local_ranks = 8) {
  const test::TemporaryDirectory tmp;
  Ended all;
  const auto begin = Clock::now();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const pid_t child = ::fork();
    if (child != 0) {
      all.processes.push_back(child);
      continue;
    }
    ::dup2(::open((tmp / "printed").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    LaunchVariables launch;
    launch.rank = r, launch.ranks = ranks, launch.address = "127.0.0.1", launch.local_rank = r % local_ranks;
    {
      RankWatch watch(launch, [&](const auto& make) { return exchange(tmp / "first", r, make); });
      watch.set_connected();
      std::ofstream(tmp / ("connected-" + std::to_string(r))).put(0);
      for (std::uint32_t other = 0; other < ranks; ++other)
        while (!fs::exists(tmp / ("connected-" + std::to_string(other)))) ::usleep(1000);
      ::usleep(100000);  // rank 0 reads what the others have sent
      if (r == victim)
        last(watch);
      else
        ::sleep(20);
    }
    ::_exit(0);
  }
  // The process that has ended first is still a zombie when the others look at it.
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(all.processes[victim]), &info, WEXITED | WNOWAIT);
  ::usleep(500000);
  for (const pid_t p : all.processes) {
    int status = 0;
    ::waitpid(p, &status, 0);
    all.codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  all.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  all.printed = fs::exists(tmp / "printed") ? test::read_file(tmp / "printed") : "";
  return all;
}

std::string host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

void is_reported(const Ended& e, std::uint32_t by, std::uint32_t victim, const std::string& why) {
  BOOST_TEST(e.printed == "trainhost: rank " + std::to_string(by) + " on " + host() + ": rank " +
                              std::to_string(victim) + " on " + host() + " has ended (process " +
                              std::to_string(e.processes[victim]) + ", " + why + ")\n");
  for (std::uint32_t r = 0; r < e.codes.size(); ++r)
    if (r != victim) BOOST_TEST(e.codes[r] == 1);
  BOOST_TEST(e.seconds < 6);
}

const auto killed = [](RankWatch&) { ::raise(SIGKILL); };

}  // namespace

BOOST_AUTO_TEST_SUITE(rank_watch)

BOOST_AUTO_TEST_CASE(the_end_of_a_rank_is_reported_by_the_first_one) {
  is_reported(run(3, 1, killed), 0, 1, "signal 9: Killed");
  is_reported(run(3, 2, [](RankWatch&) { ::_exit(3); }), 0, 2, "exit code 3");
}

BOOST_AUTO_TEST_CASE(the_end_of_rank_0_is_reported_by_rank_1) {
  is_reported(run(4, 0, killed), 1, 0, "signal 9: Killed");
}

BOOST_AUTO_TEST_CASE(a_rank_that_has_reported_its_failure_ends_the_others_without_a_message) {
  for (const std::uint32_t victim : {0u, 2u}) {
    const Ended e = run(3, victim, [](RankWatch& w) { w.report_failure(), ::_exit(7); });
    BOOST_TEST(e.printed == "");
    for (std::uint32_t r = 0; r < 3; ++r) BOOST_TEST(e.codes[r] == (r == victim ? 7 : 1));
    BOOST_TEST(e.seconds < 6);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_and_a_stranger_that_connects_end_nobody) {
  std::string first;
  LaunchVariables launch;
  launch.ranks = 3, launch.address = "127.0.0.1";
  const auto watch_of = [&](std::uint32_t rank) {
    launch.rank = rank;
    auto w = std::make_unique<RankWatch>(
        launch, [&](const auto& make) { return rank == 0 ? first = make() : first; });
    w->set_connected();
    return w;
  };
  auto zero = watch_of(0), one = watch_of(1);
  std::uint32_t port = 0;
  std::memcpy(&port, first.data() + 32, sizeof port);
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.0\r\n\r\n"), std::string(500, 'f')}) {
    Socket s =
        connect_to("127.0.0.1", static_cast<std::uint16_t>(port), Clock::now() + std::chrono::seconds(10));
    s.send(text.data(), text.size(), Clock::now() + std::chrono::seconds(10));
  }
  auto two = watch_of(2);
  one.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  zero.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  BOOST_TEST(true);  // this process still runs
}

BOOST_AUTO_TEST_SUITE_END()
