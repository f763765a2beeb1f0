// RMS norms over rows and over heads, and their gradients, compared with references in double: every code
// path by size of a row (one warp, one block, too long for registers; 16-byte packs and single elements),
// slots with many, one and no rows.
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr double kEps = 1e-5;

template <class T>
void check_rms_norm(std::size_t rows, std::size_t n, std::size_t shift = 0) {
  const Vec x = random_of<T>(rows * n, 1), w = random_of<T>(n, 2), y = ref::rms_norm(x, w, n, kEps);
  Vec rstd(rows);
  for (std::size_t r = 0; r < rows; ++r) rstd[r] = ref::rstd(&x[r * n], n, kEps);
  BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", shift " << shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* to = run.out<T>(rows * n, shift);
      float* s = run.out<float>(rows);
      run.expect(to, "y", y, close<T>()), run.expect(s, "rstd", rstd, close<float>());
      run.require_success(cuda::rms_norm<T>(run.stream, rows, static_cast<std::uint32_t>(n),
                                            run.in<T>(x, shift), run.in<T>(w, shift),
                                            static_cast<float>(kEps), to, s));
    });
  }
}

// Gradient of the weight by slot: the reference applied to the rows of each slot.
Vec slot_sums(const Vec& dy, const Vec& x, const Vec& w, std::size_t n, std::size_t slots) {
  const std::size_t rows = x.size() / n;
  Vec all;
  for (std::size_t s = 0; s < slots; ++s) {
    const auto begin = static_cast<std::ptrdiff_t>(rows * s / slots * n),
               end = static_cast<std::ptrdiff_t>(rows * (s + 1) / slots * n);
    Vec sum(n);
    ref::rms_norm_bwd({dy.begin() + begin, dy.begin() + end}, {x.begin() + begin, x.begin() + end}, w, n,
                      kEps, sum);
    all.insert(all.end(), sum.begin(), sum.end());
  }
  return all;
}

template <class T>
void check_rms_norm_bwd(std::size_t rows, std::size_t n, std::size_t slots, bool add, std::size_t shift = 0) {
  const Vec x = random_of<T>(rows * n, 1), w = random_of<T>(n, 2), dy = random_of<T>(rows * n, 3),
            before = random_of<T>(rows * n, 4);
  Vec unused(n), rstd(rows), dx = ref::rms_norm_bwd(dy, x, w, n, kEps, unused);
  for (std::size_t r = 0; r < rows; ++r) rstd[r] = static_cast<float>(ref::rstd(&x[r * n], n, kEps));
  for (std::size_t i = 0; add && i < dx.size(); ++i) dx[i] += before[i];
  const Vec partials = slot_sums(dy, x, w, n, slots);
  BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", slots " << slots << ", add " << add << ", shift "
                             << shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* to = add ? run.in<T>(before, shift) : run.out<T>(rows * n, shift);
      float* p = run.out<float>(slots * n);
      run.expect(to, "dx", dx, close<T>()), run.expect(p, "partials", partials, close<float>());
      run.require_success(cuda::rms_norm_bwd<T>(
          run.stream, rows, static_cast<std::uint32_t>(n), run.in<T>(dy, shift), run.in<T>(x, shift),
          run.in<float>(rstd), run.in<T>(w, shift), add, to, static_cast<std::uint32_t>(slots), p));
    });
  }
}

struct Shape {
  std::size_t rows, heads, kv_heads, d, slots, shift = 0;
};

