// Conversion to bf16 and the embedding: copies of rows bit for bit, and gradients summed per token in the
// order of rows.
#include <algorithm>
#include <numeric>

#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

Ids sorted_order(const Ids& ids) {
  Ids order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return ids[static_cast<std::size_t>(a)] < ids[static_cast<std::size_t>(b)];
  });
  return order;
}
Ids random_ids(std::size_t n, std::size_t vocab, unsigned seed) {
  std::mt19937 g(seed);
  Ids ids(n);
  for (std::int32_t& i : ids) i = static_cast<std::int32_t>(g() % vocab);
  return ids;
}

template <class T>
void check_embedding(std::size_t rows, std::size_t h, const Ids& ids, std::size_t v, std::size_t shift) {
  const Vec table = random_of<T>(v * h, 1), dx = random_of<T>(rows * h, 2), before = random_vec(v * h, 3);
  const Vec x = ref::embed(table, ids, h);
  const Ids order = sorted_order(ids);
  // Sums in f32 in the order of rows: the kernel must produce the same bits.
  std::vector<float> sums(before.begin(), before.end());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < h; ++j)
      sums[static_cast<std::size_t>(ids[r]) * h + j] += static_cast<float>(dx[r * h + j]);
  const Vec grad(sums.begin(), sums.end());
  Vec reference = before;
  ref::embed_bwd(dx, ids, h, reference);
  for (std::size_t i = 0; i < grad.size(); ++i) BOOST_REQUIRE_SMALL(grad[i] - reference[i], 1e-3);
  BOOST_TEST_CONTEXT("rows " << rows << ", h " << h << ", shift " << shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* to = run.out<T>(rows * h, shift);
      run.expect(to, "x", x, kExact);
      run.require_success(cuda::embed<T>(run.stream, rows, static_cast<std::uint32_t>(h),
                                         run.in<std::int32_t>(ids), run.in<T>(table, shift), to));
    });
    under_every_schedule([&](KernelRun& run) {
      float* g = run.in<float>(before, shift);
      run.expect(g, "grad", grad, kExact);
      run.require_success(cuda::embed_bwd<T>(run.stream, rows, static_cast<std::uint32_t>(h),
                                             run.in<std::int32_t>(ids), run.in<std::int32_t>(order),
                                             run.in<T>(dx, shift), g));
    });
  }
}

BOOST_AUTO_TEST_SUITE(cuda_embedding)

BOOST_AUTO_TEST_CASE(weights_round_to_bf16_like_the_reference) {
  for (std::size_t n : {1, 3, 8, 17, 33, 257, 1000, 4096, 5003})
    for (std::size_t shift : {0, 1}) {
      Vec from = random_vec(n, static_cast<unsigned>(n));
      if (n > 2)
        from[0] = 1.00390625, from[1] = 1.01171875,
        from[2] = 3.4e38;  // ties in both directions, and overflow to infinity
      const Vec to = rounded<Bf16>(from);
      under_every_schedule([&](KernelRun& run) {
        Bf16* b = run.out<Bf16>(n, shift);
        run.expect(b, "to", to, kExact);
        run.require_success(cuda::to_bf16(run.stream, n, run.in<float>(from, shift), b));
      });
    }
  BOOST_TEST(cuda::to_bf16(nullptr, 0, nullptr, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_CASE(rows_are_copied_and_gradients_added_in_order) {
  for (std::size_t rows : {1, 7, 131})
    for (std::size_t h : {1, 3, 17, 33, 64, 257, 1000, 1024}) {
      if (rows == 131 && h > 300) continue;
      const Ids ids = random_ids(rows, 19, static_cast<unsigned>(rows + h));
      check_embedding<float>(rows, h, ids, 19, 0);
      check_embedding<Bf16>(rows, h, ids, 19, 0);
    }
  const Ids ids = random_ids(9, 5, 8);
  check_embedding<float>(9, 64, ids, 5, 1);  // h allows packs, but addresses are not aligned
  check_embedding<Bf16>(9, 64, ids, 5, 1);
  check_embedding<Bf16>(9, 2056, ids, 5, 0);  // several parts of a row, the last one partly filled
}

BOOST_AUTO_TEST_CASE(long_runs_of_one_token_are_summed_exactly) {
  for (std::size_t run : {15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 200}) {
    Ids ids(run, 2);
    ids.push_back(4), ids.insert(ids.begin(), 0),
        ids.push_back(0);  // other ids before and after the run; rows of id 0 are not adjacent
    check_embedding<float>(ids.size(), 20, ids, 6, 0);
    check_embedding<Bf16>(ids.size(), 20, ids, 6, 0);
    const Ids alone(run, 3);
    check_embedding<Bf16>(run, 33, alone, 4, 0);
  }
}

BOOST_AUTO_TEST_CASE(zero_rows_queue_no_kernel) {
  BOOST_TEST(cuda::embed<float>(nullptr, 0, 8, nullptr, nullptr, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::embed_bwd<Bf16>(nullptr, 0, 8, nullptr, nullptr, nullptr, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
