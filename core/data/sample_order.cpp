// The order of samples: sequential, or a new permutation every epoch without a table. A pure function of seed
// and position, so a resumed run continues the order without saved state.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/dataset.hpp"
#include "core/data/grammar.hpp"

namespace trainhost::data {
namespace {

// A permutation of 0..2^(2*half_bits)-1: a Feistel network, whose rounds are bijections for any mixing
// function.
std::uint64_t feistel(std::uint64_t x, unsigned half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  assert(half_bits > 0 && half_bits < 32 && x >> half_bits <= mask);
  std::uint64_t left = x >> half_bits, right = x & mask;
  for (std::uint64_t round = 1; round <= 6; ++round) {
    const std::uint64_t mixed = KeyedRandom::mix(right + key * (2 * round + 1)) & mask;
    const std::uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

// A permutation of 0..n-1 by cycle walking: values outside the range are permuted again. The network's domain
// is the next power of four, so fewer than four steps are needed on average. It is at least 256 (256/n steps
// for small n), because smaller networks have too few distinct rounds to shuffle evenly.
std::uint64_t permuted(std::uint64_t x, std::uint64_t n, std::uint64_t key) {
  assert(x < n);
  if (n == 1) return 0;
  const unsigned half_bits = std::max(4u, (static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2);
  // Ends: repeated application of a permutation returns to x, which is in range.
  do x = feistel(x, half_bits, key);
  while (x >= n);
  return x;
}

}  // namespace

Order::Order(std::uint64_t tokens, std::uint32_t seq_len, bool shuffled, std::uint64_t seed)
    : shuffled_(shuffled), seed_(seed) {
  if (seq_len == 0) throw usage_error("data.seq_len is 0; expected at least 1");
  // The last token is only a target, never an input; hence tokens - 1.
  if (tokens > 0) samples_ = (tokens - 1) / seq_len;
  if (samples_ == 0)
    throw usage_error("a text of " + format_count(tokens) +
                      " tokens is too short: a sample of data.seq_len = " + format_count(seq_len) +
                      " needs " + format_count(std::uint64_t{seq_len} + 1));
}

Order Order::of_samples(std::uint64_t samples, bool shuffled, std::uint64_t seed) {
  assert(samples > 0);
  Order order(shuffled, seed);
  order.samples_ = samples;
  return order;
}

Order Order::of(const Samples& samples, bool shuffled, std::uint64_t seed) {
  Order order = of_samples(samples.size(), shuffled, seed);
  double left = 0;  // weight of this source and of those behind it
  for (const MixturePart& p : samples.parts()) left += p.weight;
  std::uint64_t first = 0;
  for (const MixturePart& p : samples.parts()) {
    order.firsts_.push_back(first);
    // At least 1, so that every source occurs; the last source takes what is left.
    order.shares_.push_back(static_cast<std::uint64_t>(std::max(1.0, std::round(p.weight / left * 0x1p32))));
    order.orders_.push_back(
        of_samples(p.samples, shuffled, KeyedRandom::mix(seed ^ KeyedRandom::mix(order.orders_.size() + 1))));
    left -= p.weight, first += p.samples;
  }
  return order;
}

// A mixture divides the positions by source: of the first n that reach source i, floor(n * share) are its
// own, as evenly spread as whole numbers permit, and the others go to the next source. So the place of a
// position inside its source is computed, not counted.
std::uint64_t Order::sample(std::uint64_t position) const {
  for (std::size_t i = 0; i < orders_.size(); ++i) {
    const auto own = [&](std::uint64_t n) {
      return static_cast<std::uint64_t>(static_cast<unsigned __int128>(n) * shares_[i] >> 32);
    };
    const std::uint64_t before = own(position);
    if (i + 1 == orders_.size()) return firsts_[i] + orders_[i].sample(position);
    if (own(position + 1) > before) return firsts_[i] + orders_[i].sample(before);
    position -= before;
  }
  const std::uint64_t at = position % samples_;
  if (!shuffled_) return at;
  // The constant separates this use of the seed from the streams of the built-in text.
  const std::uint64_t epoch = position / samples_;
  return permuted(at, samples_,
                  KeyedRandom::mix(KeyedRandom::mix(seed_) ^ KeyedRandom::mix(epoch + 0x6f72646572ULL)));
}

}  // namespace trainhost::data