template <class T>
void check_qk_norm(const Shape& s) {
  const std::size_t both = s.heads + s.kv_heads, width = (both + s.kv_heads) * s.d;
  const Vec qkv = random_of<T>(s.rows * width, 1), dqkv = random_of<T>(s.rows * width, 2),
            wq = random_of<T>(s.d, 3), wk = random_of<T>(s.d, 4);
  Vec y = qkv, dx = dqkv, pre(s.rows * both * s.d), rstd(s.rows * both), partials;
  for (std::size_t slot = 0; slot < s.slots; ++slot) {
    Vec sums[2] = {Vec(s.d), Vec(s.d)};
    for (std::size_t r = s.rows * slot / s.slots; r < s.rows * (slot + 1) / s.slots; ++r)
      for (std::size_t h = 0; h < both; ++h) {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(r * width + h * s.d),
                             d = static_cast<std::ptrdiff_t>(s.d);
        const Vec x(qkv.begin() + at, qkv.begin() + at + d), g(dqkv.begin() + at, dqkv.begin() + at + d);
        const Vec& w = h < s.heads ? wq : wk;
        const Vec one = ref::rms_norm(x, w, s.d, kEps),
                  back = ref::rms_norm_bwd(g, x, w, s.d, kEps, sums[h >= s.heads]);
        std::copy(one.begin(), one.end(), y.begin() + at),
            std::copy(back.begin(), back.end(), dx.begin() + at);
        std::copy(x.begin(), x.end(), pre.begin() + static_cast<std::ptrdiff_t>((r * both + h) * s.d));
        rstd[r * both + h] = static_cast<float>(ref::rstd(x.data(), s.d, kEps));
      }
    for (const Vec& sum : sums) partials.insert(partials.end(), sum.begin(), sum.end());
  }
  const auto u = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  BOOST_TEST_CONTEXT("rows " << s.rows << ", heads " << s.heads << "+" << s.kv_heads << ", d " << s.d
                             << ", shift " << s.shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T *q = run.in<T>(qkv, s.shift), *p = run.out<T>(pre.size(), s.shift);
      float* k = run.out<float>(rstd.size());
      run.expect(q, "qkv", y, close<T>()), run.expect(p, "pre", pre, kExact),
          run.expect(k, "rstd", rstd, close<float>());
      run.require_success(cuda::qk_norm<T>(run.stream, s.rows, u(s.heads), u(s.kv_heads), u(s.d), q,
                                           run.in<T>(wq), run.in<T>(wk), static_cast<float>(kEps), p, k));
    });
    under_every_schedule([&](KernelRun& run) {
      T* q = run.in<T>(dqkv, s.shift);
      float* sums = run.out<float>(partials.size());
      run.expect(q, "dqkv", dx, close<T>()), run.expect(sums, "partials", partials, close<float>());
      run.require_success(cuda::qk_norm_bwd<T>(run.stream, s.rows, u(s.heads), u(s.kv_heads), u(s.d), q,
                                               run.in<T>(pre, s.shift), run.in<float>(rstd), run.in<T>(wq),
                                               run.in<T>(wk), u(s.slots), sums));
    });
  }
}

BOOST_AUTO_TEST_SUITE(cuda_norms)

BOOST_AUTO_TEST_CASE(rows_are_normalised) {
  for (std::size_t n : {1, 3, 17, 33, 64, 100, 257, 512, 1000, 1024, 1032}) {
    check_rms_norm<float>(11, n), check_rms_norm<Bf16>(11, n);
    check_rms_norm<float>(1, n), check_rms_norm<Bf16>(1, n);
  }
  check_rms_norm<float>(3, 1024, 1),
      check_rms_norm<Bf16>(3, 1024, 1);  // sizes for packs at unaligned addresses
  check_rms_norm<float>(2, 4096), check_rms_norm<Bf16>(2, 4096), check_rms_norm<Bf16>(1, 16384);
  check_rms_norm<float>(2, 4099), check_rms_norm<Bf16>(2, 4099);    // single elements, too long for registers
  check_rms_norm<float>(2, 16400), check_rms_norm<Bf16>(1, 32776);  // packs, too long for registers
}

