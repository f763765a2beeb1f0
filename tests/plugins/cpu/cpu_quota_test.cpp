// Number of threads under a CPU quota of a control group, on a made-up file tree.
#include "plugins/cpu/common/cpu_quota.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

namespace trainhost {
namespace {

namespace fs = std::filesystem;

/// A folder that is deleted at the end.
struct QuotaTree {
  fs::path path;
  QuotaTree() {
    std::string name = (fs::temp_directory_path() / "cpu_quota_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~QuotaTree() { fs::remove_all(path); }
};

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

BOOST_AUTO_TEST_SUITE(cpu_quota)

BOOST_AUTO_TEST_CASE(the_smallest_quota_of_the_group_and_those_above_counts) {
  const QuotaTree tree;
  const fs::path root = tree.path;
  constexpr std::uint32_t kUnlimited = std::numeric_limits<std::uint32_t>::max();
  BOOST_TEST(cpu::cpus_by_quota(root) == kUnlimited);  // no control groups
  write(root / "proc/self/cgroup", "0::/pod/container\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == kUnlimited);
  write(root / "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == kUnlimited);
  write(root / "sys/fs/cgroup/pod/cpu.max", "350000 100000\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == 3u);
  write(root / "sys/fs/cgroup/pod/container/cpu.max", "50000 100000\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == 1u);
  write(root / "sys/fs/cgroup/pod/container/cpu.max", "nonsense\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == 3u);
  write(root / "proc/self/cgroup", "0::/\n");
  write(root / "sys/fs/cgroup/cpu.max", "200000 100000\n");
  BOOST_TEST(cpu::cpus_by_quota(root) == 2u);
}

BOOST_AUTO_TEST_CASE(threads_do_not_exceed_the_cpus) {
  BOOST_TEST(cpu::default_threads() >= 1u);
  BOOST_TEST(cpu::default_threads() <= std::max(1u, std::thread::hardware_concurrency()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
