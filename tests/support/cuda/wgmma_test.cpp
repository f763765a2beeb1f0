// Emulated products of warpgroups: the layouts of operands and sums, and that broken kernels are detected.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "emu.hpp"
#include "plugins/cuda/kernels/attention_wgmma.hpp"
#include "tests/support/files.hpp"

using namespace trainhost::cuda;
using namespace trainhost::cuda::attention_detail;
using trainhost::test::has;

namespace {

enum class Left { kShared, kRegisters };  // where the left operand is
enum class Broken { kNothing, kWait, kFence, kEarlyStore, kOutside, kUnaligned };

// d[64, 64] = a[64, 64] b, where b is the transposed second array (kTransposed) or the array itself.
template <Left kLeft, bool kTransposed, Broken kBroken>
__global__ void product(const Bf16* a, const Bf16* b, float* d) {
  using Tile = Panels<64, 64>;
  unsigned char* left = panels_in_shared();
  unsigned char* right = left + Tile::kBytes;
  const PanelCopy<64, 64, kWarpgroup> copy;
  copy.start(left, a, 64, 0, 64), copy.start(right, b, 64, 0, 64);
  cp_async_commit();
  wait_for_copies();
  PanelAddress rows = panel_address(left), other = panel_address(right);
  if (kBroken == Broken::kOutside) other = other + Tile::kBytes;
  if (kBroken == Broken::kUnaligned) other = other + 128;
  const Lane at;
  WgmmaSums x;
  if (kBroken != Broken::kFence) wgmma_fence();
  for (int step = 0; step < 4; ++step) {
    const PanelAddress b_at = other + (kTransposed ? Tile::along_row(step) : Tile::along_rows(step, 0));
    if (kLeft == Left::kShared) {
      wgmma_m64n64k16<!kTransposed>(x, rows + Tile::along_row(step), b_at, step != 0);
    } else {
      std::uint32_t words[4];
      ldmatrix_x4(words, left + Tile::offset(warp_index() * 16 + at.lane % 16, 2 * step + at.lane / 16));
      wgmma_m64n64k16<!kTransposed>(x, words, b_at, step != 0);
      wgmma_commit();
      wgmma_wait<0>(x);  // before the words change
      wgmma_fence();
    }
  }
  wgmma_commit();
  if (kBroken == Broken::kEarlyStore && threadIdx.x == 0) *reinterpret_cast<float*>(left) = 100;
  float early = x[0][0];  // of a product that has not been waited for
  wgmma_wait<0>(x);
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) d[group_row(0, i) * 64 + 8 * n + at.col(i)] = x[n][i];
  if (kBroken == Broken::kWait) d[group_row(0, 0) * 64 + at.col(0)] = early;
}

/// Runs the kernel; returns the number of wrong elements.
template <Left kLeft, bool kTransposed, Broken kBroken = Broken::kNothing>
int wrong() {
  emu::reset();
  Bf16 *a, *b;
  float* d;
  BOOST_REQUIRE(cudaMalloc(&a, 4096 * sizeof(Bf16)) == cudaSuccess);
  BOOST_REQUIRE(cudaMalloc(&b, 4096 * sizeof(Bf16)) == cudaSuccess);
  BOOST_REQUIRE(cudaMalloc(&d, 4096 * sizeof(float)) == cudaSuccess);
  for (int i = 0; i < 4096; ++i) {
    a[i] = __float2bfloat16_rn(static_cast<float>(i * 7 % 13 - 6));
    b[i] = __float2bfloat16_rn(static_cast<float>(i * 5 % 11 - 5));
  }
  BOOST_REQUIRE(launch(product<kLeft, kTransposed, kBroken>, 1, kWarpgroup, 2 * Panels<64, 64>::kBytes,
                       nullptr, a, b, d) == cudaSuccess);
  BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  int count = 0;
  for (int r = 0; r < 64; ++r)
    for (int c = 0; c < 64; ++c) {
      float want = 0;
      for (int k = 0; k < 64; ++k)
        want += __bfloat162float(a[r * 64 + k]) * __bfloat162float(b[kTransposed ? c * 64 + k : k * 64 + c]);
      count += !(d[r * 64 + c] == want);
    }
  cudaFree(a), cudaFree(b), cudaFree(d);
  return count;
}

template <Left kLeft, Broken kBroken>
void check_refused(const char* text) {
  BOOST_CHECK_EXCEPTION((wrong<kLeft, true, kBroken>()), std::runtime_error,
                        [&](const std::runtime_error& e) { return has(e.what(), text); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_wgmma)

BOOST_AUTO_TEST_CASE(operands_and_sums_have_the_layout_of_the_manual) {
  BOOST_TEST((wrong<Left::kShared, true>()) == 0);
  BOOST_TEST((wrong<Left::kShared, false>()) == 0);
  BOOST_TEST((wrong<Left::kRegisters, true>()) == 0);
  BOOST_TEST((wrong<Left::kRegisters, false>()) == 0);
}

BOOST_AUTO_TEST_CASE(sums_are_nan_and_operands_are_not_read_before_the_wait) {
  BOOST_TEST((wrong<Left::kShared, true, Broken::kWait>()) == 128);
  BOOST_TEST((wrong<Left::kShared, true, Broken::kEarlyStore>()) > 0);
}

BOOST_AUTO_TEST_CASE(what_hardware_does_not_define_is_an_error) {
  check_refused<Left::kShared, Broken::kFence>("without wgmma_fence()");
  check_refused<Left::kShared, Broken::kOutside>("beyond the block's dynamic shared memory");
  check_refused<Left::kShared, Broken::kUnaligned>("group of eight rows");
}

BOOST_AUTO_TEST_SUITE_END()
