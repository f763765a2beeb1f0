// Number of threads under a CPU quota of a control group, on a made-up file tree.
#include "core/process/cpu_quota.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>
#include <thread>

#include "tests/core/process/file_tree.hpp"

namespace trainhost {
namespace {

BOOST_AUTO_TEST_SUITE(cpu_quota)

BOOST_AUTO_TEST_CASE(the_smallest_quota_of_the_group_and_those_above_counts) {
  const test::FileTree tree;
  const std::filesystem::path root = tree.path;
  constexpr std::uint32_t kUnlimited = std::numeric_limits<std::uint32_t>::max();
  BOOST_TEST(cpus_by_quota(root) == kUnlimited);  // no control groups
  tree.write("proc/self/cgroup", "0::/pod/container\n");
  BOOST_TEST(cpus_by_quota(root) == kUnlimited);
  tree.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  BOOST_TEST(cpus_by_quota(root) == kUnlimited);
  tree.write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  BOOST_TEST(cpus_by_quota(root) == 3u);
  tree.write("sys/fs/cgroup/pod/container/cpu.max", "50000 100000\n");
  BOOST_TEST(cpus_by_quota(root) == 1u);
  tree.write("sys/fs/cgroup/pod/container/cpu.max", "nonsense\n");
  BOOST_TEST(cpus_by_quota(root) == 3u);
  tree.write("proc/self/cgroup", "0::/\n");
  tree.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  BOOST_TEST(cpus_by_quota(root) == 2u);
}

BOOST_AUTO_TEST_CASE(threads_do_not_exceed_the_cpus) {
  BOOST_TEST(default_threads() >= 1u);
  BOOST_TEST(default_threads() <= std::max(1u, std::thread::hardware_concurrency()));
  BOOST_TEST(default_threads(1000) <= default_threads());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
