// The order of samples: a new permutation in every epoch for any size, independent of the start position.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "core/base/error.hpp"
#include "core/data/dataset.hpp"
#include "tests/core/data/data_files.hpp"

using namespace trainhost;
using namespace trainhost::data;

namespace {

std::vector<std::uint64_t> epoch(const Order& o, std::uint64_t e) {
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < o.samples(); ++i) samples.push_back(o.sample(e * o.samples() + i));
  return samples;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_order)

BOOST_AUTO_TEST_CASE(n_tokens_have_floor_of_n_minus_one_over_s_samples) {
  for (std::uint64_t n : {3u, 4u, 5u, 6u, 7u, 8u, 100u})
    for (std::uint32_t s : {1u, 2u}) BOOST_TEST(Order(n, s, false, 0).samples() == (n - 1) / s);
}

BOOST_AUTO_TEST_CASE(a_text_shorter_than_one_sample_is_rejected_with_both_numbers) {
  for (std::uint64_t tokens : {0u, 1u, 255u, 256u})
    check_says(failure([&] { Order(tokens, 256, true, 1); }),
               {std::to_string(tokens) + " tokens", "seq_len = 256", "needs 257"});
  BOOST_TEST(Order(257, 256, true, 1).samples() == 1u);
  check_says(failure([] { Order(10, 0, true, 1); }), {"data.seq_len is 0"});
}

BOOST_AUTO_TEST_CASE(sequential_order_counts_and_wraps) {
  const Order o(16, 3, false, 9);
  for (std::uint64_t p = 0; p < 23; ++p) BOOST_TEST(o.sample(p) == p % 5);
}

