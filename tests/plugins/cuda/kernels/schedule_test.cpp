// Shows that the schedules of the emulation detect missing barriers: sums over a block without one of their
// barriers give different results under some schedules, and the sum that kernels use gives the same result
// under all.
#include <set>

#include "plugins/cuda/kernels/packs.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr std::uint32_t kThreads = 128;

// Like sum_of_block(), but without its barrier.
__device__ float sum_without_barrier(float v, float* shared) {
  const std::uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
  v = cuda::warp_sum(v);
  if (lane == 0) shared[threadIdx.x / 32] = v;
  return cuda::warp_sum(lane < warps ? shared[lane] : 0.0f);
}
__global__ void one_sum(bool barrier, const float* x, float* sums) {
  __shared__ float shared[32];
  sums[threadIdx.x] =
      barrier ? cuda::sum_of_block(x[threadIdx.x], shared) : sum_without_barrier(x[threadIdx.x], shared);
}
// Consecutive sums, as in the gradient of a norm: with a single array, a fast warp overwrites values that
// others still read.
__global__ void consecutive_sums(bool two_arrays, const float* x, float* sums) {
  __shared__ float shared[2][32];
  for (std::uint32_t i = 0; i < 8; ++i)
    sums[i * kThreads + threadIdx.x] =
        cuda::sum_of_block(x[threadIdx.x] * static_cast<float>(i + 1), shared[two_arrays ? i % 2 : 0]);
}

std::size_t different_results(void (*kernel)(bool, const float*, float*), bool correct) {
  std::set<std::vector<unsigned char>> results;
  for (const emu::Schedule& schedule : emu::every_schedule()) {
    emu::set_schedule(schedule);
    const Vec values = random_vec(kThreads, 1);
    std::vector<float> x(values.begin(), values.end()), sums(8 * kThreads);
    cudaStream_t stream = nullptr;
    BOOST_REQUIRE_EQUAL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    BOOST_REQUIRE_EQUAL(
        cuda::launch(kernel, dim3(1), dim3(kThreads), 0, stream, correct, x.data(), sums.data()),
        cudaSuccess);
    BOOST_REQUIRE_EQUAL(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
    const auto* bytes = reinterpret_cast<const unsigned char*>(sums.data());
    results.insert({bytes, bytes + sums.size() * sizeof(float)});
  }
  emu::set_schedule({});
  return results.size();
}

BOOST_AUTO_TEST_SUITE(cuda_schedules)

BOOST_AUTO_TEST_CASE(a_missing_barrier_in_a_sum_is_detected) {
  BOOST_TEST(different_results(one_sum, true) == 1u);
  BOOST_TEST(different_results(one_sum, false) > 1u);
  BOOST_TEST(different_results(consecutive_sums, true) == 1u);
  BOOST_TEST(different_results(consecutive_sums, false) > 1u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
