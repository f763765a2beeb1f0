// Computes log probabilities of tokens with a model. Several texts share each forward pass, and the texts of
// a job share the cached keys and values of their common prefix. Which texts: evaluation_data.hpp.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/plugin/plugin.hpp"

namespace trainhost::evaluation {

/// Token ids, and a flag for each id whose log p(id | all ids before it) is computed. At least one flag is
/// set. scored[0] is 0, because no id precedes the first one.
struct ScoredText {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> scored;
};

/// Texts that are scored one after the other in one sequence of the decoder. The prefix that a text shares
/// with the previous one is not computed again.
struct Job {
  std::size_t entry = 0;  // chosen by the caller: index of the document or question
  std::vector<ScoredText> texts;
};

/// The decoder of a model and the sizes with which it was created. Decoder and logits outlive the scorer.
struct ScorerModel {
  plugin::Decoder& decoder;
  std::uint64_t vocab = 0;
  std::uint32_t context = 0;    // positions of a sequence; a text has at most context + 1 ids
  std::uint32_t rows = 1;       // most rows of a forward pass
  std::uint32_t sequences = 1;  // jobs that are computed at the same time
  std::span<float> logits;      // [rows, vocab]
  std::uint32_t threads = 1;    // threads that convert logits to log probabilities
};

/// ln softmax(logits)[target], summed in double. Not finite if the logits are not.
double log_probability(std::span<const float> logits, std::int32_t target);

class TokenScorer {
 public:
  explicit TokenScorer(const ScorerModel& model);

  /// log_probabilities: one per scored id of text `text` of jobs[job].
  using Done =
      std::function<void(std::size_t job, std::size_t text, std::span<const double> log_probabilities)>;
  /// Scores all texts of all jobs. Calls `done` once per text. Texts of a job are reported in their order,
  /// jobs in any order. After each pass calls `progress`, unless it is empty, with the ids of all finished
  /// texts.
  void run(std::span<const Job> jobs, const Done& done,
           const std::function<void(std::uint64_t ids)>& progress);

  /// Number of computed rows, without those of shared prefixes.
  std::uint64_t computed_rows() const { return computed_rows_; }

 private:
  struct Slot;
  void begin_text(Slot& slot);
  void compute_log_probabilities(std::span<const std::int32_t> targets, std::vector<double>& out) const;

  ScorerModel m_;
  std::uint64_t computed_rows_ = 0;
};

}  // namespace trainhost::evaluation
