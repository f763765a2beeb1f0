// Limits of kernel launches: what hardware refuses is refused, with the error of the CUDA runtime.
#include <boost/test/unit_test.hpp>

#include <stdexcept>
#include <string>

#include "emu.hpp"
#include "plugins/cuda/kernels/device_functions.hpp"
#include "plugins/cuda/kernels/launch.hpp"

using namespace trainhost::cuda;

namespace {

// 1 KiB of static shared memory.
__global__ void with_static_shared(int* out) {
  __shared__ int fixed[256];
  fixed[threadIdx.x] = 1;
  out[threadIdx.x] = fixed[threadIdx.x] + (dynamic_shared<int>() == nullptr);
}
__global__ void wide(int*) {}
__global__ void bounded(int*) {}

__global__ void sum_of_vector(const float* at, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(at);
  *out = v.x + v.y + v.z + v.w;
}

const emu::KernelResources kResources[] = {{"wide", 1024, 0, {64, 65, 64, 64, 64, 64}},
                                           {"bounded", 256, 2048, {32, 32, 32, 32, 32, 32}}};

struct Fresh {
  Fresh() {
    emu::reset();
    emu::set_kernel_resources(kResources);
  }
  ~Fresh() { emu::reset(); }
};

template <class K>
const void* address(K* kernel) {
  return reinterpret_cast<const void*>(kernel);
}
/// Launches without raising any limit.
cudaError_t launch_only(void (*kernel)(int*), dim3 grid, dim3 block, std::size_t shared) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared;
  return cudaLaunchKernelEx(&config, kernel, nullptr);
}
void use(int major, int minor) {
  emu::Machine m;
  m.major = major, m.minor = minor;
  emu::set_machine(m);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_launches, Fresh)

BOOST_AUTO_TEST_CASE(static_shared_memory_is_found_and_counts_towards_the_default_limit) {
  BOOST_TEST(emu::declared_shared_bytes(address(with_static_shared)) == 1024u);
  BOOST_TEST(launch_only(with_static_shared, 1, 1, 47 * 1024) == cudaSuccess);
  BOOST_TEST(launch_only(with_static_shared, 1, 1, 47 * 1024 + 1) == cudaErrorInvalidValue);
  cudaFuncAttributes a{};
  BOOST_TEST(cudaFuncGetAttributes(&a, address(with_static_shared)) == cudaSuccess);
  BOOST_TEST(a.sharedSizeBytes == 1024u);
  BOOST_TEST(a.maxDynamicSharedSizeBytes == 47 * 1024);
}

BOOST_AUTO_TEST_CASE(every_architecture_has_its_opt_in_limit_static_memory_included) {
  const struct {
    int major, minor, kib;
  } limits[] = {{8, 0, 163}, {8, 6, 99}, {8, 9, 99}, {9, 0, 227}, {10, 0, 227}, {12, 0, 99}};
  for (const auto& l : limits) {
    emu::reset();
    use(l.major, l.minor);
    int most = 0;
    BOOST_TEST(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
    BOOST_TEST(most == l.kib * 1024);
    const int dynamic = most - 1024;
    const auto set = [](int bytes) {
      return cudaFuncSetAttribute(address(with_static_shared), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  bytes);
    };
    BOOST_TEST(set(dynamic + 1) == cudaErrorInvalidValue);
    BOOST_TEST(set(dynamic) == cudaSuccess);
    BOOST_TEST(launch_only(with_static_shared, 1, 1, static_cast<std::size_t>(dynamic)) == cudaSuccess);
    BOOST_TEST(set(1000) == cudaSuccess);  // the limit can be lowered
    BOOST_TEST(launch_only(with_static_shared, 1, 1, 1001) == cudaErrorInvalidValue);
  }
}

BOOST_AUTO_TEST_CASE(registers_and_launch_bounds_limit_the_threads_of_a_block) {
  BOOST_TEST(launch_only(wide, 1, 1024, 0) == cudaSuccess);  // 9.0: 64 registers
  use(8, 6);                                                 // 65, allocated as 72
  BOOST_TEST(launch_only(wide, 1, 1024, 0) == cudaErrorLaunchOutOfResources);
  BOOST_TEST(launch_only(wide, 1, 896, 0) == cudaSuccess);
  BOOST_TEST(launch_only(bounded, 1, 256, 0) == cudaSuccess);
  BOOST_TEST(launch_only(bounded, 1, 257, 0) == cudaErrorLaunchOutOfResources);
  BOOST_TEST(launch_only(bounded, 1, 32, 46 * 1024 + 1) == cudaErrorInvalidValue);  // 2 KiB static
}

BOOST_AUTO_TEST_CASE(grids_and_blocks_have_the_limits_of_cuda) {
  for (const dim3 grid : {dim3(0), dim3(1u << 31), dim3(1, 65536), dim3(1, 1, 65536)})
    BOOST_TEST(launch_only(wide, grid, 1, 0) == cudaErrorInvalidConfiguration);
  for (const dim3 block : {dim3(0), dim3(1025), dim3(32, 33), dim3(1, 1, 65)})
    BOOST_TEST(launch_only(wide, 1, block, 0) == cudaErrorInvalidConfiguration);
}

// launch() raises the limit of a kernel once, to all that the device has, and never lowers it.
BOOST_AUTO_TEST_CASE(launch_raises_the_limit_once_and_never_lowers_it) {
  int out[256];
  const auto run = [&](std::size_t bytes) {
    return launch(with_static_shared, 1, 1, bytes, nullptr, static_cast<int*>(out));
  };
  const auto times_set = [] { return emu::calls()["cudaFuncSetAttribute"]; };
  BOOST_TEST(run(47 * 1024) == cudaSuccess);
  BOOST_TEST(times_set() == 0u);
  BOOST_TEST(run(47 * 1024 + 1) == cudaSuccess);
  BOOST_TEST(run(226 * 1024) == cudaSuccess);
  BOOST_TEST(run(60 * 1024) == cudaSuccess);
  BOOST_TEST(run(226 * 1024) == cudaSuccess);
  BOOST_TEST(times_set() == 1u);
  BOOST_TEST(run(226 * 1024 + 1) == cudaErrorInvalidValue);
  BOOST_TEST(cudaDeviceSynchronize() == cudaSuccess);
}

BOOST_AUTO_TEST_CASE(a_vector_access_must_be_aligned) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out = 0;
  const auto run = [&](const float* at) {
    BOOST_TEST(launch(sum_of_vector, 1, 1, 0, nullptr, at, &out) == cudaSuccess);
    return cudaDeviceSynchronize();
  };
  BOOST_TEST(run(from + 4) == cudaSuccess);
  BOOST_TEST(out == 26);
  BOOST_CHECK_EXCEPTION(run(from + 1), std::runtime_error, [](const std::runtime_error& e) {
    return std::string(e.what()).find("cudaErrorMisalignedAddress") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
