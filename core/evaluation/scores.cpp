// See scores.hpp.
#include "core/evaluation/scores.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "core/base/error.hpp"
#include "core/data/data_files.hpp"

namespace trainhost::evaluation {
namespace {

double total_nats(const Scores& s) { return std::accumulate(s.nats.begin(), s.nats.end(), 0.0); }

std::uint64_t total_bytes(const EvaluationData& d) {
  std::uint64_t all = d.text_bytes;
  for (const Document& document : d.documents) all += document.bytes;
  return all;
}

/// Contribution of each document to the error of the loss: (N_d - L T_d) / T.
std::vector<double> residuals(const EvaluationData& d, const Scores& s) {
  const auto tokens = static_cast<double>(scored_tokens(d));
  const double loss = total_nats(s) / tokens;
  std::vector<double> all;
  for (std::size_t i = 0; i < d.documents.size(); ++i)
    all.push_back((s.nats[i] - loss * static_cast<double>(d.documents[i].tokens)) / tokens);
  return all;
}

/// sqrt(n / (n - 1) * sum of squares); nullopt for fewer than two residuals.
std::optional<double> error_of_residuals(const std::vector<double>& residuals) {
  if (residuals.size() < 2) return std::nullopt;
  double squares = 0;
  for (const double r : residuals) squares += r * r;
  const auto n = static_cast<double>(residuals.size());
  return std::sqrt(n / (n - 1) * squares);
}

Metric mean_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  std::vector<double> parts;
  for (const double v : values) parts.push_back((v - mean) / n);
  return {mean, error_of_residuals(parts)};
}

std::vector<double> correctness(const EvaluationData& d, const Scores& s, Normalisation n) {
  std::vector<double> all;
  for (std::size_t i = 0; i < d.questions.size(); ++i)
    all.push_back(chosen(d.questions[i], s.log_probabilities[i], n) == d.questions[i].answer);
  return all;
}

/// Derivative of bits per byte with respect to the loss.
double bits_per_byte_per_nat(const EvaluationData& d) {
  return static_cast<double>(scored_tokens(d)) / (static_cast<double>(total_bytes(d)) * std::numbers::ln2);
}

template <class T>
void keep_records(const std::set<std::uint64_t>& records, std::vector<T>& entries, Scores& s) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!records.contains(entries[i].record)) continue;
    if (kept != i) {  // moving a vector to itself would empty it
      entries[kept] = std::move(entries[i]);
      if (!s.nats.empty()) s.nats[kept] = s.nats[i];
      if (!s.log_probabilities.empty()) s.log_probabilities[kept] = std::move(s.log_probabilities[i]);
    }
    ++kept;
  }
  entries.resize(kept);
  if (!s.nats.empty()) s.nats.resize(kept);
  if (!s.log_probabilities.empty()) s.log_probabilities.resize(kept);
}

std::set<std::uint64_t> records_of(const EvaluationData& d) {
  std::set<std::uint64_t> all;
  for (const Document& e : d.documents) all.insert(e.record);
  for (const Question& e : d.questions) all.insert(e.record);
  return all;
}

}  // namespace

std::uint64_t scored_tokens(const EvaluationData& d) {
  std::uint64_t all = 0;
  for (const Document& document : d.documents) all += document.tokens;
  return all;
}

Scores score(const EvaluationData& d, TokenScorer& scorer, bool keep,
             const std::function<void(std::uint64_t)>& progress) {
  const bool questions = d.kind == FileKind::kQuestions;
  Scores s;
  s.nats.resize(d.documents.size());
  s.log_probabilities.resize(questions ? d.questions.size() : keep ? d.documents.size() : 0);
  // Jobs end in any order. Their sums are added in the order of the jobs, so that the batch size does not
  // change the result.
  std::vector<double> sums(d.jobs.size());
  std::vector<std::vector<double>> kept(d.jobs.size());
  scorer.run(
      d.jobs,
      [&](std::size_t job, std::size_t, std::span<const double> values) {
        const std::size_t entry = d.jobs[job].entry;
        double sum = 0;
        for (const double v : values) sum += v;
        if (!std::isfinite(sum)) {
          const std::uint32_t line = questions ? d.questions[entry].line : d.documents[entry].line;
          throw run_error("the model computes logits that are not finite", "",
                          Where{d.file.string(), line, 0});
        }
        if (questions) s.log_probabilities[entry].push_back(sum);
        sums[job] = sum;
        if (keep && !questions) kept[job].assign(values.begin(), values.end());
      },
      progress);
  if (questions) return s;
  for (std::size_t job = 0; job < d.jobs.size(); ++job) {
    s.nats[d.jobs[job].entry] -= sums[job];
    if (!keep) continue;
    std::vector<double>& all = s.log_probabilities[d.jobs[job].entry];
    all.insert(all.end(), kept[job].begin(), kept[job].end());
  }
  return s;
}

