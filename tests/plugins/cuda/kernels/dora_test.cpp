// The kernels of DoRA compared with plain loops in double: norms of rows of adapted matrices of odd sizes and
// ranks, factors from them, and the product with the factors and its gradient.
#include "plugins/cuda/kernels/dora_kernels.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

template <class T>
void check_norms(std::uint32_t outputs, std::uint32_t k, std::uint32_t rank, std::size_t shift) {
  constexpr float kScale = 1.5f;
  Vec w = random_of<T>(std::size_t{outputs} * k, 1);
  const Vec a = random_of<T>(std::size_t{rank} * k, 2), magnitude = random_of<T>(outputs, 4);
  Vec b = random_of<T>(std::size_t{outputs} * rank, 3), squares(outputs), factor(outputs), inverse(outputs);
  // A row without a direction.
  std::fill_n(w.begin(), k, 0.0), std::fill_n(b.begin(), rank, 0.0);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < k; ++i) {
      double sum = w[o * k + i];
      for (std::size_t q = 0; q < rank; ++q) sum += kScale * b[o * rank + q] * a[q * k + i];
      squares[o] += sum * sum;
    }
    inverse[o] = squares[o] > 0 ? 1 / std::sqrt(squares[o]) : 0, factor[o] = magnitude[o] * inverse[o];
  }
  // Statistics are f32 in both types.
  constexpr Tolerance kClose{1e-5, 1e-6};
  BOOST_TEST_CONTEXT("outputs " << outputs << ", columns " << k << ", rank " << rank << ", shift " << shift
                                << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      const cuda::AdaptedMatrix<T> matrix{
          run.in<T>(w, shift), run.in<T>(a, shift), run.in<T>(b), outputs, k, rank, kScale};
      const T* m = run.in<T>(magnitude);
      float *f = run.out<float>(outputs), *i = run.out<float>(outputs), *s = run.out<float>(outputs),
            *f2 = run.out<float>(outputs), *i2 = run.out<float>(outputs);
      run.expect(f, "factor", factor, kClose), run.expect(i, "inverse", inverse, kClose);
      run.expect(s, "squares", squares, kClose);
      run.expect(f2, "factor of squares", factor, kClose),
          run.expect(i2, "inverse of squares", inverse, kClose);
      run.require_success(cuda::dora_scale<T>(run.stream, matrix, m, f, i));
      run.require_success(cuda::dora_squares<T>(run.stream, matrix, s));
      run.require_success(cuda::dora_factors<T>(run.stream, outputs, s, m, f2, i2));
    });
  }
}

/// Of an embedding: the columns of the table.
template <class T>
void check_column_norms(std::uint32_t k, std::uint32_t outputs, std::uint32_t rank) {
  constexpr float kScale = 0.5f;
  Vec w = random_of<T>(std::size_t{k} * outputs, 1), b = random_of<T>(std::size_t{outputs} * rank, 3);
  const Vec a = random_of<T>(std::size_t{k} * rank, 2), magnitude = random_of<T>(outputs, 4);
  // A column without a direction.
  for (std::size_t i = 0; i < k; ++i) w[i * outputs] = 0;
  std::fill_n(b.begin(), rank, 0.0);
  Vec squares(outputs), factor(outputs), inverse(outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t i = 0; i < k; ++i) {
      double sum = w[i * outputs + o];
      for (std::size_t q = 0; q < rank; ++q) sum += kScale * b[o * rank + q] * a[i * rank + q];
      squares[o] += sum * sum;
    }
    inverse[o] = squares[o] > 0 ? 1 / std::sqrt(squares[o]) : 0, factor[o] = magnitude[o] * inverse[o];
  }
  constexpr Tolerance kClose{1e-5, 1e-6};
  BOOST_TEST_CONTEXT("tokens " << k << ", columns " << outputs << ", rank " << rank) {
    under_every_schedule([&](KernelRun& run) {
      const cuda::AdaptedMatrix<T> matrix{run.in<T>(w), run.in<T>(a), run.in<T>(b), outputs, k,
                                          rank,         kScale,       true};
      const T* m = run.in<T>(magnitude);
      float *f = run.out<float>(outputs), *i = run.out<float>(outputs), *s = run.out<float>(outputs);
      run.expect(f, "factor", factor, kClose), run.expect(i, "inverse", inverse, kClose);
      run.expect(s, "squares", squares, kClose);
      run.require_success(cuda::dora_scale<T>(run.stream, matrix, m, f, i));
      run.require_success(cuda::dora_squares<T>(run.stream, matrix, s));
    });
  }
}

template <class T>
void check_product(std::size_t rows, std::uint32_t n, std::size_t shift) {
  const Vec x = random_of<T>(rows * n, 1), bias = random_of<T>(n, 2), residual = random_of<T>(rows * n, 3),
            factor = random_vec(n, 4);
  for (const bool dropped : {false, true})
    for (const bool adds : {false, true}) {
      Vec y(rows * n);
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = (factor[i % n] - (dropped ? 1 : 0)) * x[i] + (adds && !dropped ? bias[i % n] : 0) +
               (adds || dropped ? residual[i] : 0);
      BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", dropped " << dropped << ", adds " << adds) {
        under_every_schedule([&](KernelRun& run) {
          T* to = dropped ? run.in<T>(residual, shift) : run.out<T>(rows * n, shift);
          run.expect(to, "y", y, close<T>());
          const T* before = dropped ? to : adds ? run.in<T>(residual, shift) : nullptr;
          run.require_success(cuda::dora<T>(run.stream, rows, n, run.in<T>(x, shift), run.in<float>(factor),
                                            dropped ? 1.0f : 0.0f,
                                            adds && !dropped ? run.in<T>(bias, shift) : nullptr, before, to));
        });
      }
    }
}

