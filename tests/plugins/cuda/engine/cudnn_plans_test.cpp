// An installed cuDNN accepts the graphs of attention on every supported architecture, chooses a deterministic
// engine of its fused attention, and needs the planned workspace. No device is needed: plans are made for
// described devices, and a libcuda.so.1 of the tests replaces the driver. Skipped if cuDNN is not installed;
// to require it, set TRAINHOST_TEST_CUDNN to its libcudnn.so.9.
#include <dlfcn.h>
#include <stdlib.h>

#include <boost/test/unit_test.hpp>

#include <cstdio>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/common/attention_choice.hpp"
#include "plugins/cuda/engine/cudnn_attention.hpp"

namespace trainhost::cuda {
namespace {

struct Device {
  int compute_capability;
  int multiprocessors, shared_bytes, threads, blocks;  // shared memory per block; per multiprocessor
  long l2_bytes;
  const char* name;
};
constexpr Device kDevices[] = {
    {80, 108, 166912, 2048, 32, 41943040, "NVIDIA A100-SXM4-80GB"},
    {86, 84, 101376, 1536, 16, 6291456, "NVIDIA GeForce RTX 3090"},
    {89, 128, 101376, 1536, 24, 75497472, "NVIDIA GeForce RTX 4090"},
    {90, 132, 232448, 2048, 32, 52428800, "NVIDIA H100 80GB HBM3"},
    {100, 148, 232448, 2048, 32, 132644864, "NVIDIA B200"},
    {120, 170, 101376, 1536, 24, 100663296, "NVIDIA GeForce RTX 5090"},
};

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 40;

std::string json_of(const Device& d) {
  char text[1024];
  std::snprintf(
      text, sizeof text,
      R"({"cudaDeviceId":0,"deviceVer":%d,"driverVer":13000,"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":%d,)"
      R"("smClockRateKHz":1980000,"memClockRateKHz":2619000,"l2CacheSize":%ld,"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":%d,)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":%d,)"
      R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":%d,"pciDeviceId":0,"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"totalGlobalMem":25000000000,"deviceName":"%s"})",
      d.compute_capability * 10, d.multiprocessors, d.l2_bytes, d.shared_bytes, d.blocks, d.threads, d.name);
  return text;
}

/// True if cuDNN can be loaded; makes the engine use it.
boost::test_tools::assertion_result installed(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(true);
  const char* required = secure_getenv("TRAINHOST_TEST_CUDNN");
  for (const char* file : {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"}) {
    if (required) file = required;
    if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
      const auto version = reinterpret_cast<std::size_t (*)()>(dlsym(library, "cudnnGetVersion"));
      if (version && version() >= cudnn::kLeastVersion) return setenv("TRAINHOST_CUDNN", file, 1), result;
    }
    if (required) return result;  // the test fails with the reason
  }
  result = false;
  result.message() << "cuDNN 9.19 or newer is not installed";
  return result;
}

BOOST_AUTO_TEST_SUITE(cuda_cudnn_plans)

BOOST_AUTO_TEST_CASE(cudnn_makes_the_plans_with_the_planned_workspace,
                     *boost::unit_test::precondition(installed)) {
  BOOST_TEST_MESSAGE(CudnnAttention::version());
  // Found by its soname when cuDNN asks for the driver.
  BOOST_TEST_REQUIRE(dlopen(FAKE_LIBCUDA, RTLD_NOW | RTLD_GLOBAL), dlerror());
  // sequences, seq, heads, kv_heads, d, window
  const AttentionShape shapes[] = {{1, 4096, 32, 8, 128, 0}, {2, 300, 6, 6, 80, 100}};
  for (const Device& d : kDevices)
    for (const AttentionShape& s : shapes) {
      // 8.6, 8.9 and 12.0 use the engine of 8.0.
      if (s.window && d.compute_capability != 80 && d.compute_capability != 90 && d.compute_capability != 100)
        continue;
      BOOST_TEST_CONTEXT(d.name << ", seq " << s.seq << ", heads " << s.heads << "/" << s.kv_heads) {
        ModelSpec m;
        m.heads = s.heads, m.kv_heads = s.kv_heads, m.head_dim = s.d;
        RunSpec r;
        r.seq_len = s.seq, r.micro_batch = s.sequences;
        const std::uint64_t planned = cudnn_workspace_bytes(m, r, s.sequences);
        const cudnn::Object properties = cudnn::device_properties(json_of(d));
        const cudnn::Target target{nullptr, &properties};
        const cudnn::Plan forward = cudnn::forward_plan(s, target, kUnlimited),
                          backward = cudnn::backward_plan(s, target, d.compute_capability, kUnlimited);
        // The first proposal must fit, or the run would silently use a slower engine.
        BOOST_TEST(backward.workspace_bytes() <= planned);
        BOOST_TEST(forward.workspace_bytes() <= 256u);
        BOOST_TEST(forward.description().find("sdpa") != std::string::npos);
        BOOST_TEST(backward.description().find("sdpa") != std::string::npos);
        // What each architecture needs, exactly for the version with which the formula was checked.
        if (cudnn::library().cudnnGetVersion() / 100 != 919) continue;
        const auto up = [](std::uint64_t n, std::uint64_t step) { return (n + step - 1) / step * step; };
        const std::uint64_t heads = std::uint64_t{s.sequences} * s.heads,
                            groups = s.heads == s.kv_heads ? 0 : 2 * heads * s.seq * s.d;
        const std::uint64_t needed = d.compute_capability == 90 ? planned
                                     : d.compute_capability == 100
                                         ? groups * 4 + (groups ? 128 : 0)
                                         : heads * up(s.seq, 64) * up(s.seq, 64) * 2 + groups * 2 + 128;
        BOOST_TEST(backward.workspace_bytes() == needed);
        // A limit below what every engine needs is refused before anything runs.
        if (d.compute_capability == 90 && s.seq == 300)
          BOOST_CHECK_THROW(cudnn::backward_plan(s, target, 90, heads * 320 * 320 * 2), abi::StatusError);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda
