// The thread pool of the CPU trainer: every task runs exactly once for any number of tasks and threads, also
// if jobs follow each other quickly or after pauses, and a pool can be destroyed at any time.
#include <sys/mman.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/process/cpu_topology.hpp"
#include "plugins/cpu/engine/thread_pool.hpp"

namespace trainhost::cpu {
namespace {

BOOST_AUTO_TEST_SUITE(cpu_thread_pool)

BOOST_AUTO_TEST_CASE(every_task_runs_exactly_once) {
  for (std::uint32_t threads : {1u, 2u, 3u, 4u, 9u}) {
    ThreadPool pool(threads);
    for (std::uint32_t tasks : {0u, 1u, 2u, 7u, 33u, 1000u, 65535u, 65536u, 200001u}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<bool> bad_worker{false};
      pool.run(tasks, [&](std::uint32_t t, std::uint32_t w) {
        ++runs[t];
        if (w >= threads) bad_worker = true;
      });
      std::uint32_t once = 0;
      for (auto& r : runs) once += r == 1;
      BOOST_TEST(once == tasks);
      BOOST_TEST(!bad_worker);
    }
  }
}

// A worker that missed the last job must still see that the pool is destroyed. An earlier version slept
// forever.
BOOST_AUTO_TEST_CASE(destroying_a_pool_with_late_workers_terminates) {
  for (int round = 0; round < 500; ++round) {
    ThreadPool pool(9);
    pool.run(2, [](std::uint32_t, std::uint32_t) {});
  }
}

BOOST_AUTO_TEST_CASE(frequent_and_rare_jobs_lose_no_task) {
  ThreadPool pool(4);
  std::atomic<std::uint64_t> sum{0};
  std::uint64_t expected = 0;
  for (std::uint32_t job = 0; job < 20000; ++job) {
    const std::uint32_t tasks = job % 13;
    pool.run(tasks, [&](std::uint32_t t, std::uint32_t) { sum += t + 1; });
    expected += tasks * (tasks + 1) / 2;
    if (job % 2000 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the workers to sleep
  }
  BOOST_TEST(sum == expected);
}

BOOST_AUTO_TEST_CASE(pools_can_be_created_and_destroyed_repeatedly) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    std::atomic<int> n{0};
    if (i % 2) pool.run(5, [&](std::uint32_t, std::uint32_t) { ++n; });
    BOOST_TEST(n == (i % 2 ? 5 : 0));
  }
}

std::vector<std::uint32_t> one_cpu() { return {allowed_cpus().front()}; }

BOOST_AUTO_TEST_CASE(workers_stay_on_their_cpus_and_the_caller_is_free) {
  const std::vector<std::uint32_t> before = allowed_cpus(), one = one_cpu();
  ThreadPool pool(3, {one, one, one});
  std::atomic<int> elsewhere{0};
  pool.run(300, [&](std::uint32_t, std::uint32_t worker) {
    elsewhere += allowed_cpus() != (worker == 0 ? before : one);
  });
  BOOST_TEST(elsewhere == 0);
  BOOST_TEST(allowed_cpus() == before, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(divided_pages_are_in_memory_and_stay_zero) {
  constexpr std::size_t kBytes = (9u << 20) + 5000;
  auto* at = static_cast<unsigned char*>(
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  BOOST_REQUIRE(at != MAP_FAILED);
  const auto resident = [&] {
    std::vector<unsigned char> pages((kBytes + 4095) / 4096);
    BOOST_REQUIRE(::mincore(at, kBytes, pages.data()) == 0);
    std::size_t n = 0;
    for (const unsigned char p : pages) n += p & 1;
    return n;
  };
  BOOST_TEST(resident() == 0u);
  ThreadPool pool(3);
  divide_pages(pool, at, kBytes);
  BOOST_TEST(resident() == (kBytes + 4095) / 4096);
  BOOST_TEST(std::all_of(at, at + kBytes, [](unsigned char c) { return c == 0; }));
  ::munmap(at, kBytes);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cpu
