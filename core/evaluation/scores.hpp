// What a model scores on a file: loss of documents, accuracy on questions, their standard errors, and the
// difference between two models. Pure numbers: no model, no output.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/evaluation/evaluation_data.hpp"
#include "core/evaluation/token_scorer.hpp"

namespace trainhost::evaluation {

/// The scores of one file, by entry of EvaluationData: documents or questions.
struct Scores {
  std::vector<double> nats;  // of documents: minus the sum of the log probabilities of their scored ids
  /// Of questions: the log likelihood of each choice. Of documents, where they are kept: the log probability
  /// of each scored id.
  std::vector<std::vector<double>> log_probabilities;
};

/// Throws run_error for a log probability that is not finite, with the line of the record. keep: documents
/// have log_probabilities.
Scores score(const EvaluationData& d, TokenScorer& scorer, bool keep,
             const std::function<void(std::uint64_t ids)>& progress);

/// Removes the records that the other one does not have, so that differences are between the same records.
/// For two evaluations of one file with different models; texts are not changed. Throws usage_error if there
/// is no common one.
void keep_common(EvaluationData& a, Scores& scores_a, EvaluationData& b, Scores& scores_b);

/// A value with its standard error; none for a single document.
struct Metric {
  double value = 0;
  std::optional<double> error;
};

/// Over T scored tokens with N nats: the loss L = N / T in nats per token, exp(L), and N / (ln 2 * bytes).
/// Errors: documents are drawn independently, so that of L is that of a ratio,
/// sqrt(D / (D - 1) * sum over documents of (N_d - L T_d)^2) / T; those of the others follow from it.
struct LossMetrics {
  std::uint64_t tokens = 0;
  Metric loss, perplexity, bits_per_byte;
};
LossMetrics loss_metrics(const EvaluationData& d, const Scores& s);

/// How the choice with the largest value is found: by log likelihood, per character of the choice (acc_norm
/// of lm-evaluation-harness), or per byte (acc_bytes).
enum class Normalisation { kNone, kCharacters, kBytes };
/// Index of the chosen one; of equal values the first.
std::size_t chosen(const Question& q, const std::vector<double>& log_likelihoods, Normalisation n);
/// Share of questions whose answer is chosen. Error: sample standard deviation over the square root of their
/// number.
Metric accuracy(const EvaluationData& d, const Scores& s, Normalisation n);

/// Second minus first. better, worse: documents with a lower, a higher loss, questions that became right,
/// wrong. The error is that of paired differences. Windows of a text whose tokens differ are not paired: no
/// error and no counts.
struct Difference {
  Metric change;
  bool paired = true;
  std::uint64_t better = 0, worse = 0;
};
struct LossDifferences {
  Difference loss, perplexity, bits_per_byte;
};
/// Both evaluations have the same records, see keep_common().
LossDifferences loss_differences(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                                 const Scores& sb);
Difference accuracy_difference(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                               const Scores& sb, Normalisation n);

}  // namespace trainhost::evaluation
