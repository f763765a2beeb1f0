// What tensor-parallel ranks compute of their part of the vocabulary, compared with the whole in double: the
// statistics of a part, loss and gradient from the statistics of all parts, and rows of the embedding. Unaligned
// rows, ignored targets, extreme and non-finite logits, parts of different maxima.
#include <algorithm>
#include <numeric>

#include "plugins/cuda/kernels/parts_kernels.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr double kLossScale = 1.0 / 37;

/// Logits [rows, parts * vocab] and targets, some of them not counted.
struct Logits {
  std::size_t rows, vocab, parts;
  Vec logits;
  Ids targets;

  std::size_t whole() const { return vocab * parts; }
  /// The logits of part p, [rows, vocab].
  Vec of_part(std::size_t p, const Vec& all) const {
    Vec out;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < vocab; ++i) out.push_back(all[r * whole() + p * vocab + i]);
    return out;
  }
  std::int32_t first_token(std::size_t p) const { return static_cast<std::int32_t>(p * vocab); }
  bool counts(std::size_t r) const { return targets[r] != -100; }
  /// Maximum, sum and logit of the target of every row of part p.
  Vec stats(std::size_t p) const {
    Vec out(3 * rows);
    for (std::size_t r = 0; r < rows; ++r) {
      if (!counts(r)) continue;
      const double* row = &logits[r * whole() + p * vocab];
      const double top = *std::max_element(row, row + vocab);
      double sum = 0;
      for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - top);
      const std::int64_t target = targets[r] - first_token(p);
      const bool own = target >= 0 && target < static_cast<std::int64_t>(vocab);
      out[3 * r] = top, out[3 * r + 1] = sum, out[3 * r + 2] = own ? row[target] : 0;
    }
    return out;
  }
};

template <class T>
Logits make_logits(std::size_t rows, std::size_t vocab, std::size_t parts, double spread) {
  Logits c{rows, vocab, parts, random_of<T>(rows * vocab * parts, static_cast<unsigned>(vocab), spread), {}};
  std::mt19937 g(static_cast<unsigned>(rows));
  for (std::size_t r = 0; r < rows; ++r)
    c.targets.push_back(r % 4 == 2 ? -100 : static_cast<std::int32_t>(g() % c.whole()));
  if (rows > 3) c.targets[0] = 0, c.targets[1] = static_cast<std::int32_t>(c.whole() - 1);
  return c;
}

/// `shift` elements between a boundary of 16 bytes and the first row.
template <class T>
void check_parts(std::size_t rows, std::size_t vocab, std::size_t parts, std::size_t shift = 0,
                 double spread = 30) {
  const Logits c = make_logits<T>(rows, vocab, parts, spread);
  Vec gradient, losses(rows), all_stats;
  ref::cross_entropy(c.logits, c.targets, c.whole(), kLossScale, &gradient);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto at = c.logits.begin() + static_cast<std::ptrdiff_t>(r * c.whole());
    losses[r] = ref::cross_entropy({at, at + static_cast<std::ptrdiff_t>(c.whole())}, {c.targets[r]}, c.whole(),
                                   1, nullptr);
  }
  for (std::size_t p = 0; p < parts; ++p) {
    const Vec of_part = c.stats(p);
    all_stats.insert(all_stats.end(), of_part.begin(), of_part.end());
  }
  for (std::size_t p = 0; p < parts; ++p)
    BOOST_TEST_CONTEXT("rows " << rows << ", vocab " << vocab << ", part " << p << " of " << parts << ", shift "
                               << shift << ", bytes " << sizeof(T)) {
      const Vec logits = c.of_part(p, c.logits), stats = c.stats(p), own = c.of_part(p, gradient);
      under_every_schedule([&](KernelRun& run) {
        float* to = run.out<float>(3 * rows);
        run.expect(to, "stats", stats, {1e-5, 1e-5});
        run.require_success(cuda::softmax_stats<T>(run.stream, rows, vocab, run.in<T>(logits, shift),
                                                   run.in<std::int32_t>(c.targets), c.first_token(p), to));
      });
      const cuda::VocabularyParts of{static_cast<std::uint32_t>(parts), static_cast<std::uint32_t>(p),
                                     c.first_token(p), rows};
      for (const bool train : {true, false})
        under_every_schedule([&](KernelRun& run) {
          T* in_place = run.in<T>(logits, shift);
          float* l = run.out<float>(rows);
          if (train) run.expect(in_place, "gradient", own, {close<T>().relative, 1e-6});
          run.expect(l, "losses", losses, close<float>());
          run.require_success(cuda::cross_entropy_of_parts<T>(
              run.stream, rows, vocab, in_place, run.in<std::int32_t>(c.targets),
              train ? run.in<double>(Vec{kLossScale}) : nullptr, of, run.in<float>(all_stats), l));
        });
    }
}

BOOST_AUTO_TEST_SUITE(cuda_parts)

BOOST_AUTO_TEST_CASE(losses_and_gradients_of_parts_are_those_of_the_whole) {
  for (std::size_t vocab : {1, 2, 3, 7, 8, 17, 33, 257, 1000, 4099})
    for (std::size_t parts : {2, 3}) {
      if (vocab > 1000 && parts == 3) continue;
      check_parts<float>(5, vocab, parts), check_parts<Bf16>(5, vocab, parts);
    }
  for (std::size_t shift : {1, 3, 7}) check_parts<float>(3, 64, 2, shift), check_parts<Bf16>(3, 64, 2, shift);
  check_parts<float>(5, 300, 2, 0, 1e-3), check_parts<Bf16>(5, 300, 4, 0, 300);
}

