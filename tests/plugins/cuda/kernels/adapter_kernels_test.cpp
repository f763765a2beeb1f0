// Dropout compared with the masks of core/step/dropout.hpp, and matrices in NF4 with
// nf4::dequantize_blocks(): the same masks and the same bits, with packs and single elements.
#include "plugins/cuda/kernels/adapter_kernels.hpp"
#include "core/step/dropout.hpp"
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

template <class T>
void check_dropout(std::size_t rows, std::size_t n, double rate, std::size_t shift = 0,
                   std::uint32_t first_column = 0) {
  constexpr std::uint64_t kSeed = 0x123456789abcdef0, kMicroBatch = 0x2345600000007;
  constexpr std::uint32_t kProduct = 29;
  const step::DropoutMask mask(kSeed, rate, kProduct, kMicroBatch);
  const Vec x = random_of<T>(rows * n, 1), before = random_of<T>(rows * n, 2);
  Vec y(rows * n), sum = before;
  for (std::size_t r = 0; r < rows; ++r)
    mask.for_row(r, first_column, n, [&](std::uint64_t c, float factor) {
      y[r * n + c] = static_cast<double>(factor) * x[r * n + c], sum[r * n + c] += y[r * n + c];
    });
  const std::vector<std::int32_t> number{static_cast<std::int32_t>(kMicroBatch & 0xffffffff),
                                         static_cast<std::int32_t>(kMicroBatch >> 32)};
  BOOST_TEST_CONTEXT("rows " << rows << ", n " << n << ", rate " << rate << ", first column " << first_column
                             << ", bytes " << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      const cuda::DropoutMask m{static_cast<std::uint32_t>(kSeed),
                                static_cast<std::uint32_t>(kSeed >> 32),
                                kProduct,
                                first_column,
                                step::dropped_below(rate),
                                step::kept_scale(rate),
                                run.in<std::int32_t>(number)};
      T *to = run.out<T>(rows * n, shift), *added = run.in<T>(before, shift), *from = run.in<T>(x, shift);
      run.expect(to, "y", y, close<T>()), run.expect(added, "dx", sum, close<T>());
      const auto width = static_cast<std::uint32_t>(n);
      run.require_success(cuda::dropout<T>(run.stream, rows, width, m, from, to));
      run.require_success(cuda::dropout_add<T>(run.stream, rows, width, m, from, added));
    });
  }
}

template <class T>
void check_nf4(std::uint64_t n, bool doubled, std::size_t first_byte, std::size_t shift) {
  const nf4::Layout l = nf4::layout(n, doubled);
  const Vec x = random_vec(n, static_cast<unsigned>(n));
  std::vector<float> values(x.begin(), x.end()), scales(l.blocks);
  std::vector<std::byte> bytes(l.bytes);
  nf4::quantize_blocks(l, 0, values, bytes.data(), scales.data());
  nf4::store_scales(l, scales.data(), bytes.data());
  nf4::dequantize_blocks(l, bytes.data(), 0, values);
  const Vec expected = rounded<T>(Vec(values.begin(), values.end()));
  std::vector<int> padded(first_byte);
  for (const std::byte b : bytes) padded.push_back(static_cast<int>(b));
  BOOST_TEST_CONTEXT("elements " << n << ", doubled " << doubled << ", first byte " << first_byte) {
    under_every_schedule([&](KernelRun& run) {
      T* matrix = run.out<T>(n, shift);
      run.expect(matrix, "matrix", expected, kExact);
      run.require_success(cuda::dequantize_nf4<T>(
          run.stream, l, reinterpret_cast<const std::byte*>(run.in<unsigned char>(padded)) + first_byte,
          matrix));
    });
  }
}

BOOST_AUTO_TEST_SUITE(cuda_adapter_kernels)

BOOST_AUTO_TEST_CASE(dropout_has_the_masks_of_the_program) {
  for (const double rate : {0.0, 0.05, 0.5, 0.99})
    check_dropout<float>(5, 12, rate), check_dropout<Bf16>(5, 12, rate);
  for (const std::size_t n : {1, 3, 4, 7, 1030})
    check_dropout<float>(3, n, 0.3), check_dropout<Bf16>(3, n, 0.3), check_dropout<Bf16>(3, n, 0.3, 1);
  check_dropout<float>(300, 8, 0.3);
  check_dropout<float>(2, 2052, 0.3, 1);
  // Of a rank that has some columns of the input.
  for (std::uint32_t first : {1u, 2u, 3u, 4u, 7u, 12u})
    for (std::size_t n : {1, 2, 5, 8, 12})
      check_dropout<float>(3, n, 0.3, 0, first), check_dropout<Bf16>(3, n, 0.3, 0, first);
}

BOOST_AUTO_TEST_CASE(matrices_in_nf4_have_the_bits_of_the_plain_loop) {
  for (const bool doubled : {false, true})
    for (const std::uint64_t n : {1, 7, 8, 63, 64, 65, 64 * 300 + 33})
      for (const std::size_t shift : {0, 1})
        check_nf4<float>(n, doubled, 3 * shift, shift), check_nf4<Bf16>(n, doubled, shift, shift);
}

template <class T>
void check_transpose(std::size_t rows, std::size_t cols) {
  const Vec x = random_of<T>(rows * cols, 1);
  Vec y(rows * cols);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c];
  under_every_schedule([&](KernelRun& run) {
    T* to = run.out<T>(rows * cols);
    run.expect(to, "y", y, kExact);
    run.require_success(cuda::transpose<T>(run.stream, static_cast<std::uint32_t>(rows),
                                           static_cast<std::uint32_t>(cols), run.in<T>(x), to));
  });
}

BOOST_AUTO_TEST_CASE(a_transpose_has_every_element_in_its_place) {
  for (const std::size_t rows : {1, 3, 16, 300})
    for (const std::size_t cols : {1, 2, 8, 33})
      check_transpose<float>(rows, cols), check_transpose<Bf16>(rows, cols);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
