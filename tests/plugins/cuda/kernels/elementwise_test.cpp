// Rotary positions, SwiGLU with its gradient, and column sums compared with references in double: with
// 16-byte packs and single elements, with several rows per block and several blocks per row.
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

struct RopeShape {
  std::size_t rows, heads, d, ld, period, first_pos = 0, shift = 0;
  double sign = 1;
};

template <class T>
void check_rope(const RopeShape& t) {
  Vec x = random_of<T>(t.rows * t.ld, 1), table(t.period * t.d), y = x;
  const std::size_t half = t.d / 2;
  for (std::size_t p = 0; p < t.period; ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
      table[p * t.d + i] = static_cast<float>(std::cos(angle)),
                      table[p * t.d + half + i] = static_cast<float>(std::sin(angle));
    }
  for (std::size_t r = 0; r < t.rows; ++r)
    for (std::size_t h = 0; h < t.heads; ++h)
      for (std::size_t i = 0; i < half; ++i) {
        const double* at = &table[(t.first_pos + r) % t.period * t.d + i];
        double &a = y[r * t.ld + h * t.d + i], &b = y[r * t.ld + h * t.d + i + half];
        const double u = a * at[0] - t.sign * b * at[half], v = b * at[0] + t.sign * a * at[half];
        a = u, b = v;
      }
  const auto u = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  BOOST_TEST_CONTEXT("rows " << t.rows << ", heads " << t.heads << ", d " << t.d << ", ld " << t.ld
                             << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* in_place = run.in<T>(x, t.shift);
      run.expect(in_place, "x", y, close<T>());
      run.require_success(cuda::rope<T>(run.stream, t.rows, u(t.heads), u(t.d), u(t.ld), in_place,
                                        run.in<float>(table), t.first_pos, t.period,
                                        static_cast<float>(t.sign)));
    });
  }
}

template <class T>
void check_swiglu(std::size_t rows, std::size_t n, std::size_t shift = 0) {
  const Vec gu = random_of<T>(rows * 2 * n, 1, 30.0),
            da = random_of<T>(rows * n, 2);  // both tails of the sigmoid
  const Vec a = ref::swiglu(gu, n), d = ref::swiglu_bwd(da, gu, n);
  // Values reach 900, so the absolute tolerance is larger.
  const Tolerance t{close<T>().relative, 1e-4};
  BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", shift " << shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* to = run.out<T>(rows * n, shift);
      run.expect(to, "a", a, t);
      run.require_success(
          cuda::swiglu<T>(run.stream, rows, static_cast<std::uint32_t>(n), run.in<T>(gu, shift), to));
    });
    under_every_schedule([&](KernelRun& run) {
      T* in_place = run.in<T>(gu, shift);
      run.expect(in_place, "gu", d, t);
      run.require_success(cuda::swiglu_bwd<T>(run.stream, rows, static_cast<std::uint32_t>(n),
                                              run.in<T>(da, shift), in_place));
    });
  }
}

template <class T>
void check_column_sums(std::size_t rows, std::size_t n, std::size_t slots, std::size_t shift = 0) {
  const Vec x = random_of<T>(rows * n, 1);
  Vec sums(slots * n);
  for (std::size_t s = 0; s < slots; ++s)
    for (std::size_t r = rows * s / slots; r < rows * (s + 1) / slots; ++r)
      for (std::size_t j = 0; j < n; ++j) sums[s * n + j] += x[r * n + j];
  BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", slots " << slots << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      float* p = run.out<float>(slots * n);
      run.expect(p, "partials", sums, close<float>());
      run.require_success(cuda::column_sums<T>(run.stream, rows, static_cast<std::uint32_t>(n),
                                               run.in<T>(x, shift), static_cast<std::uint32_t>(slots), p));
    });
  }
}

template <class T>
void check_all_rope_shapes() {
  for (std::size_t d : {2, 6, 8, 10, 16, 64, 128, 256})
    for (std::size_t heads : {1, 3, 6, 40}) {
      if (d * heads > 4096) continue;
      check_rope<T>({5, heads, d, (heads + 1) * d, 3});
      check_rope<T>({1, heads, d, heads * d, 9, 7, 0, -1});
    }
  check_rope<T>({70, 2, 16, 48, 7, 3});  // several rows in a block, and several blocks
  check_rope<T>({3, 2, 16, 49, 7});      // d allows packs, but rows are not aligned
  check_rope<T>({3, 2, 16, 48, 7, 2, 1});
  check_rope<T>({2, 1, 2056, 2056, 3});               // more packs than threads
  check_rope<T>({2, 70, 256, 70 * 256, 3});           // more heads than a block rotates at once
  check_rope<T>({3, 2, 8, 16, 5, 4'294'967'294ull});  // positions beyond 32 bits
}

BOOST_AUTO_TEST_SUITE(cuda_elementwise)

BOOST_AUTO_TEST_CASE(rope_rotates_heads_in_place) {
  check_all_rope_shapes<float>();
  check_all_rope_shapes<Bf16>();
}

BOOST_AUTO_TEST_CASE(swiglu_and_its_gradient) {
  for (std::size_t rows : {1, 7, 131})
    for (std::size_t n : {1, 3, 17, 33, 64, 100, 257, 1000}) {
      if (rows == 131 && n > 100) continue;
      check_swiglu<float>(rows, n), check_swiglu<Bf16>(rows, n);
    }
  check_swiglu<float>(3, 64, 1), check_swiglu<Bf16>(3, 64, 1);
  check_swiglu<float>(2, 2052), check_swiglu<Bf16>(2, 4104);  // several blocks per row
  check_swiglu<float>(2, 1031), check_swiglu<Bf16>(2, 1031);
}

BOOST_AUTO_TEST_CASE(columns_are_summed_slot_by_slot) {
  for (std::size_t rows : {1, 7, 33, 257})
    for (std::size_t n : {1, 3, 17, 64, 100, 257, 264}) {
      check_column_sums<float>(rows, n, 3), check_column_sums<Bf16>(rows, n, 3);
      check_column_sums<float>(rows, n, 1), check_column_sums<Bf16>(rows, n, 1);
    }
  check_column_sums<float>(5, 64, 9, 1), check_column_sums<Bf16>(5, 64, 9, 1);
  check_column_sums<float>(0, 20, 2), check_column_sums<Bf16>(0, 24, 2);  // partial sums become zeros
}

BOOST_AUTO_TEST_CASE(zero_rows_queue_no_kernel) {
  BOOST_TEST(cuda::rope<float>(nullptr, 0, 2, 8, 16, nullptr, nullptr, 0, 4, 1) == cudaSuccess);
  BOOST_TEST(cuda::swiglu<float>(nullptr, 0, 8, nullptr, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::swiglu_bwd<Bf16>(nullptr, 0, 8, nullptr, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
