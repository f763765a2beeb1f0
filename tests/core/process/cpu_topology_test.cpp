// Cores and NUMA nodes of CPUs, and where workers are bound, on made-up file trees.
#include "core/process/cpu_topology.hpp"

#include <sched.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/process/cpu_quota.hpp"
#include "tests/core/process/file_tree.hpp"

namespace trainhost {
namespace {

using Cpus = std::vector<std::uint32_t>;
using test::FileTree;

/// `nodes` nodes of `cores` cores with two hyper-threads each, numbered as Linux does on Intel: first one
/// thread of every core, then the others.
void write_machine(const FileTree& tree, std::uint32_t nodes, std::uint32_t cores) {
  const std::uint32_t all = nodes * cores;
  tree.write("sys/devices/system/node/online", nodes == 1 ? "0\n" : "0-" + std::to_string(nodes - 1) + "\n");
  for (std::uint32_t n = 0; n < nodes; ++n) {
    const auto range = [&](std::uint32_t from) {
      return std::to_string(from) + "-" + std::to_string(from + cores - 1);
    };
    tree.write("sys/devices/system/node/node" + std::to_string(n) + "/cpulist",
               range(n * cores) + "," + range(all + n * cores) + "\n");
  }
  for (std::uint32_t cpu = 0; cpu < 2 * all; ++cpu)
    tree.write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
               std::to_string(cpu % all) + "," + std::to_string(cpu % all + all) + "\n");
}
Cpus up_to(std::uint32_t n) {
  Cpus cpus(n);
  for (std::uint32_t i = 0; i < n; ++i) cpus[i] = i;
  return cpus;
}

BOOST_AUTO_TEST_SUITE(cpu_topology)

BOOST_AUTO_TEST_CASE(lists_of_cpus) {
  BOOST_TEST(parse_cpu_list("0-3,8,10-11\n") == (Cpus{0, 1, 2, 3, 8, 10, 11}),
             boost::test_tools::per_element());
  BOOST_TEST(parse_cpu_list("5") == Cpus{5}, boost::test_tools::per_element());
  for (const char* malformed : {"", "\n", "a", "1-", "-1", "3-1", "1,,2", "1 2", "0-4000000000", "0-65536"})
    BOOST_TEST(parse_cpu_list(malformed).empty(), malformed);
}

BOOST_AUTO_TEST_CASE(hyper_threads_share_a_core_and_nodes_are_read) {
  const FileTree tree;
  write_machine(tree, 2, 2);
  const std::vector<CpuPlace> all = cpu_places(tree.path, up_to(8));
  const std::vector<CpuPlace> want = {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0},
                                      {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};
  BOOST_TEST((all == want));
  BOOST_TEST(core_count(all) == 4u);
  BOOST_TEST(spans_nodes(all));
  // Of a process that may use three of them.
  const std::vector<CpuPlace> some = cpu_places(tree.path, Cpus{1, 4, 5});
  BOOST_TEST((some == std::vector<CpuPlace>{{4, 0, 0}, {1, 1, 0}, {5, 1, 0}}));
  BOOST_TEST(core_count(some) == 2u);
  BOOST_TEST(!spans_nodes(some));
}

BOOST_AUTO_TEST_CASE(the_file_of_older_kernels_is_read_and_missing_or_wrong_ones_are_no_error) {
  const FileTree tree;
  tree.write("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
  tree.write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n");
  tree.write("sys/devices/system/cpu/cpu2/topology/core_cpus_list", "nonsense\n");
  tree.write("sys/devices/system/cpu/cpu3/topology/core_cpus_list", "0-1\n");  // does not contain CPU 3
  tree.write("sys/devices/system/node/online", "0,7\n");
  tree.write("sys/devices/system/node/node7/cpulist", "3\n");
  BOOST_TEST(
      (cpu_places(tree.path, up_to(4)) == std::vector<CpuPlace>{{0, 0, 0}, {1, 0, 0}, {2, 2, 0}, {3, 3, 7}}));
  BOOST_TEST(core_count(cpu_places(tree.path / "nothing", up_to(4))) == 4u);
  BOOST_TEST(cpu_places(tree.path, Cpus{}).empty());
  BOOST_TEST(!spans_nodes(cpu_places(tree.path, Cpus{})));
}

BOOST_AUTO_TEST_CASE(workers_stay_on_their_node_or_core) {
  const FileTree tree;
  write_machine(tree, 2, 2);
  const std::vector<CpuPlace> all = cpu_places(tree.path, up_to(8));
  const Cpus node0 = {0, 4, 1, 5}, node1 = {2, 6, 3, 7};
  using Bound = std::vector<Cpus>;
  BOOST_TEST((worker_cpus(all, 4, Binding::kNode) == Bound{node0, node0, node1, node1}));
  BOOST_TEST((worker_cpus(all, 6, Binding::kNode) == Bound{node0, node0, node0, node1, node1, node1}));
  for (const Binding b : {Binding::kNode, Binding::kCore})  // others would be bound to the same cores
    for (const std::uint32_t threads : {1u, 3u}) BOOST_TEST(worker_cpus(all, threads, b).empty());
  BOOST_TEST((worker_cpus(all, 4, Binding::kCore) == Bound{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // More workers than cores: the hyper-threads of a core are shared by neighbouring ones.
  BOOST_TEST((worker_cpus(all, 8, Binding::kCore) ==
              Bound{{0, 4}, {0, 4}, {1, 5}, {1, 5}, {2, 6}, {2, 6}, {3, 7}, {3, 7}}));
  BOOST_TEST(worker_cpus(all, 4, Binding::kNone).empty());
  const std::vector<CpuPlace> one_node = cpu_places(tree.path, Cpus{0, 1, 4, 5});
  BOOST_TEST(worker_cpus(one_node, 2, Binding::kNode).empty());
  BOOST_TEST((worker_cpus(one_node, 2, Binding::kCore) == Bound{{0, 4}, {1, 5}}));
  BOOST_TEST(worker_cpus(std::vector<CpuPlace>{}, 2, Binding::kCore).empty());
}

BOOST_AUTO_TEST_CASE(one_thread_per_core_within_the_quota_and_the_share_of_a_process) {
  const FileTree tree;
  write_machine(tree, 2, 4);
  const Cpus all = up_to(16);
  BOOST_TEST(default_threads(tree.path, all, {}, 1) == 8u);
  BOOST_TEST(default_threads(tree.path, all, all, 4) == 2u);
  BOOST_TEST(default_threads(tree.path, all, all, 40) == 1u);
  BOOST_TEST(default_threads(tree.path, Cpus{}, {}, 1) == 1u);
  tree.write("proc/self/cgroup", "0::/\n");
  tree.write("sys/fs/cgroup/cpu.max", "350000 100000\n");
  BOOST_TEST(default_threads(tree.path, all, {}, 1) == 3u);
  BOOST_TEST(default_threads(tree.path, all, all, 2) == 1u);
  BOOST_TEST(default_threads(tree.path, Cpus{0, 8}, {}, 1) == 1u);
}

BOOST_AUTO_TEST_CASE(processes_share_cores_only_if_the_launcher_has_not_enough_for_each) {
  const FileTree tree;
  write_machine(tree, 2, 4);  // core c has the CPUs c and c + 8; the second node has the cores 4 to 7
  const Cpus all = up_to(16), two = {0, 1, 8, 9}, node = {0, 1, 2, 3, 8, 9, 10, 11};
  // Two cores of eight each for four processes (mpirun --map-by slot:pe=2): nothing is shared.
  BOOST_TEST(default_threads(tree.path, two, all, 4) == 2u);
  // Bound to a socket: two and four processes on each; with three, the fuller socket decides for all.
  BOOST_TEST(default_threads(tree.path, node, all, 2) == 4u);
  BOOST_TEST(default_threads(tree.path, node, all, 4) == 2u);
  BOOST_TEST(default_threads(tree.path, node, all, 8) == 1u);
  BOOST_TEST(default_threads(tree.path, node, all, 3) == 2u);
  // The launcher itself may use four cores (taskset, a container) and has not divided them, or has.
  BOOST_TEST(default_threads(tree.path, node, node, 4) == 1u);
  BOOST_TEST(default_threads(tree.path, node, node, 2) == 2u);
  BOOST_TEST(default_threads(tree.path, two, node, 2) == 2u);
  BOOST_TEST(default_threads(tree.path, two, node, 4) == 1u);
  // More processes than cores; an unknown launcher; one that runs elsewhere than its processes.
  BOOST_TEST(default_threads(tree.path, Cpus{0, 8}, all, 16) == 1u);
  BOOST_TEST(default_threads(tree.path, two, {}, 2) == 1u);
  BOOST_TEST(default_threads(tree.path, two, Cpus{2, 3}, 2) == 2u);
}

BOOST_AUTO_TEST_CASE(the_environment_selects_the_binding) {
  ::unsetenv("TRAINHOST_CPU_BIND");
  BOOST_TEST((selected_binding() == Binding::kNode));
  for (const auto& [name, binding] : {std::pair{"none", Binding::kNone},
                                      {"node", Binding::kNode},
                                      {"core", Binding::kCore},
                                      {"", Binding::kNode}}) {
    ::setenv("TRAINHOST_CPU_BIND", name, 1);
    BOOST_TEST((selected_binding() == binding), name);
  }
  ::setenv("TRAINHOST_CPU_BIND", "cores", 1);
  BOOST_CHECK_EXCEPTION(selected_binding(), Error, [](const Error& e) {
    return std::string(e.what()).find("TRAINHOST_CPU_BIND=cores: expected none, node or core") == 0;
  });
  ::unsetenv("TRAINHOST_CPU_BIND");
}

BOOST_AUTO_TEST_CASE(the_cpus_of_this_process) {
  const Cpus cpus = allowed_cpus();
  cpu_set_t set;
  BOOST_REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  BOOST_TEST(cpus.size() == static_cast<std::size_t>(CPU_COUNT(&set)));
  for (const std::uint32_t cpu : cpus) BOOST_TEST(CPU_ISSET(cpu, &set));
  BOOST_TEST(worker_cpus(2).size() <= 2u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