BOOST_AUTO_TEST_CASE(gradients_of_rows_and_their_weights) {
  for (bool add : {false, true}) {
    for (std::size_t n : {1, 3, 17, 33, 64, 100, 257, 768}) {
      check_rms_norm_bwd<float>(37, n, 5, add), check_rms_norm_bwd<Bf16>(37, n, 5, add);
      check_rms_norm_bwd<float>(3, n, 7, add), check_rms_norm_bwd<Bf16>(3, n, 7, add);  // slots without rows
    }
    check_rms_norm_bwd<float>(5, 64, 2, add, 1), check_rms_norm_bwd<Bf16>(5, 64, 2, add, 1);
    for (std::size_t n : {1000, 2048, 2056, 2304, 4096, 4104, 8192,
                          8200})  // one, two and four packs per thread; too long for registers
      check_rms_norm_bwd<float>(3, n, 2, add), check_rms_norm_bwd<Bf16>(3, n, 2, add);
    for (std::size_t n : {513, 1025, 2047, 2051})
      check_rms_norm_bwd<float>(3, n, 2, add), check_rms_norm_bwd<Bf16>(3, n, 2, add);
    check_rms_norm_bwd<Bf16>(3, 16392, 2, add);
  }
  check_rms_norm_bwd<float>(0, 40, 3, false),
      check_rms_norm_bwd<Bf16>(0, 9000, 3, true);  // partial sums become zeros
}

BOOST_AUTO_TEST_CASE(slots_are_added_in_order) {
  for (std::size_t slots : {1, 2, 7, 255, 256, 257, 600})
    for (std::size_t n : {1, 31, 33, 100}) {
      const std::size_t ld = n + 3;
      const Vec partials = random_vec(slots * ld, 1), before = random_vec(n, 2);
      Vec written(n), added(n);
      for (std::size_t j = 0; j < n; ++j) {
        float sum = static_cast<float>(partials[j]);
        for (std::size_t s = 1; s < slots; ++s) sum += static_cast<float>(partials[s * ld + j]);
        written[j] = sum, added[j] = static_cast<float>(before[j]) + sum;
      }
      for (bool overwrite : {false, true})
        under_every_schedule([&](KernelRun& run) {
          float* grad = overwrite ? run.out<float>(n) : run.in<float>(before);
          run.expect(grad, "grad", overwrite ? written : added, kExact);
          run.require_success(cuda::sum_slots(run.stream, static_cast<std::uint32_t>(slots),
                                              static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(ld),
                                              run.in<float>(partials), overwrite, grad));
        });
    }
}

BOOST_AUTO_TEST_CASE(heads_are_normalised_in_place) {
  for (std::size_t d : {1, 2, 3, 8, 17, 33, 64, 100, 128, 256}) {
    for (const Shape& s : {Shape{5, 4, 2, d, 3}, Shape{1, 1, 1, d, 1}})
      check_qk_norm<float>(s), check_qk_norm<Bf16>(s);
  }
  check_qk_norm<float>({67, 3, 1, 16, 4}),
      check_qk_norm<Bf16>({67, 3, 1, 16, 4});  // more heads than a block processes at once
  check_qk_norm<float>({3, 2, 1, 64, 5, 1}),
      check_qk_norm<Bf16>({3, 2, 1, 64, 5, 1});  // unaligned addresses, slots without rows
  check_qk_norm<float>({2, 2, 1, 512, 1}), check_qk_norm<Bf16>({2, 2, 1, 512, 1}),
      check_qk_norm<Bf16>({2, 1, 1, 1024, 2});
  check_qk_norm<float>({2, 2, 1, 511, 1}), check_qk_norm<Bf16>({2, 2, 1, 511, 1});
  check_qk_norm<Bf16>({0, 2, 1, 64, 3});
  BOOST_TEST(cuda::qk_norm<float>(nullptr, 1, 1, 1, 513, nullptr, nullptr, nullptr, 0, nullptr, nullptr) ==
             cudaErrorInvalidValue);
}

BOOST_AUTO_TEST_CASE(zero_rows_queue_no_kernel) {
  BOOST_TEST(cuda::rms_norm<float>(nullptr, 0, 8, nullptr, nullptr, 0, nullptr, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::qk_norm<Bf16>(nullptr, 0, 1, 1, 8, nullptr, nullptr, nullptr, 0, nullptr, nullptr) ==
             cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