template <class T>
void check_gradient(std::size_t rows, std::uint32_t n, const cuda::DoraBlocks& blocks) {
  const Vec dy = random_of<T>(rows * n, 1), x = random_of<T>(rows * n, 2), factor = random_vec(n, 3),
            inverse = random_vec(n, 4);
  std::size_t magnitudes = 0;
  for (std::uint32_t b = 0; b < blocks.count; ++b) magnitudes += blocks.block[b].outputs;
  const Vec before = random_vec(magnitudes, 5);
  Vec dx(rows * n), product(rows * n), sums(n);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    sums[i % n] += dy[i] * x[i];
    dx[i] = factor[i % n] * dy[i], product[i] = (static_cast<float>(factor[i % n]) - 1.0f) * dy[i];
  }
  const double of_sums = 1e-6 * static_cast<double>(rows);
  for (const bool overwrite : {false, true})
    for (const bool drops : {false, true}) {
      Vec grad = overwrite ? Vec(magnitudes) : before;
      for (std::uint32_t b = 0; b < blocks.count; ++b)
        for (std::uint32_t i = 0; i < blocks.block[b].outputs; ++i) {
          const std::uint32_t c = blocks.block[b].first_output + i;
          grad[blocks.block[b].first_magnitude + i] += sums[c] * inverse[c];
        }
      BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", drops " << drops) {
        under_every_schedule([&](KernelRun& run) {
          T *changed = run.in<T>(x), *of_product = drops ? run.out<T>(rows * n) : nullptr;
          float* g = run.in<float>(before);
          run.expect(changed, "dx", dx, close<T>()), run.expect(g, "grad", grad, {1e-5, 1e-5 + of_sums});
          if (drops) run.expect(of_product, "product", product, close<T>());
          run.require_success(cuda::dora_bwd<T>(run.stream, rows, n, blocks, run.in<T>(dy),
                                                run.in<float>(factor), run.in<float>(inverse), overwrite,
                                                changed, of_product, g));
        });
      }
    }
}

BOOST_AUTO_TEST_SUITE(cuda_dora)

BOOST_AUTO_TEST_CASE(norms_of_adapted_rows_give_the_factors) {
  for (const std::uint32_t k : {1u, 5u, 12u, 64u, 300u, 1028u})
    for (const std::uint32_t outputs : {1u, 8u, 13u}) {
      check_norms<float>(outputs, k, 3, k % 2), check_norms<Bf16>(outputs, k, 1 + k % 5, 0);
      check_norms<Bf16>(outputs, k, 2, 1);
    }
  // More ranks than fit in shared memory, over more than one tile of columns.
  for (const std::uint32_t rank : {63u, 64u, 65u, 130u})
    check_norms<float>(9, 1100, rank, 0), check_norms<Bf16>(3, 301, rank, 0);
}

BOOST_AUTO_TEST_CASE(norms_of_adapted_columns_give_the_factors) {
  for (const std::uint32_t tokens : {1u, 15u, 16u, 300u, 1030u})
    for (const std::uint32_t columns : {1u, 31u, 32u, 70u})
      check_column_norms<float>(tokens, columns, 1 + columns % 4),
          check_column_norms<Bf16>(tokens, columns, 3);
  check_column_norms<float>(40, 33, 130);
}

BOOST_AUTO_TEST_CASE(outputs_without_an_adapter_have_the_factor_one) {
  const Vec ones(300, 1.0), zeros(300);
  under_every_schedule([&](KernelRun& run) {
    float *f = run.out<float>(300), *i = run.out<float>(300);
    run.expect(f, "factor", ones, kExact), run.expect(i, "inverse", zeros, kExact);
    run.require_success(cuda::dora_no_factors(run.stream, 300, f, i));
  });
}

BOOST_AUTO_TEST_CASE(outputs_are_multiplied_by_their_factors) {
  for (const std::uint32_t n : {1u, 7u, 8u, 40u, 2056u})
    for (const std::size_t shift : {0, 1})
      check_product<float>(5, n, shift), check_product<Bf16>(5, n, shift);
}

BOOST_AUTO_TEST_CASE(gradients_of_magnitudes_are_sums_over_rows) {
  for (const std::size_t rows : {1, 15, 64, 150})
    for (const std::uint32_t n : {1u, 31u, 32u, 70u}) {
      const cuda::DoraBlocks whole{1, {{0, n, 0}}};
      check_gradient<float>(rows, n, whole), check_gradient<Bf16>(rows, n, whole);
    }
  // q and v, not k.
  const cuda::DoraBlocks parts{2, {{0, 40, 0}, {50, 20, 40}}};
  check_gradient<float>(33, 70, parts), check_gradient<Bf16>(33, 70, parts);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
