// core/training: samples of a step, sampling of tokens, the host's own buffers, FLOPs per token.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/training/batches.hpp"
#include "core/training/sample_tokens.hpp"
#include "core/training/spike_detector.hpp"
#include "core/training/throughput.hpp"

using namespace trainhost;

namespace {

/// Tokens 0, 1, 2, ... so that a sample shows its position.
class CountingTokens : public data::Tokens {
 public:
  explicit CountingTokens(std::uint64_t n) : n_(n) {}
  std::uint64_t size() const override { return n_; }
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    BOOST_REQUIRE(first + out.size() <= n_);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int32_t>(first + i);
  }
  std::uint64_t held_bytes() const override { return 0; }

 private:
  std::uint64_t n_;
};

runfile::RunConfig config_of(std::uint32_t micro, std::uint32_t accumulate, std::uint32_t seq,
                             runfile::Order order) {
  runfile::RunConfig c;
  c.run.micro_batch = micro;
  c.run.accumulate = accumulate;
  c.run.seq_len = seq;
  c.data.order = order;
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(training_suite)

BOOST_AUTO_TEST_CASE(sequential_steps_take_the_samples_in_order_and_wrap) {
  CountingTokens tokens(10 * 4 + 1);
  const auto samples = data::stream_samples(tokens, 4);
  training::Batches b(*samples, config_of(3, 1, 4, runfile::Order::kSequential));
  std::vector<std::int32_t> x(12), y(12);
  b.fill(0, x, y);
  for (int i = 0; i < 12; ++i) {
    BOOST_TEST(x[i] == i);
    BOOST_TEST(y[i] == i + 1);
  }
  b.fill(3, x, y);  // samples 9, 0, 1
  BOOST_TEST(x[0] == 36);
  BOOST_TEST(x[4] == 0);
}

BOOST_AUTO_TEST_CASE(micro_batch_and_accumulation_of_equal_product_take_the_same_tokens) {
  CountingTokens tokens(100 * 8 + 1);
  const auto samples = data::stream_samples(tokens, 8);
  std::vector<std::int32_t> x(48), y(48), u(48), w(48);
  training::Batches(*samples, config_of(6, 1, 8, runfile::Order::kShuffled)).fill(5, x, y);
  training::Batches(*samples, config_of(2, 3, 8, runfile::Order::kShuffled)).fill(5, u, w);
  BOOST_TEST(x == u);
  BOOST_TEST(y == w);
}

BOOST_AUTO_TEST_CASE(a_text_too_short_for_one_sample_is_an_error_with_its_length) {
  CountingTokens tokens(8);
  const auto samples = data::stream_samples(tokens, 8);
  BOOST_CHECK_EXCEPTION(
      training::Batches(*samples, config_of(1, 1, 8, runfile::Order::kShuffled)), Error, [](const Error& e) {
        return e.code() == Exit::kUsage && std::string(e.what()).find("8") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(evaluation_takes_every_complete_sample_once) {
  CountingTokens tokens(7 * 4 + 3);
  const auto samples = data::stream_samples(tokens, 4);
  training::EvalBatches b(*samples, 4, 3);
  BOOST_TEST(samples->size() == 7u);
  std::vector<std::int32_t> x(12), y(12);
  std::uint64_t seen = 0, first = 0;
  while (std::uint32_t n = b.fill(first, x, y)) {
    BOOST_TEST(x[0] == static_cast<std::int32_t>(first * 4));
    first += n;
    seen += n;
  }
  BOOST_TEST(seen == 7u);
}

BOOST_AUTO_TEST_CASE(temperature_zero_takes_the_most_likely_token) {
  std::vector<float> logits = {0.f, 3.f, 2.9f};
  training::SampleOptions o;
  o.temperature = 0;
  BOOST_TEST(training::sample_token(logits, o, 0.99) == 1);
}

BOOST_AUTO_TEST_CASE(sampled_tokens_follow_the_probabilities) {
  training::SampleOptions o;
  o.temperature = 1;
  std::map<int, int> count;
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
    ++count[training::sample_token(logits, o, (i + 0.5) / 1000)];
  }
  BOOST_TEST(std::abs(count[0] - 500) <= 1);
  BOOST_TEST(std::abs(count[1] - 300) <= 1);
  o.top_k = 2;
  count.clear();
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
    ++count[training::sample_token(logits, o, (i + 0.5) / 1000)];
  }
  BOOST_TEST(count[2] == 0);
  BOOST_TEST(std::abs(count[0] - 625) <= 1);
  o.top_k = 0;
  o.top_p = 0.4;
  std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  BOOST_TEST(training::sample_token(logits, o, 0.999) == 0);
}

BOOST_AUTO_TEST_CASE(host_buffers_sum_into_the_host_tier) {
  ModelSpec m;
  m.vocab = 256;
  m.hidden = 8;
  m.intermediate = 16;
  m.heads = m.kv_heads = 1;
  m.head_dim = 8;
  RunSpec r;
  r.micro_batch = 2;
  r.accumulate = 3;
  r.seq_len = 5;
  planning::HostBuffers b = planning::plan_host_buffers(m, r, 100);
  BOOST_TEST(b.batch_bytes == 2u * 3 * 5 * 8);
  BOOST_TEST(b.staging_bytes == 256u * 8 * 4);
  MemoryReport report;
  report.tiers = {{Tier::kHost, 1000, kBackward}};
  planning::add_host_buffers(report, b);
  BOOST_TEST(report.total_bytes() == 1000 + b.total());
  b.profile_bytes = 640;
  MemoryReport profiled;
  profiled.tiers = {{Tier::kHost, 1000, kBackward}};
  planning::add_host_buffers(profiled, b);
  BOOST_TEST(profiled.total_bytes() == report.total_bytes() + 640);
  BOOST_TEST(profiled.entries.back().name == "host.profile");
}

BOOST_AUTO_TEST_CASE(spikes_are_found_and_noise_is_not_a_spike) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0, 0.05);
  training::SpikeDetector detector(128, 6);
  std::uint64_t alarms = 0, found = 0;
  constexpr int kSteps = 1'000'000, kEvery = 1000;
  for (int i = 0; i < kSteps; ++i) {
    const double loss = 2 + noise(random);
    alarms += detector.is_spike(loss);
    if (i % kEvery == kEvery - 1) found += detector.is_spike(2 + 8 * 0.05);
    detector.add(loss);
  }
  BOOST_TEST(alarms <= 1u);
  BOOST_TEST(found >= 990u);
  // Through the text of a checkpoint.
  training::SpikeDetector other(128, 6);
  other.restore(detector.text());
  BOOST_TEST(other.deviations(2.3) == detector.deviations(2.3));
  for (const char* damaged : {"1 2 x", "nan", "1  2", " 1"}) {
    other.restore(damaged);
    BOOST_TEST(other.text() == "", damaged);
  }
}