BOOST_AUTO_TEST_CASE(a_part_without_finite_logits_has_no_weight) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-inf, nan}) {
    Logits c = make_logits<float>(1, 8, 2, 1);
    c.targets = {3};
    for (std::size_t i = 8; i < 16; ++i) c.logits[i] = bad;
    const Vec own = c.stats(0);
    const double loss = bad == -inf ? std::log(own[1]) + own[0] - own[2] : nan;
    Vec of_kernel(6);
    for (std::size_t p = 0; p < 2; ++p) {
      KernelRun run;
      float* to = run.out<float>(3);
      run.expect_any(to);
      run.require_success(cuda::softmax_stats<float>(run.stream, 1, 8, run.in<float>(c.of_part(p, c.logits)),
                                                     run.in<std::int32_t>(c.targets), c.first_token(p), to));
      run.require_success(cudaStreamSynchronize(run.stream));
      for (std::size_t i = 0; i < 3; ++i) of_kernel[3 * p + i] = static_cast<double>(to[i]);
    }
    under_every_schedule([&](KernelRun& run) {
      float* l = run.out<float>(1);
      const Vec losses{loss};
      run.expect(l, "loss", losses, close<float>());
      run.require_success(cuda::cross_entropy_of_parts<float>(
          run.stream, 1, 8, run.in<float>(c.of_part(0, c.logits)), run.in<std::int32_t>(c.targets), nullptr,
          {2, 0, 0, 1}, run.in<float>(of_kernel), l));
      run.require_success(cudaStreamSynchronize(run.stream));
      BOOST_TEST((bad == -inf ? std::abs(static_cast<double>(*l) - loss) < 1e-5 : std::isnan(*l)));
      run.expect_any(l);
    });
  }
}

/// Ids of [0, 3 * count); the table has those of the second third.
template <class T>
void check_embedding_part(std::size_t rows, std::size_t h, std::size_t shift) {
  constexpr std::size_t kCount = 5;
  std::mt19937 g(static_cast<unsigned>(rows + h));
  Ids ids(rows), order(rows);
  for (std::int32_t& i : ids) i = static_cast<std::int32_t>(g() % (3 * kCount));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::int32_t r) { return ids[static_cast<std::size_t>(r)]; });
  const Vec table = random_of<T>(kCount * h, 1), dx = random_of<T>(rows * h, 2),
            before = random_vec(kCount * h, 3);
  Vec x(rows * h);
  std::vector<float> sums(before.begin(), before.end());
  for (std::size_t r = 0; r < rows; ++r) {
    const auto row = static_cast<std::size_t>(ids[r]) - kCount;  // wraps for smaller ids
    if (row >= kCount) continue;
    for (std::size_t j = 0; j < h; ++j)
      x[r * h + j] = table[row * h + j], sums[row * h + j] += static_cast<float>(dx[r * h + j]);
  }
  const Vec grad(sums.begin(), sums.end());
  const cuda::IdRange range{kCount, kCount};
  BOOST_TEST_CONTEXT("rows " << rows << ", h " << h << ", shift " << shift << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* to = run.out<T>(rows * h, shift);
      run.expect(to, "x", x, kExact);
      run.require_success(cuda::embed_part<T>(run.stream, rows, static_cast<std::uint32_t>(h),
                                              run.in<std::int32_t>(ids), range, run.in<T>(table, shift), to));
    });
    under_every_schedule([&](KernelRun& run) {
      float* to = run.in<float>(before, shift);
      run.expect(to, "grad", grad, kExact);
      run.require_success(cuda::embed_part_bwd<T>(run.stream, rows, static_cast<std::uint32_t>(h),
                                                  run.in<std::int32_t>(ids), run.in<std::int32_t>(order), range,
                                                  run.in<T>(dx, shift), to));
    });
  }
}

BOOST_AUTO_TEST_CASE(ids_of_other_parts_have_rows_of_zeros_and_no_gradient) {
  for (std::size_t rows : {1, 9, 70})
    for (std::size_t h : {3, 8, 64, 257})
      check_embedding_part<float>(rows, h, 0), check_embedding_part<Bf16>(rows, h, 0);
  check_embedding_part<float>(9, 64, 1), check_embedding_part<Bf16>(9, 64, 1);
}

template <class T>
void check_take_rows(std::size_t n, std::size_t shift) {
  const Vec sum = random_of<T>(n, 1), residual = random_of<T>(n, 2);
  Vec both = sum;
  for (std::size_t i = 0; i < n; ++i) both[i] += residual[i];
  const Vec expected = rounded<T>(both);
  BOOST_TEST_CONTEXT("n " << n << ", shift " << shift << ", bytes " << sizeof(T)) {
    for (const bool adds : {true, false})
      under_every_schedule([&](KernelRun& run) {
        T* y = run.out<T>(n, shift);
        run.expect(y, "y", adds ? expected : sum, adds ? close<T>() : kExact);
        run.require_success(cuda::take_rows<T>(run.stream, n, run.in<T>(sum, shift),
                                               adds ? run.in<T>(residual, shift) : nullptr, y));
      });
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_sum_with_and_without_a_residual) {
  for (std::size_t n : {1, 7, 8, 64, 1023, 2048, 5003})
    for (std::size_t shift : {0, 1}) check_take_rows<float>(n, shift), check_take_rows<Bf16>(n, shift);
}

BOOST_AUTO_TEST_CASE(nothing_to_do_queues_no_kernel) {
  BOOST_TEST(cuda::softmax_stats<float>(nullptr, 0, 8, nullptr, nullptr, 0, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::cross_entropy_of_parts<Bf16>(nullptr, 0, 8, nullptr, nullptr, nullptr, {}, nullptr,
                                                nullptr) == cudaSuccess);
  BOOST_TEST(cuda::take_rows<float>(nullptr, 0, nullptr, nullptr, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::embed_part<float>(nullptr, 0, 8, nullptr, {}, nullptr, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
