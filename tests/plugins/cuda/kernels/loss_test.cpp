// Cross-entropy and its gradient compared with references in double: unaligned rows, rows longer than shared
// memory, ignored targets, extreme and non-finite logits; and the sum of losses.
#include "tests/plugins/cuda/kernels/kernel_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

constexpr double kScale = 1.0 / 37;

template <class T>
void check_cross_entropy(std::size_t rows, std::size_t vocab, std::size_t shift = 0, double spread = 30) {
  const Vec logits = random_of<T>(rows * vocab, static_cast<unsigned>(vocab), spread);
  std::mt19937 g(static_cast<unsigned>(rows));
  Ids targets(rows);
  for (std::size_t r = 0; r < rows; ++r)
    targets[r] = r % 4 == 2 ? -100 : static_cast<std::int32_t>(g() % vocab);
  if (rows > 3) targets[0] = 0, targets[1] = static_cast<std::int32_t>(vocab - 1);
  Vec losses(rows), gradient;
  ref::cross_entropy(logits, targets, vocab, kScale, &gradient);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto at = logits.begin() + static_cast<std::ptrdiff_t>(r * vocab);
    losses[r] =
        ref::cross_entropy({at, at + static_cast<std::ptrdiff_t>(vocab)}, {targets[r]}, vocab, 1, nullptr);
  }
  BOOST_TEST_CONTEXT("rows " << rows << ", vocab " << vocab << ", shift " << shift << ", bytes "
                             << sizeof(T)) {
    under_every_schedule([&](KernelRun& run) {
      T* in_place = run.in<T>(logits, shift);
      float* l = run.out<float>(rows);
      run.expect(in_place, "gradient", gradient, {close<T>().relative, 1e-6}),
          run.expect(l, "losses", losses, close<float>());
      run.require_success(cuda::cross_entropy<T>(
          run.stream, rows, vocab, in_place, run.in<std::int32_t>(targets), run.in<double>(Vec{kScale}), l));
    });
    under_every_schedule([&](KernelRun& run) {  // without a scale the logits do not change
      float* l = run.out<float>(rows);
      run.expect(l, "losses", losses, close<float>());
      run.require_success(cuda::cross_entropy<T>(run.stream, rows, vocab, run.in<T>(logits, shift),
                                                 run.in<std::int32_t>(targets), nullptr, l));
    });
  }
}

BOOST_AUTO_TEST_SUITE(cuda_loss)

BOOST_AUTO_TEST_CASE(losses_and_gradients) {
  for (std::size_t vocab : {1, 2, 3, 7, 8, 17, 33, 100, 256, 257, 1000, 4099, 5003})
    for (std::size_t rows : {1, 9})
      check_cross_entropy<float>(rows, vocab), check_cross_entropy<Bf16>(rows, vocab);
  for (std::size_t shift : {1, 3, 7})
    check_cross_entropy<float>(3, 64, shift), check_cross_entropy<Bf16>(3, 64, shift);
  check_cross_entropy<float>(5, 300, 0, 1e-3), check_cross_entropy<Bf16>(5, 300, 0, 300);
}

BOOST_AUTO_TEST_CASE(rows_longer_than_shared_memory) {
  check_cross_entropy<float>(1, 30'001);  // one block per SM
  check_cross_entropy<float>(2, 60'001), check_cross_entropy<Bf16>(2, 120'003);
  emu::Machine small;
  small.minor = 6, small.major = 8;
  emu::set_machine(small);
  check_cross_entropy<float>(2, 30'001), check_cross_entropy<Bf16>(2, 60'003);
  emu::set_machine({});
}

// A row that takes 48 KiB of dynamic shared memory or slightly less exceeds the default limit, because the
// kernel has static shared memory too.
BOOST_AUTO_TEST_CASE(rows_of_about_the_default_limit_of_shared_memory) {
  emu::Machine machine;
  const auto losses_of = [&](auto type, std::uint64_t vocab) {
    using T = decltype(type);
    emu::reset();
    emu::set_machine(machine);
    KernelRun run;
    const std::vector<double> logits(vocab, 0.5);
    T* in_place = run.in<T>(logits);
    run.expect_any(in_place);
    float* loss = run.out<float>(1);
    run.expect_any(loss);
    run.require_success(cuda::cross_entropy<T>(run.stream, 1, vocab, in_place, run.in<std::int32_t>(Ids{3}),
                                               run.in<double>(Vec{1}), loss));
    run.require_success(cudaStreamSynchronize(run.stream));
    BOOST_TEST(*loss == std::log(static_cast<double>(vocab)), boost::test_tools::tolerance(1e-5));
  };
  for (int minor : {0, 6}) {
    machine.major = 8, machine.minor = minor;
    BOOST_TEST_CONTEXT("compute capability 8." << minor) {
      for (std::uint64_t vocab : {24'448, 24'455, 24'456, 24'576, 24'583, 24'584, 24'832})
        losses_of(Bf16{}, vocab);
      for (std::uint64_t vocab : {12'224, 12'227, 12'228, 12'288, 12'291, 12'292, 12'416})
        losses_of(0.f, vocab);
    }
  }
  emu::reset();
}

BOOST_AUTO_TEST_CASE(masked_and_non_finite_logits) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::size_t vocab = 40;
  for (double bad : {-inf, inf, nan}) {
    Vec logits = random_vec(vocab, 1);
    for (std::size_t i = 0; i < vocab; i += bad == -inf ? 2 : vocab) logits[i] = bad;
    Vec loss{bad == -inf ? ref::cross_entropy(logits, {5}, vocab, 1, nullptr)
                         : nan};  // a non-finite logit makes the loss NaN
    under_every_schedule([&](KernelRun& run) {
      float* l = run.out<float>(1);
      run.expect(l, "loss", loss, close<float>());
      run.require_success(cuda::cross_entropy<float>(run.stream, 1, vocab, run.in<float>(logits),
                                                     run.in<std::int32_t>(Ids{5}), nullptr, l));
    });
  }
}

BOOST_AUTO_TEST_CASE(losses_are_added_in_f64) {
  for (std::size_t rows : {1, 3, 33, 1000, 1024, 1025, 9000}) {
    const Vec losses = random_vec(rows, 1, 5);
    Vec sum{0.25};
    for (double l : losses) sum[0] += l;
    under_every_schedule([&](KernelRun& run) {
      double* s = run.in<double>(Vec{0.25});
      run.expect(s, "sum", sum, {1e-13, 1e-11});
      run.require_success(cuda::add_losses(run.stream, rows, run.in<float>(losses), s));
    });
  }
}

BOOST_AUTO_TEST_CASE(zero_rows_queue_no_kernel) {
  BOOST_TEST(cuda::cross_entropy<float>(nullptr, 0, 8, nullptr, nullptr, nullptr, nullptr) == cudaSuccess);
  BOOST_TEST(cuda::add_losses(nullptr, 0, nullptr, nullptr) == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
