// Loss, accuracy, standard errors and differences, compared with their definitions on small numbers and with
// simulations.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numbers>
#include <random>

#include "core/base/error.hpp"
#include "core/evaluation/scores.hpp"

namespace trainhost::evaluation {
namespace {

EvaluationData documents(const std::vector<std::uint64_t>& tokens) {
  EvaluationData d;
  d.kind = FileKind::kRecords;
  for (const std::uint64_t n : tokens) d.documents.push_back({d.documents.size(), 0, n, 2 * n});
  return d;
}

EvaluationData questions(const std::vector<std::size_t>& answers) {
  EvaluationData d;
  d.kind = FileKind::kQuestions;
  for (const std::size_t a : answers) d.questions.push_back({d.questions.size(), 0, a, {1, 2}, {2, 2}});
  return d;
}

Scores nats(std::vector<double> values) { return {std::move(values), {}}; }

bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

BOOST_AUTO_TEST_SUITE(evaluation_scores)

BOOST_AUTO_TEST_CASE(loss_is_per_token_and_perplexity_and_bits_follow_from_it) {
  const LossMetrics m = loss_metrics(documents({10, 30}), nats({20, 100}));
  BOOST_TEST(scored_tokens(documents({10, 30})) == 40u);
  BOOST_TEST(close(m.loss.value, 3));
  BOOST_TEST(close(m.perplexity.value, std::exp(3.0)));
  BOOST_TEST(close(m.bits_per_byte.value, 120 / std::numbers::ln2 / 80));
  // Residuals: 20 - 3 * 10 = -10 and 100 - 3 * 30 = 10.
  BOOST_TEST(close(m.loss.error.value(), std::sqrt(2.0 * 200) / 40));
  BOOST_TEST(close(m.perplexity.error.value(), std::sqrt(400.0) / 40 * std::exp(3.0)));
  BOOST_TEST(!loss_metrics(documents({10}), nats({20})).loss.error.has_value());
  // Of documents with equal numbers of tokens it is the standard error of a mean.
  const LossMetrics equal = loss_metrics(documents({2, 2, 2}), nats({2, 4, 9}));
  BOOST_TEST(close(equal.loss.error.value(), std::sqrt((1.5 * 1.5 + 0.5 * 0.5 + 2 * 2) / 2 / 3)));
}

BOOST_AUTO_TEST_CASE(the_error_of_the_loss_is_its_spread_over_samples_of_documents) {
  std::mt19937_64 random(5);
  std::uniform_int_distribution<std::uint64_t> length(1, 60);
  std::normal_distribution<double> level(2, 0.5);
  double sum = 0, squares = 0, errors = 0;
  constexpr int kSamples = 2000;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<std::uint64_t> tokens;
    std::vector<double> values;
    for (int i = 0; i < 100; ++i) {
      tokens.push_back(length(random));
      values.push_back(level(random) * static_cast<double>(tokens.back()));
    }
    const LossMetrics m = loss_metrics(documents(tokens), nats(values));
    sum += m.loss.value, squares += m.loss.value * m.loss.value, errors += *m.loss.error;
  }
  const double mean = sum / kSamples, spread = std::sqrt(squares / kSamples - mean * mean);
  BOOST_TEST(std::abs(errors / kSamples / spread - 1) < 0.05, errors / kSamples << " " << spread);
}

BOOST_AUTO_TEST_CASE(differences_are_paired) {
  const EvaluationData d = documents({10, 10, 10});
  const LossDifferences x = loss_differences(d, nats({10, 30, 50}), d, nats({9, 29, 52}));
  BOOST_TEST(close(x.loss.change.value, 0));
  BOOST_TEST(x.loss.better == 2u);
  BOOST_TEST(x.loss.worse == 1u);
  // Of the differences -0.1, -0.1, 0.2 per token.
  BOOST_TEST(close(x.loss.change.error.value(), std::sqrt(0.06 / 2 / 3)));
  // A constant difference has no error.
  const LossDifferences constant = loss_differences(d, nats({10, 30, 50}), d, nats({8, 28, 48}));
  BOOST_TEST(close(constant.loss.change.value, -0.2));
  BOOST_TEST(std::abs(constant.loss.change.error.value()) < 1e-12);
  BOOST_TEST(constant.bits_per_byte.change.value < 0);
  BOOST_TEST(constant.perplexity.change.error.value() > 0);  // exp(loss) differs by a factor
  // Windows of a text with other ids are other windows.
  EvaluationData text = documents({10, 10, 10}), other = documents({15, 15});
  text.kind = other.kind = FileKind::kText;
  other.ids_hash = 1;
  const LossDifferences unpaired = loss_differences(text, nats({10, 30, 50}), other, nats({10, 20}));
  BOOST_TEST(!unpaired.loss.paired);
  BOOST_TEST(!unpaired.loss.change.error.has_value());
  BOOST_TEST(close(unpaired.loss.change.value, -2));
  BOOST_TEST(unpaired.loss.better + unpaired.loss.worse == 0u);
}

BOOST_AUTO_TEST_CASE(choices_are_compared_as_they_are_per_character_and_per_byte) {
  const EvaluationData d = questions({0, 1, 1, 1});
  Scores s;
  s.log_probabilities = {{-2, -3}, {-2, -3}, {-2, -2}, {-3, -5}};
  const Question& q = d.questions[0];
  BOOST_TEST(chosen(q, {-2, -3}, Normalisation::kNone) == 0u);
  BOOST_TEST(chosen(q, {-2, -3}, Normalisation::kCharacters) == 1u);  // -2 and -1.5
  BOOST_TEST(chosen(q, {-2, -3}, Normalisation::kBytes) == 0u);
  BOOST_TEST(chosen(q, {-2, -2}, Normalisation::kNone) == 0u);  // the first of equal ones
  const Metric plain = accuracy(d, s, Normalisation::kNone);
  BOOST_TEST(close(plain.value, 0.25));
  BOOST_TEST(close(plain.error.value(), std::sqrt((0.75 * 0.75 + 3 * 0.25 * 0.25) / 3 / 4)));
  BOOST_TEST(close(accuracy(d, s, Normalisation::kCharacters).value, 0.75));

  Scores better = s;
  better.log_probabilities = {{-4, -3}, {-4, -3}, {-4, -2}, {-3, -5}};
  const Difference x = accuracy_difference(d, s, d, better, Normalisation::kNone);
  BOOST_TEST(close(x.change.value, 0.25));  // one became wrong, two right
  BOOST_TEST(x.better == 2u);
  BOOST_TEST(x.worse == 1u);
  // Of the differences -1, 1, 1, 0.
  BOOST_TEST(close(x.change.error.value(), std::sqrt((1.25 * 1.25 + 2 * 0.75 * 0.75 + 0.25 * 0.25) / 3 / 4)));
}

BOOST_AUTO_TEST_CASE(only_common_records_are_compared) {
  EvaluationData a = documents({1, 2, 3}), b = documents({1, 2, 3, 4});
  b.documents.erase(b.documents.begin());  // b has the records 1, 2, 3 and a has 0, 1, 2
  Scores sa = nats({1, 2, 3}), sb = nats({20, 30, 40});
  keep_common(a, sa, b, sb);
  BOOST_TEST((sa.nats == std::vector<double>{2, 3}));
  BOOST_TEST((sb.nats == std::vector<double>{20, 30}));
  BOOST_TEST(a.documents.size() == 2u);
  BOOST_TEST(b.documents[1].record == 2u);
  EvaluationData qa = questions({0, 1, 0}), qb = questions({0, 1, 0});
  qb.questions.erase(qb.questions.begin() + 1);
  Scores la, lb;
  la.log_probabilities = {{-1, -2}, {-3, -4}, {-5, -6}}, lb.log_probabilities = {{-1, -2}, {-5, -6}};
  keep_common(qa, la, qb, lb);
  BOOST_TEST((la.log_probabilities == lb.log_probabilities));
  BOOST_REQUIRE(qa.questions.size() == 2u);
  BOOST_TEST(qa.questions[1].record == 2u);
  for (const Question& q : qa.questions) BOOST_TEST(q.characters.size() == 2u);
  EvaluationData c = documents({1});
  c.documents[0].record = 9;
  Scores sc = nats({1});
  BOOST_CHECK_THROW(keep_common(a, sa, c, sc), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::evaluation
