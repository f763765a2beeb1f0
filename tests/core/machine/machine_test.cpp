// The checks of `trainhost doctor` on machines that are folders with the files of /proc and /sys.
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "core/machine/check_libraries.hpp"
#include "core/machine/check_machine.hpp"
#include "core/machine/system_files.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using namespace trainhost::machine;
using trainhost::test::TemporaryDirectory;

namespace {

constexpr const char* kServer =
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) 8480\nflags\t\t: fpu sse4_2 avx avx2 fma bmi2 f16c "
    "avx512f "
    "avx512bw avx512_bf16 amx_tile amx_bf16\n\nprocessor\t: 1\nmodel name\t: Intel(R) Xeon(R) 8480\n";

const Finding& named(const Findings& all, const std::string& name) {
  for (const Finding& f : all)
    if (f.name == name) return f;
  BOOST_FAIL("no finding " << name);
  return all.front();
}

std::string state(const Finding& f) { return state_name(f.state); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// Every finding that is not ok says what to do.
void have_hints(const Findings& all) {
  for (const Finding& f : all)
    BOOST_TEST((f.state == State::kOk) == f.hint.empty(), f.name << ": " << f.hint);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(machine_checks)

BOOST_AUTO_TEST_CASE(a_server_is_described) {
  TemporaryDirectory root;
  root.write("proc/cpuinfo", kServer);
  for (const auto& [index, type, level, size] :
       {std::tuple{"index0", "Data", "1", "48K"}, std::tuple{"index1", "Instruction", "1", "32K"},
        std::tuple{"index2", "Unified", "2", "2048K"}}) {
    const std::string folder = std::string("sys/devices/system/cpu/cpu0/cache/") + index;
    root.write(folder + "/type", type), root.write(folder + "/level", level);
    root.write(folder + "/size", size), root.write(folder + "/shared_cpu_list", "0");
  }
  for (const char* node : {"0", "1"}) {
    const std::string folder = std::string("sys/devices/system/node/node") + node;
    root.write(folder + "/cpulist", node);
    root.write(folder + "/meminfo", std::string("Node ") + node + " MemTotal:       1048576 kB\n");
  }
  const Findings all = check_cpu(root.path(), 2);
  have_hints(all);
  for (const Finding& f : all) BOOST_TEST(state(f) == "ok", f.name << ": " << f.value);
  BOOST_TEST(named(all, "processor").value == "Intel(R) Xeon(R) 8480, 2 CPUs");
  BOOST_TEST(named(all, "instruction sets").value ==
             "sse4_2 avx avx2 fma bmi2 f16c avx512f avx512bw avx512_bf16 amx_tile amx_bf16");
  BOOST_TEST(named(all, "caches").value == "L1d 48.0 KiB of CPU 0, L2 2.00 MiB of CPU 0");
  BOOST_TEST(named(all, "NUMA").value == "2 nodes: CPU 0 with 1.00 GiB; CPU 1 with 1.00 GiB");
  BOOST_TEST(named(all, "CPU limit").value == "none");
  BOOST_TEST(named(check_cpu(root.path(), 1), "processor").value == "Intel(R) Xeon(R) 8480, 1 CPU of 2");
}

BOOST_AUTO_TEST_CASE(a_cpu_without_avx2_and_a_node_without_memory_are_warnings) {
  TemporaryDirectory root;
  root.write("proc/cpuinfo", "processor : 0\nflags : sse4_2 avx\n");
  root.write("sys/devices/system/node/node0/cpulist", "0");
  root.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 1048576 kB");
  root.write("sys/devices/system/node/node1/cpulist", "1");
  root.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 0 kB");
  const Findings all = check_cpu(root.path(), 1);
  have_hints(all);
  BOOST_TEST(state(named(all, "instruction sets")) == "warning");
  BOOST_TEST(state(named(all, "NUMA")) == "warning");
}

BOOST_AUTO_TEST_CASE(a_cpu_older_than_the_kernels_is_an_error) {
  TemporaryDirectory root;
  root.write("proc/cpuinfo", "processor : 0\nflags : fpu sse2 ssse3\n");
  const Finding f = named(check_cpu(root.path(), 1), "instruction sets");
  BOOST_TEST(state(f) == "error");
  BOOST_TEST(f.value == "none beyond x86-64");
  BOOST_TEST(f.hint.find("SSE4.2") != f.hint.npos);
}

BOOST_AUTO_TEST_CASE(limits_of_control_groups_of_both_versions_and_of_their_parents_count) {
  TemporaryDirectory two;  // version 2
  two.write("proc/self/cgroup", "0::/job/step\n");
  two.write("sys/fs/cgroup/job/step/cpu.max", "max 100000");
  two.write("sys/fs/cgroup/job/cpu.max", "150000 100000");
  two.write("sys/fs/cgroup/job/step/memory.max", "max");
  two.write("sys/fs/cgroup/job/memory.max", "2147483648");
  two.write("sys/fs/cgroup/job/memory.current", "2040109466");
  const Finding cpus = named(check_cpu(two.path(), 4), "CPU limit");
  BOOST_TEST(cpus.value == "1.5 CPUs, by a control group");
  BOOST_TEST(state(cpus) == "ok");  // the default number of threads respects it
  const Finding memory = named(check_memory(two.path()), "memory limit");
  BOOST_TEST(memory.value == "2.00 GiB, by a control group, of which 1.90 GiB are used");
  BOOST_TEST(state(memory) == "warning");

  TemporaryDirectory one;  // version 1
  one.write("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n0::/\n");
  one.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "8589934592");
  one.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824");
  one.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  one.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "200000");
  one.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
  BOOST_TEST(named(check_memory(one.path()), "memory limit").value ==
             "8.00 GiB, by a control group, of which 1.00 GiB are used");
  const Finding of_one = named(check_cpu(one.path(), 8), "CPU limit");
  BOOST_TEST(of_one.value == "2 CPUs, by a control group");
  BOOST_TEST(state(of_one) == "warning");
  BOOST_TEST(contains(of_one.hint, "train.threads=2"), of_one.hint);
  BOOST_TEST(state(named(check_cpu(one.path(), 2), "CPU limit")) == "ok");
  one.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
  BOOST_TEST(named(check_cpu(one.path(), 8), "CPU limit").value == "none");
}