void keep_common(EvaluationData& a, Scores& scores_a, EvaluationData& b, Scores& scores_b) {
  if (a.kind == FileKind::kText) return;
  const std::set<std::uint64_t> in_a = records_of(a), in_b = records_of(b);
  if (a.kind == FileKind::kRecords)
    keep_records(in_b, a.documents, scores_a), keep_records(in_a, b.documents, scores_b);
  else
    keep_records(in_b, a.questions, scores_a), keep_records(in_a, b.questions, scores_b);
  if (records_of(a).empty())
    throw usage_error("data file " + data::in_quotes(a.file) + " has no record that both models can score");
}

LossMetrics loss_metrics(const EvaluationData& d, const Scores& s) {
  LossMetrics m;
  m.loss = {total_nats(s) / static_cast<double>(scored_tokens(d)), error_of_residuals(residuals(d, s))};
  const auto derived = [&](double value, double per_nat) {
    return Metric{value, m.loss.error ? std::optional(*m.loss.error * per_nat) : std::nullopt};
  };
  m.perplexity = derived(std::exp(m.loss.value), std::exp(m.loss.value));
  m.bits_per_byte = derived(m.loss.value * bits_per_byte_per_nat(d), bits_per_byte_per_nat(d));
  return m;
}

std::size_t chosen(const Question& q, const std::vector<double>& log_likelihoods, Normalisation n) {
  const auto value = [&](std::size_t i) {
    const std::size_t length = n == Normalisation::kNone         ? 1
                               : n == Normalisation::kCharacters ? q.characters[i]
                                                                 : q.bytes[i];
    return log_likelihoods[i] / static_cast<double>(length);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < log_likelihoods.size(); ++i)
    if (value(i) > value(best)) best = i;
  return best;
}

Metric accuracy(const EvaluationData& d, const Scores& s, Normalisation n) {
  return mean_of(correctness(d, s, n));
}

LossDifferences loss_differences(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                                 const Scores& sb) {
  const LossMetrics ma = loss_metrics(a, sa), mb = loss_metrics(b, sb);
  // Windows of a text can be compared only if both models have the same ids.
  const bool paired = a.kind != FileKind::kText || a.ids_hash == b.ids_hash;
  assert(!paired || a.documents.size() == b.documents.size());
  Difference counts;
  counts.paired = paired;
  if (paired)
    for (std::size_t i = 0; i < a.documents.size(); ++i)
      counts.better += sb.nats[i]<sa.nats[i], counts.worse += sb.nats[i]> sa.nats[i];
  const std::vector<double> ra = residuals(a, sa), rb = residuals(b, sb);
  const auto difference = [&](const Metric& x, const Metric& y, double per_nat_x, double per_nat_y) {
    Difference d = counts;
    d.change.value = y.value - x.value;
    std::vector<double> both;
    for (std::size_t i = 0; paired && i < ra.size(); ++i)
      both.push_back(per_nat_y * rb[i] - per_nat_x * ra[i]);
    d.change.error = error_of_residuals(both);
    return d;
  };
  return {difference(ma.loss, mb.loss, 1, 1),
          difference(ma.perplexity, mb.perplexity, ma.perplexity.value, mb.perplexity.value),
          difference(ma.bits_per_byte, mb.bits_per_byte, bits_per_byte_per_nat(a), bits_per_byte_per_nat(b))};
}

Difference accuracy_difference(const EvaluationData& a, const Scores& sa, const EvaluationData& b,
                               const Scores& sb, Normalisation n) {
  const std::vector<double> x = correctness(a, sa, n), y = correctness(b, sb, n);
  assert(x.size() == y.size());
  Difference d;
  std::vector<double> changes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    changes.push_back(y[i] - x[i]);
    d.better += y[i] > x[i], d.worse += y[i] < x[i];
  }
  d.change = mean_of(changes);
  return d;
}

}  // namespace trainhost::evaluation
