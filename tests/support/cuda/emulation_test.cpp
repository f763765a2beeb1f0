// Emulation of kernels: for each rule of CUDA that the trainer's kernels rely on, a kernel that keeps it
// gives one result, and a kernel that breaks it is detected.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "emu.hpp"
#include "plugins/cuda/kernels/device_functions.hpp"
#include "plugins/cuda/kernels/launch.hpp"
#include "plugins/cuda/kernels/mma.hpp"
#include "tests/support/files.hpp"

using namespace trainhost::cuda;
using trainhost::test::has;
using Bf16 = __nv_bfloat16;

namespace {

/// An array in device memory. The test can access it, because the emulation uses ordinary memory.
template <class T>
struct Array {
  T* at = nullptr;
  explicit Array(std::size_t n) { BOOST_REQUIRE_EQUAL(cudaMalloc(&at, n * sizeof(T)), cudaSuccess); }
  ~Array() { cudaFree(at); }
  Array(const Array&) = delete;
  T& operator[](std::size_t i) { return at[i]; }
};
struct Fresh {
  Fresh() { emu::reset(); }
};

template <class... E, class... A>
void run(void (*kernel)(E...), dim3 grid, dim3 block, std::size_t shared, A... args) {
  BOOST_REQUIRE_EQUAL(launch(kernel, grid, block, shared, nullptr, args...), cudaSuccess);
  BOOST_REQUIRE_EQUAL(cudaDeviceSynchronize(), cudaSuccess);
}

template <bool kBarrier>
__global__ void reverse(int* x) {
  __shared__ int copy[96];
  copy[threadIdx.x] = x[threadIdx.x];
  if (kBarrier) __syncthreads();
  x[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

template <bool kSecondBarrier>
__global__ void two_rounds(int* out) {
  __shared__ int slot[64];
  for (int round = 0; round < 2; ++round) {
    slot[threadIdx.x] = static_cast<int>(threadIdx.x) + 100 * round;
    __syncthreads();
    out[round * 64 + threadIdx.x] = slot[(threadIdx.x + 32) % 64];
    if (kSecondBarrier) __syncthreads();
  }
}

template <bool kSyncWarp>
__global__ void neighbours(int* out) {
  int* slot = dynamic_shared<int>();
  slot[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kSyncWarp) __syncwarp();
  out[threadIdx.x] = slot[threadIdx.x ^ 1];
}

__global__ void half_a_barrier() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void lonely_shuffle(int* out) {
  if (threadIdx.x != 5) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}
__global__ void wrong_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void beyond() { dynamic_shared<char>()[100] = 1; }

__global__ void shuffles(int* out) {
  const int me = static_cast<int>(threadIdx.x);
  const unsigned lower = 0x0000ffffu;
  int* row = out + 8 * me;
  row[0] = __shfl_xor_sync(kFullWarp, me, 3);
  row[1] = __shfl_down_sync(kFullWarp, me, 4);
  row[2] = __shfl_up_sync(kFullWarp, me, 4, 8);
  row[3] = __shfl_sync(kFullWarp, me, 5, 8);
  row[4] = static_cast<int>(__ballot_sync(kFullWarp, me % 3 == 0));
  row[5] = __any_sync(kFullWarp, me == 31) + 2 * __all_sync(kFullWarp, me < 31);
  row[6] = me < 16 ? __shfl_sync(lower, me, 15) : __shfl_sync(~lower, me, 16);
  row[7] = static_cast<int>(__shfl_sync(kFullWarp, 0.5 * me, 2) * 2);
}

__global__ void fresh_shared(float* out) {
  __shared__ float fixed[8];
  float* asked = dynamic_shared<float>();
  if (threadIdx.x == 0) out[blockIdx.x] = fixed[3] + asked[3];
  __syncthreads();
  fixed[threadIdx.x % 8] = 1, asked[threadIdx.x % 8] = 1;
}

__global__ void reductions(float* out) {
  const float x = static_cast<float>(threadIdx.x);
  const float sum = block_sum(x), most = block_max(-x);
  const double fine = block_sum(static_cast<double>(x) * 1e-9);
  out[3 * threadIdx.x] = sum, out[3 * threadIdx.x + 1] = most,
          out[3 * threadIdx.x + 2] = static_cast<float>(fine * 1e9);
}

template <bool kWait>
__global__ void copies(const float* from, float* to) {
  float* s = dynamic_shared<float>();
  const unsigned i = 4 * threadIdx.x;
  cp_async_16(s + i, from + i, threadIdx.x != 3);
  cp_async_commit();
  cp_async_16(s + 128 + i, from + 128 + i);
  cp_async_commit();
  cp_async_wait<kWait ? 0 : 1>();
  for (unsigned j = 0; j < 4; ++j) to[i + j] = s[i + j] + s[128 + i + j];
  cp_async_wait<0>();
}

__global__ void indices(uint3* out) {
  const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[b * 24 + t] = threadIdx;
}

// d[16, 8] = a[16, 16] * b[16, 8], a and b in shared memory by rows.
__global__ void product_bf16(const Bf16* a, const Bf16* b, float* out) {
  auto* s = dynamic_shared<Bf16>();
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) s[i] = a[i];
  for (unsigned i = lane; i < 256; i += 32)
    s[256 + i] = i % 16 < 8 ? b[i / 16 * 8 + i % 16] : b[0];  // rows of 16
  __syncwarp();
  std::uint32_t fa[4], fb[4];
  ldmatrix_x4(fa, s + lane % 16 * 16 + lane / 16 * 8);
  ldmatrix_x4_trans(fb, s + 256 + lane % 16 * 16 + lane / 16 * 8);
  float d[4] = {};
  const std::uint32_t left_half[2] = {fb[0], fb[1]};
  mma_m16n8k16_bf16(d, fa, left_half);
  for (unsigned i = 0; i < 4; ++i) out[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = d[i];
}

__global__ void product_tf32(const float* a, const float* b, float* out) {
  const unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
  const std::uint32_t fa[4] = {to_tf32(a[g * 8 + t]), to_tf32(a[(g + 8) * 8 + t]), to_tf32(a[g * 8 + t + 4]),
                               to_tf32(a[(g + 8) * 8 + t + 4])};
  const std::uint32_t fb[2] = {to_tf32(b[t * 8 + g]), to_tf32(b[(t + 4) * 8 + g])};
  float d[4] = {1, 1, 1, 1};
  mma_m16n8k8_tf32(d, fa, fb);
  for (unsigned i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}

/// The different results of `compute` under all schedules; one element: the result does not depend on the
/// order.
template <class F>
std::set<std::vector<int>> results(F&& compute) {
  std::set<std::vector<int>> all;
  for (const emu::Schedule& s : emu::every_schedule()) {
    emu::set_schedule(s);
    all.insert(compute());
  }
  return all;
}

std::string message_of(void (*kernel)(), unsigned threads, std::size_t shared = 0) {
  BOOST_REQUIRE_EQUAL(launch(kernel, 1, threads, shared, nullptr), cudaSuccess);
  try {
    cudaDeviceSynchronize();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_emulation, Fresh)

BOOST_AUTO_TEST_CASE(a_missing_barrier_changes_the_result) {
  auto go = [](auto kernel) {
    return results([kernel] {
      Array<int> x(96);
      for (int i = 0; i < 96; ++i) x[i] = i;
      run(kernel, 1, 96, 0, x.at);
      return std::vector<int>(x.at, x.at + 96);
    });
  };
  BOOST_TEST(go(reverse<true>).size() == 1u);
  BOOST_TEST(go(reverse<false>).size() > 1u);
}

BOOST_AUTO_TEST_CASE(a_missing_barrier_before_the_next_write_changes_the_result) {
  auto go = [](auto kernel) {
    return results([kernel] {
      Array<int> x(128);
      run(kernel, 1, 64, 0, x.at);
      return std::vector<int>(x.at, x.at + 128);
    });
  };
  BOOST_TEST(go(two_rounds<true>).size() == 1u);
  BOOST_TEST(go(two_rounds<false>).size() > 1u);
}

BOOST_AUTO_TEST_CASE(a_missing_syncwarp_changes_the_result) {
  auto go = [](auto kernel) {
    return results([kernel] {
      Array<int> x(32);
      run(kernel, 1, 32, 128, x.at);
      return std::vector<int>(x.at, x.at + 32);
    });
  };
  BOOST_TEST(go(neighbours<true>).size() == 1u);
  BOOST_TEST(go(neighbours<false>).size() > 1u);
}

BOOST_AUTO_TEST_CASE(a_barrier_that_some_threads_never_reach_is_reported_with_the_threads) {
  const std::string text = message_of(half_a_barrier, 64);
  BOOST_TEST(has(text, "kernel half_a_barrier, block (0,0,0)"), text);
  BOOST_TEST(has(text, "40 at __syncthreads (first: thread (0,0,0))"), text);
  BOOST_TEST(has(text, "24 returned (first: thread (40,0,0))"), text);
  BOOST_TEST(emu::problems().size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_lane_missing_from_a_shuffle_is_an_error) {
  Array<int> x(32);
  for (auto kernel : {lonely_shuffle, wrong_mask}) {
    BOOST_REQUIRE_EQUAL(launch(kernel, 1, 32, 0, nullptr, x.at), cudaSuccess);
    BOOST_CHECK_THROW(cudaDeviceSynchronize(), std::runtime_error);
  }
  run(neighbours<true>, 1, 32, 128, x.at);  // the next kernel runs normally
  BOOST_TEST(x[4] == 5);
}

BOOST_AUTO_TEST_CASE(writing_beyond_dynamic_shared_memory_is_an_error) {
  BOOST_TEST(has(message_of(beyond, 1, 100), "beyond its 100 bytes"));
  BOOST_TEST(message_of(beyond, 1, 101) == "");
}

BOOST_AUTO_TEST_CASE(shuffles_and_votes_follow_the_manual) {
  Array<int> x(256);
  run(shuffles, 1, 32, 0, x.at);
  for (int me = 0; me < 32; ++me) {
    const int* row = x.at + 8 * me;
    BOOST_TEST(row[0] == (me ^ 3));
    BOOST_TEST(row[1] == (me + 4 < 32 ? me + 4 : me));
    BOOST_TEST(row[2] == (me % 8 < 4 ? me : me - 4));
    BOOST_TEST(row[3] == me / 8 * 8 + 5);
    BOOST_TEST(row[4] == 0x49249249);
    BOOST_TEST(row[5] == 1);
    BOOST_TEST(row[6] == (me < 16 ? 15 : 16));
    BOOST_TEST(row[7] == 2);
  }
}

BOOST_AUTO_TEST_CASE(shared_memory_is_nan_at_the_start_of_every_block) {
  Array<float> x(3);
  run(fresh_shared, 3, 32, 32, x.at);
  for (int i = 0; i < 3; ++i) BOOST_TEST(std::isnan(x[i]));
}

BOOST_AUTO_TEST_CASE(sums_and_maxima_over_a_block_reach_every_thread_under_every_schedule) {
  for (const emu::Schedule& s : emu::every_schedule()) {
    emu::set_schedule(s);
    Array<float> x(3 * 96);
    run(reductions, 1, 96, 0, x.at);
    for (int i = 0; i < 96; ++i) {
      BOOST_TEST(x[3 * i] == 4560.0f);
      BOOST_TEST(x[3 * i + 1] == 0.0f);
      BOOST_TEST(x[3 * i + 2] == 4560.0f, boost::test_tools::tolerance(1e-6f));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_asynchronous_copy_without_a_wait_reads_nan) {
  Array<float> from(256), to(128);
  for (int i = 0; i < 256; ++i) from[i] = static_cast<float>(i);
  run(copies<true>, 1, 32, 1024, from.at, to.at);
  BOOST_TEST(to[5] == 138.0f);
  BOOST_TEST(to[12] == 140.0f);  // thread 3 copied zeros
  run(copies<false>, 1, 32, 1024, from.at, to.at);
  BOOST_TEST(std::isnan(to[5]));
}

BOOST_AUTO_TEST_CASE(thread_indices_have_three_dimensions) {
  Array<uint3> x(8 * 24);
  run(indices, dim3(2, 2, 2), dim3(4, 3, 2), 0, x.at);
  for (unsigned i = 0; i < 8 * 24; ++i) {
    BOOST_TEST(x[i].x == i % 4);
    BOOST_TEST(x[i].y == i / 4 % 3);
    BOOST_TEST(x[i].z == i % 24 / 12);
  }
}

BOOST_AUTO_TEST_CASE(fragments_of_bf16_products_have_the_layout_of_the_manual) {
  Array<Bf16> a(256), b(128);
  Array<float> d(128);
  for (int i = 0; i < 256; ++i) a[i] = __float2bfloat16_rn(static_cast<float>(i % 13 - 6));
  for (int i = 0; i < 128; ++i) b[i] = __float2bfloat16_rn(static_cast<float>(i % 7 - 3));
  run(product_bf16, 1, 32, 1024, a.at, b.at, d.at);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      float want = 0;
      for (int k = 0; k < 16; ++k) want += __bfloat162float(a[r * 16 + k]) * __bfloat162float(b[k * 8 + c]);
      BOOST_TEST(d[r * 8 + c] == want);
    }
}

BOOST_AUTO_TEST_CASE(tf32_products_lose_the_lower_bits_and_no_others) {
  Array<float> a(128), b(64), d(128);
  for (int i = 0; i < 128; ++i)
    a[i] = static_cast<float>(i % 13 - 6) + (i == 0 ? std::ldexp(1.0f, -12) : 0.0f);
  for (int i = 0; i < 64; ++i) b[i] = static_cast<float>(i % 7 - 3);
  run(product_tf32, 1, 32, 0, a.at, b.at, d.at);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 8; ++c) {
      float want = 1;
      for (int k = 0; k < 8; ++k) want += static_cast<float>((r * 8 + k) % 13 - 6) * b[k * 8 + c];
      BOOST_TEST(d[r * 8 + c] == want);
    }
  BOOST_TEST(emu::round_to_tf32(__uint_as_float(0x3f801000)) == 0x3f802000u);  // a tie goes away from zero
}

BOOST_AUTO_TEST_CASE(bf16_rounds_to_nearest_even_and_packs_the_lower_element_low) {
  BOOST_TEST(__float2bfloat16_rn(__uint_as_float(0x3f808000)).bits == 0x3f80);
  BOOST_TEST(__float2bfloat16_rn(__uint_as_float(0x3f818000)).bits == 0x3f82);
  BOOST_TEST(__float2bfloat16_rn(NAN).bits == 0x7fff);
  alignas(16) Bf16 x[8];
  Vec<Bf16> v;
  for (unsigned i = 0; i < 8; ++i) v.v[i] = static_cast<float>(i);
  v.store(x);
  for (unsigned i = 0; i < 8; ++i) BOOST_TEST(Vec<Bf16>::load(x).v[i] == __bfloat162float(x[i]));
  BOOST_TEST(__bfloat162float(x[1]) == 1.0f);
}

BOOST_AUTO_TEST_SUITE_END()