BOOST_AUTO_TEST_CASE(scarce_memory_and_forbidden_overcommit_are_warnings) {
  TemporaryDirectory root;
  root.write("dev/shm/file", "");
  root.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 0 kB\n");
  root.write("proc/sys/vm/overcommit_memory", "0\n");
  BOOST_TEST(named(check_memory(root.path()), "memory").value == "8.00 GiB available of 16.0 GiB, swap none");
  BOOST_TEST(state(named(check_memory(root.path()), "memory")) == "ok");
  root.write("proc/sys/vm/overcommit_memory", "2\n");
  BOOST_TEST(contains(named(check_memory(root.path()), "memory").hint, "vm.overcommit_memory=0"));
  root.write("proc/sys/vm/overcommit_memory", "1\n");
  root.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 524288 kB\n");
  BOOST_TEST(state(named(check_memory(root.path()), "memory")) == "warning");
  TemporaryDirectory empty;
  BOOST_TEST(state(named(check_memory(empty.path()), "shared memory")) == "warning");
  have_hints(check_memory(empty.path()));
}

BOOST_AUTO_TEST_CASE(files_that_are_missing_or_damaged_are_no_problem) {
  TemporaryDirectory empty, damaged;
  for (const char* file :
       {"proc/cpuinfo", "proc/meminfo", "proc/self/cgroup", "sys/devices/system/node/node0/meminfo",
        "sys/devices/system/cpu/cpu0/cache/index0/size", "proc/sys/vm/overcommit_memory"})
    damaged.write(file, std::string("::::\0\xff\n:/\nflags\n99999999999999999999 kB", 38));
  for (const auto* root : {&empty, &damaged}) {
    have_hints(check_cpu(root->path(), 1));
    have_hints(check_memory(root->path()));
  }
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_an_error) {
  constexpr std::uint64_t kGiB = 1ull << 30;
  const auto judged = [](const char* use, std::uint64_t free, bool writable = true) {
    const Finding f = check_disk(use, "/data", DiskSpace{free, 100 * kGiB, writable});
    BOOST_TEST((f.state == State::kOk) == f.hint.empty());
    return state(f);
  };
  BOOST_TEST(judged("runs", 50 * kGiB) == "ok");
  BOOST_TEST(judged("runs", 5 * kGiB) == "warning");
  BOOST_TEST(judged("cache", 5 * kGiB) == "ok");
  BOOST_TEST(judged("runs", 1000) == "error");
  BOOST_TEST(judged("cache", 50 * kGiB, false) == "warning");
  BOOST_TEST(state(check_disk("runs", "/data", std::nullopt)) == "ok");
  TemporaryDirectory tmp;
  BOOST_TEST(disk_space(tmp.path() / "not/yet").value().total_bytes > 0u);
  BOOST_TEST(disk_space(tmp.path() / "not/yet").value().writable);
}

BOOST_AUTO_TEST_CASE(low_limits_are_warnings) {
  TemporaryDirectory root;
  ProcessLimits l;
  for (const Finding& f : check_limits(l, root.path()))
    BOOST_TEST(f.value + " " + state(f) == "unlimited ok", f.name);
  l = {256, 100, 65536, 65536, 1 << 30, 1 << 20, 60};
  const Findings all = check_limits(l, root.path());
  have_hints(all);
  for (const Finding& f : all) BOOST_TEST(state(f) == (f.name == "locked memory" ? "ok" : "warning"), f.name);
  BOOST_TEST(named(all, "stack").value == "64.0 KiB");
  root.write("sys/class/infiniband/mlx5_0", "");
  BOOST_TEST(state(named(check_limits(l, root.path()), "locked memory")) == "warning");
}

