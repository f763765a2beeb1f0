// Scoring without a model: a decoder whose logits follow from the ids before them shows that every log
// probability has its own context, whatever is computed together, and what is not computed again.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "core/evaluation/token_scorer.hpp"

namespace trainhost::evaluation {
namespace {

constexpr std::uint64_t kVocab = 7;

/// The logits after a text: different for different texts.
std::vector<float> logits_after(std::span<const std::int32_t> ids) {
  std::uint32_t hash = 17;
  for (const std::int32_t id : ids) hash = hash * 31 + static_cast<std::uint32_t>(id) + 1;
  std::vector<float> all;
  for (std::uint64_t v = 0; v < kVocab; ++v) {
    hash = hash * 1664525 + 1013904223;
    all.push_back(static_cast<float>(hash >> 16) / 8192.0f);
  }
  return all;
}

/// Refuses rows that a decoder refuses.
struct FakeDecoder final : plugin::Decoder {
  FakeDecoder(std::uint32_t sequences, std::uint32_t rows) : cache(sequences), most_rows(rows) {}
  void load(const plugin::TensorPiece&) override {}
  void forward(std::span<const plugin::DecodeRow> rows, std::span<float> logits) override {
    BOOST_REQUIRE(rows.size() <= most_rows);
    ++passes;
    std::map<std::uint32_t, std::size_t> last_row;
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const plugin::DecodeRow& r = rows[i];
      if (last_row.contains(r.sequence)) BOOST_REQUIRE(last_row[r.sequence] + 1 == i);
      last_row[r.sequence] = i;
      std::vector<std::int32_t>& c = cache.at(r.sequence);
      BOOST_REQUIRE(r.position <= c.size());
      c.resize(r.position);
      c.push_back(r.token);
      if (!r.wants_logits) continue;
      const std::vector<float> values = logits_after(c);
      std::copy(values.begin(), values.end(), logits.subspan(wanted++ * kVocab).begin());
    }
  }
  std::vector<std::vector<std::int32_t>> cache;
  std::size_t most_rows, passes = 0;
};

double reference(std::span<const std::int32_t> before, std::int32_t target) {
  const std::vector<float> logits = logits_after(before);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return static_cast<double>(logits[static_cast<std::size_t>(target)]) - std::log(sum);
}

std::vector<Job> random_jobs(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  std::vector<Job> jobs(1 + below(9));
  for (Job& job : jobs) {
    std::vector<std::int32_t> beginning(1 + below(12));
    for (std::int32_t& id : beginning) id = static_cast<std::int32_t>(below(kVocab));
    job.texts.resize(1 + below(4));
    for (ScoredText& t : job.texts) {
      t.ids = beginning;
      if (below(4) == 0) t.ids.resize(1 + below(t.ids.size()));
      for (std::size_t n = 1 + below(6); n > 0; --n)
        t.ids.push_back(static_cast<std::int32_t>(below(kVocab)));
      t.scored.assign(t.ids.size(), 0);
      t.scored[1 + below(t.ids.size() - 1)] = 1;
      for (std::size_t i = 1; i < t.scored.size(); ++i) t.scored[i] |= below(2);
    }
  }
  return jobs;
}

BOOST_AUTO_TEST_SUITE(token_scorer)

BOOST_AUTO_TEST_CASE(every_scored_token_has_its_own_context_however_texts_are_combined) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::vector<Job> jobs = random_jobs(seed);
    const std::uint32_t sequences = 1 + seed % 5, rows = 1 + seed / 5 % 9;
    FakeDecoder decoder(sequences, rows);
    std::vector<float> logits(rows * kVocab);
    TokenScorer scorer(
        {decoder, kVocab, 64, rows, sequences, logits, 1 + static_cast<std::uint32_t>(seed % 3)});
    std::vector<std::size_t> texts_done(jobs.size());
    std::uint64_t reported = 0, all_ids = 0;
    scorer.run(
        jobs,
        [&](std::size_t job, std::size_t text, std::span<const double> values) {
          BOOST_TEST(texts_done.at(job)++ == text);
          const ScoredText& t = jobs[job].texts[text];
          std::size_t n = 0;
          for (std::size_t i = 0; i < t.ids.size(); ++i) {
            if (!t.scored[i]) continue;
            BOOST_REQUIRE(n < values.size());
            const double expected = reference(std::span(t.ids).first(i), t.ids[i]);
            BOOST_TEST(std::abs(values[n] - expected) < 1e-5, seed << ": " << values[n] << " " << expected);
            ++n;
          }
          BOOST_TEST(n == values.size());
        },
        [&](std::uint64_t ids) { reported = ids; });
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      BOOST_TEST(texts_done[i] == jobs[i].texts.size());
      for (const ScoredText& t : jobs[i].texts) all_ids += t.ids.size();
    }
    BOOST_TEST(reported == all_ids);
  }
}

BOOST_AUTO_TEST_CASE(a_common_beginning_is_computed_once_and_short_texts_share_passes) {
  const std::vector<std::int32_t> question = {1, 2, 3, 4, 5, 6};
  std::vector<Job> jobs(3);
  for (Job& job : jobs)
    for (std::int32_t choice = 0; choice < 4; ++choice) {
      ScoredText t{question, std::vector<std::uint8_t>(question.size() + 2, 0)};
      t.ids.insert(t.ids.end(), {choice, 0});
      t.scored[6] = t.scored[7] = 1;
      job.texts.push_back(t);
    }
  FakeDecoder decoder(3, 64);
  std::vector<float> logits(64 * kVocab);
  TokenScorer scorer({decoder, kVocab, 64, 64, 3, logits, 1});
  scorer.run(jobs, [](std::size_t, std::size_t, std::span<const double>) {}, {});
  // 7 rows of the first choice; of each other one the last row of the question, for its logits, and its own.
  BOOST_TEST(scorer.computed_rows() == 3u * (7 + 3 * 2));
  BOOST_TEST(decoder.passes == 4u);
}

BOOST_AUTO_TEST_CASE(log_probabilities_of_large_logits_do_not_overflow) {
  const std::vector<float> logits = {1000.0f, 999.0f, -1000.0f};
  const double sum = 1 + std::exp(-1.0);
  BOOST_TEST(std::abs(log_probability(logits, 0) + std::log(sum)) < 1e-6);
  BOOST_TEST(std::abs(log_probability(logits, 2) + 2000 + std::log(sum)) < 1e-6);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    BOOST_TEST(!std::isfinite(log_probability(std::vector<float>{1.0f, bad, 2.0f}, 0)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::evaluation