BOOST_AUTO_TEST_CASE(every_shuffled_epoch_is_a_permutation) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t n = 1; n <= 140; ++n) sizes.push_back(n);
  for (std::uint64_t n :
       {255u, 256u, 257u, 1000u, 1023u, 1024u, 1025u, 4095u, 4096u, 4097u, 10007u, 65536u, 65537u})
    sizes.push_back(n);
  for (std::uint64_t n : sizes)
    for (std::uint64_t seed : {0u, 1u, 1337u}) {
      const Order o(n * 2 + 1, 2, true, seed);
      for (std::uint64_t e : {0u, 1u, 5u}) {
        std::vector<bool> seen(n);
        for (std::uint64_t s : epoch(o, e)) {
          BOOST_REQUIRE(s < n);
          BOOST_REQUIRE(!seen[s]);
          seen[s] = true;
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(very_large_texts_stay_in_range_without_repeats) {
  for (std::uint64_t n : {(1ull << 26), (1ull << 40) + 1, (1ull << 62) - 1}) {
    const Order o(n + 1, 1, true, 3);
    std::set<std::uint64_t> seen;
    for (std::uint64_t p = 0; p < 20'000; ++p) {
      BOOST_REQUIRE(o.sample(p) < n);
      seen.insert(o.sample(p));
    }
    BOOST_TEST(seen.size() == 20'000u);
  }
}

BOOST_AUTO_TEST_CASE(the_order_depends_on_epoch_and_seed_only) {
  const Order a(1001, 1, true, 1), again(1001, 1, true, 1), b(1001, 1, true, 2);
  BOOST_TEST(epoch(a, 0) == epoch(again, 0));
  BOOST_TEST(epoch(a, 0) != epoch(a, 1));
  BOOST_TEST(epoch(a, 0) != epoch(b, 0));
  BOOST_TEST(epoch(a, 1) != epoch(b, 0));
}

// Positions of samples and pairs of successive samples are uniform: chi-square over 6 samples and 30,000
// epochs; a correct program exceeds each limit once in 10,000.
BOOST_AUTO_TEST_CASE(every_position_of_a_sample_is_equally_frequent) {
  const Order o(7, 1, true, 77);
  constexpr int kEpochs = 30'000;
  std::vector<int> place(36), follows(36);
  for (std::uint64_t e = 0; e < kEpochs; ++e)
    for (std::uint64_t i = 0; i < 6; ++i) {
      const std::uint64_t s = o.sample(e * 6 + i);
      ++place[i * 6 + s];
      if (i + 1 < 6) ++follows[s * 6 + o.sample(e * 6 + i + 1)];
    }
  double positions = 0, pairs = 0;
  for (int c : place) positions += std::pow(c - kEpochs / 6.0, 2) / (kEpochs / 6.0);
  for (int i = 0; i < 36; ++i)
    if (i % 7 != 0) pairs += std::pow(follows[i] - kEpochs / 6.0, 2) / (kEpochs / 6.0);
  BOOST_TEST(positions < 61);  // 25 degrees of freedom
  BOOST_TEST(pairs < 67);      // 30 pairs
}

BOOST_AUTO_TEST_CASE(the_shuffled_order_is_pinned) {  // a resumed run relies on it
  const Order o(1001, 10, true, 1337);
  BOOST_TEST(o.sample(0) == 23u);
  BOOST_TEST(o.sample(99) == 22u);
  BOOST_TEST(o.sample(100) == 59u);
}

/// Samples without content.
class Counted final : public Samples {
 public:
  explicit Counted(std::uint64_t n) : n_(n) {}
  std::uint64_t size() const override { return n_; }
  void read(std::uint64_t, std::span<std::int32_t>, std::span<std::int32_t>,
            std::span<std::int32_t>) const override {}

 private:
  std::uint64_t n_;
};

std::unique_ptr<Samples> mixture(const std::vector<std::uint64_t>& sizes,
                                 const std::vector<double>& weights) {
  std::vector<std::unique_ptr<Samples>> sources;
  for (const std::uint64_t n : sizes) sources.push_back(std::make_unique<Counted>(n));
  return joined_samples(std::move(sources), weights);
}

// Compared with counting: the order is a function of the position, so a resumed run continues anywhere.
BOOST_AUTO_TEST_CASE(mixed_sources_keep_their_shares_and_are_read_completely_before_they_repeat) {
  const std::vector<std::uint64_t> sizes = {7, 100, 31};
  for (const std::vector<double>& weights : {std::vector<double>{3, 1, 1}, {0.2, 0.3, 0.5}, {1, 1e-3, 1e3}})
    for (const bool shuffled : {false, true}) {
      const auto samples = mixture(sizes, weights);
      const Order order = Order::of(*samples, shuffled, 1337);
      BOOST_TEST(order.samples() == 138u);
      std::vector<std::uint64_t> read(3);
      std::vector<std::set<std::uint64_t>> seen(3);
      const double sum = weights[0] + weights[1] + weights[2];
      for (std::uint64_t p = 0; p < 5000; ++p) {
        const std::uint64_t sample = order.sample(p);
        const std::size_t source = sample < 7 ? 0 : sample < 107 ? 1 : 2;
        BOOST_REQUIRE(sample < 138u);
        BOOST_REQUIRE(seen[source].insert(sample).second);
        if (seen[source].size() == sizes[source]) seen[source].clear();
        ++read[source];
        for (std::size_t i = 0; i < 3; ++i)  // never more than the number of sources off
          BOOST_REQUIRE(
              std::abs(static_cast<double>(read[i]) - static_cast<double>(p + 1) * weights[i] / sum) < 3.0);
      }
    }
}

BOOST_AUTO_TEST_CASE(sources_without_weights_are_one_order) {
  const auto samples = mixture({10, 5}, {});
  BOOST_TEST(samples->parts().empty());
  const Order order = Order::of(*samples, true, 3), plain = Order::of_samples(15, true, 3);
  for (std::uint64_t p = 0; p < 40; ++p) BOOST_TEST(order.sample(p) == plain.sample(p));
}

BOOST_AUTO_TEST_SUITE_END()