BOOST_AUTO_TEST_CASE(a_locale_that_cannot_print_utf8_is_a_warning) {
  BOOST_TEST(state(check_locale({"C.UTF-8", true, "UTF-8"})) == "ok");
  BOOST_TEST(state(check_locale({"", true, "ANSI_X3.4-1968"})) == "ok");
  const Finding missing = check_locale({"xx_YY", false, ""});
  BOOST_TEST(state(missing) == "warning");
  BOOST_TEST(missing.value == "xx_YY, which is not installed");
  BOOST_TEST(check_locale({"de_DE", true, "ISO-8859-1"}).value == "de_DE, with the characters of ISO-8859-1");
  ::setenv("LC_ALL", "xx_YY.UTF-8", 1);
  BOOST_TEST(!locale_of_environment().exists);
  ::setenv("LC_ALL", "C", 1);
  BOOST_TEST(locale_of_environment().charset == "ANSI_X3.4-1968");
  ::unsetenv("LC_ALL");
}

BOOST_AUTO_TEST_CASE(a_slow_kernel_of_openblas_is_a_warning) {
  const auto judged = [](const char* kernel, const char* flags) {
    return state(check_blas(Blas{"libopenblas.so.0", "OpenBLAS 0.3.21 DYNAMIC_ARCH", kernel}, flags));
  };
  BOOST_TEST(judged("SkylakeX", "avx2 avx512f") == "ok");
  BOOST_TEST(judged("Haswell", "avx2 avx512f") == "warning");
  BOOST_TEST(judged("Zen", "fpu avx2") == "ok");
  BOOST_TEST(judged("Nehalem", "fpu avx2 x") == "warning");
  BOOST_TEST(judged("Nehalem", "fpu") == "ok");
  BOOST_TEST(check_blas(Blas{"f", "OpenBLAS 0.3.21 DYNAMIC_ARCH", "Zen"}, "").value ==
             "OpenBLAS 0.3.21, kernel Zen");
  BOOST_TEST(state(check_blas(std::nullopt, "")) == "warning");
  BOOST_TEST(!loaded_blas());
}

BOOST_AUTO_TEST_CASE(versions_and_devices_come_from_the_libraries) {
  const std::string fake = FAKE_VENDOR_LIBRARY;
  TemporaryDirectory root;
  const CudaDriver driver = query_cuda_driver(fake);
  BOOST_TEST(driver.error == "");
  const Findings cuda = check_cuda(driver, root.path());
  BOOST_TEST(named(cuda, "CUDA driver").value == "CUDA 12.8");
  BOOST_TEST(named(cuda, "device 1").value == "NVIDIA H100\\x1b[31m, 80.0 GiB, compute capability 9.0");
  const LibraryVersion runtime = cuda_runtime_version({"libnone.so.1", fake});
  BOOST_TEST(runtime.version == "13.0");
  BOOST_TEST(state(check_cuda_runtime(runtime, driver)) == "warning");
  BOOST_TEST(state(check_cuda_runtime({"", ""}, driver)) == "ok");
  BOOST_TEST(nccl_version({fake}).version == "2.23.4");
  BOOST_TEST(state(check_nccl({}, 2)) == "warning");
  BOOST_TEST(state(check_nccl({}, 1)) == "ok");
  BOOST_TEST(mpi_version({fake}).version == "Open MPI v4.1.4");
  root.write("bin/mpirun", "");
  std::filesystem::permissions(root.path() / "bin/mpirun", std::filesystem::perms::owner_all);
  const std::string path = "/nowhere:" + (root.path() / "bin").string();
  BOOST_TEST(state(check_mpi(mpi_version({fake}), path)) == "ok");
  BOOST_TEST(state(check_mpi(mpi_version({fake}), "")) == "warning");
  BOOST_TEST(state(check_mpi({}, path)) == "warning");
  BOOST_TEST(check_mpi({}, "").value == "not installed");
}

BOOST_AUTO_TEST_CASE(a_device_that_the_driver_cannot_use_is_an_error) {
  TemporaryDirectory none, with_device;
  with_device.write("proc/driver/nvidia/gpus/0000:19:00.0/information", "");
  const CudaDriver missing = query_cuda_driver("libno-such-driver.so.1");
  BOOST_TEST(missing.version == 0);
  BOOST_TEST(check_cuda(missing, none.path()).front().value == "none");
  BOOST_TEST(state(check_cuda(missing, none.path()).front()) == "ok");
  BOOST_TEST(state(check_cuda(missing, with_device.path()).front()) == "error");
  have_hints(check_cuda(missing, with_device.path()));
  ::setenv("FAKE_CUDA_ERROR", "100", 1);
  const CudaDriver failing = query_cuda_driver(FAKE_VENDOR_LIBRARY);
  ::unsetenv("FAKE_CUDA_ERROR");
  BOOST_TEST(failing.error == "cuInit returned CUDA_ERROR_NO_DEVICE");
  BOOST_TEST(state(check_cuda(failing, with_device.path()).front()) == "error");
  BOOST_TEST(state(check_cuda({11080, "", {{"old", 7, 0, 1}}}, none.path()).front()) == "error");
}

BOOST_AUTO_TEST_SUITE_END()
