// Number of threads under a CPU quota of a control group, on a made-up file tree.
#include "core/process/cpu_quota.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <string>
#include <thread>
#include <vector>

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
  BOOST_TEST(default_threads(1000, "TRAINHOST_NO_RANK") == 1u);
}

BOOST_AUTO_TEST_CASE(the_launcher_is_the_nearest_ancestor_without_a_rank) {
  const test::FileTree tree;
  using Cpus = std::vector<std::uint32_t>;
  const auto process = [&](const std::string& name, const char* parent, const char* cpus,
                           std::string environment) {
    tree.write("proc/" + name + "/status", std::string("Name:\tx\nPPid:\t") + parent +
                                               "\nCpus_allowed:\tf\nCpus_allowed_list:\t" + cpus + "\n");
    std::ranges::replace(environment, ';', '\0');
    tree.write("proc/" + name + "/environ", environment);
  };
  BOOST_TEST(launcher_cpus(tree.path, "RANK").empty());  // no /proc
  process("self", "30", "0", "A=1;RANK=2;");
  tree.write("sys/devices/system/cpu/online", "0-2\n");
  BOOST_TEST((launcher_cpus(tree.path, "RANK") == Cpus{0, 1, 2}));  // the parent cannot be seen
  process("30", "20", "0", "A=1;RANK=2;");                          // a shell between them
  process("20", "10", "0-1,8", "A=1;RANKS=4;MY_RANK=1;");           // the launcher
  process("10", "1", "0-15", "");
  BOOST_TEST((launcher_cpus(tree.path, "RANK") == Cpus{0, 1, 8}));
  process("self", "30", "0", "A=1;");  // it has set the variable itself, as Python can
  BOOST_TEST((launcher_cpus(tree.path, "RANK") == Cpus{0, 1, 8}));
  process("20", "0", "0-1,8", "RANK=3;");  // no ancestor is a launcher
  BOOST_TEST((launcher_cpus(tree.path, "RANK") == Cpus{0, 1, 2}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
