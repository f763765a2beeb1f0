// Scores of a model on a file: loss of documents, accuracy on questions, their standard errors, and the
// differences of two models. score() runs the model; the other functions compute metrics from its result.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/evaluation/evaluation_data.hpp"
#include "core/evaluation/token_scorer.hpp"

namespace trainhost::evaluation {

/// The scores of one file. Vectors are indexed like EvaluationData::documents or ::questions.
struct Scores {
  std::vector<double> nats;  // per document: minus the sum of the log probabilities of its scored ids
  /// Per question: the log likelihood of each choice. Per document, if they are kept: the log probability of
  /// each scored id.
  std::vector<std::vector<double>> log_probabilities;
};

/// Number of scored ids of all documents.
std::uint64_t scored_tokens(const EvaluationData& d);

/// `keep`: also return log_probabilities of documents. `progress`: see TokenScorer::run(). Throws run_error
/// with the line of the record for a log probability that is not finite.
Scores score(const EvaluationData& d, TokenScorer& scorer, bool keep,
             const std::function<void(std::uint64_t ids)>& progress);

/// For two evaluations of the same file with different models: removes the records that only one of them
/// scores, so that both contain the same records. Texts are not changed. Throws usage_error if no record is
/// left.
void keep_common(EvaluationData& a, Scores& scores_a, EvaluationData& b, Scores& scores_b);

/// A value and its standard error. A single document or question has no error.
struct Metric {
  double value = 0;
  std::optional<double> error;
};

/// T scored tokens with N nats have the loss L = N / T in nats per token, the perplexity exp(L), and
/// N / (ln 2 * bytes) bits per byte. The D documents are taken as an independent sample, so the error of L is
/// that of a ratio: sqrt(D / (D - 1) * sum over documents d of (N_d - L T_d)^2) / T. The other two errors are
/// this one times the derivative of the metric with respect to L.
struct LossMetrics {
  Metric loss, perplexity, bits_per_byte;
};
LossMetrics loss_metrics(const EvaluationData& d, const Scores& s);

/// Divisor of the log likelihoods before they are compared: none, the characters of the choice (acc_norm of
/// lm-evaluation-harness), or its bytes (acc_bytes).
enum class Normalisation { kNone, kCharacters, kBytes };
/// Index of the choice with the largest value; the first one of equal values.
std::size_t chosen(const Question& q, const std::vector<double>& log_likelihoods, Normalisation n);
/// Fraction of questions whose answer is chosen. Its error is the sample standard deviation divided by the
/// square root of the number of questions.
Metric accuracy(const EvaluationData& d, const Scores& s, Normalisation n);

/// Second model minus first model. The error is that of the differences per document or question. Windows of
/// a text that the two models tokenize differently cannot be paired; then there is no error and no count.
struct Difference {
  Metric change;
  bool paired = true;
  std::uint64_t better = 0, worse = 0;  // documents with a lower or higher loss; questions now right or wrong
};
struct LossDifferences {
  Difference loss, perplexity, bits_per_byte;
};
/// Both evaluations contain the same records: see keep_common().
LossDifferences loss_differences(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                                 const Scores& sb);
Difference accuracy_difference(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                               const Scores& sb, Normalisation n);

}  // namespace trainhost::evaluation