BOOST_AUTO_TEST_CASE(flops_per_token_match_a_count_by_hand) {
  ModelSpec m;
  m.vocab = 10;
  m.hidden = 4;
  m.layers = 2;
  m.heads = 2;
  m.kv_heads = 1;
  m.head_dim = 2;
  m.intermediate = 6;
  double matrix = 2 * (4 * 8 + 4 * 4 + 3 * 4 * 6) + 10 * 4, attention = 2 * 16 * 4;
  BOOST_TEST(training::train_flops_per_token(m, 16) == 6 * matrix + 6 * attention);
  BOOST_TEST(training::train_flops_per_token(m, 16, true) == 4 * matrix + 6 * attention);
}

BOOST_AUTO_TEST_CASE(host_info_returns_plausible_values) {
  BOOST_TEST(process_peak_bytes() > 1000000u);
  BOOST_TEST(free_host_bytes().value_or(0) > 0u);
  BOOST_TEST(cpu_count() >= 1u);
  const ResidentMeter meter;
  BOOST_TEST(meter.bytes() > 1000000u);
  const std::uint64_t resident = meter.bytes();  // read first, because reading may touch a page
  BOOST_TEST(resident <=
             process_peak_bytes() + (1u << 20));  // the kernel updates its counters in batches per thread
}

BOOST_AUTO_TEST_SUITE_END()
