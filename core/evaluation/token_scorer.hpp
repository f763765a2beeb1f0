// Log probabilities of tokens under a model. Several texts share each forward pass, and texts of one job
// share the keys and values of their common beginning. What the texts are: evaluation_data.hpp.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/plugin/plugin.hpp"

namespace trainhost::evaluation {

/// Token ids, and which of them are scored: each scored one gets log p(id | all ids before it).
struct ScoredText {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t>
      scored;  // one per id, at least one is set; [0] is 0, because nothing is before it
};

/// Texts that are scored one after the other in one sequence. What a text has in common with the one before
/// it is not computed again.
struct Job {
  std::size_t entry = 0;  // of the caller: document or question
  std::vector<ScoredText> texts;
};

/// What a scorer works with; all of it outlives the scorer.
struct ScorerModel {
  plugin::Decoder& decoder;
  std::uint64_t vocab = 0;
  std::uint32_t context = 0;    // positions of a sequence; a text has at most context + 1 ids
  std::uint32_t rows = 1;       // of a forward pass
  std::uint32_t sequences = 1;  // jobs at the same time
  std::span<float> logits;      // [rows, vocab]
  std::uint32_t threads = 1;    // that turn logits into log probabilities
};

/// ln softmax(logits)[target], summed in double. Not finite if the logits are not.
double log_probability(std::span<const float> logits, std::int32_t target);

class TokenScorer {
 public:
  explicit TokenScorer(const ScorerModel& model);

  /// log_probabilities: one per scored id of text `text` of jobs[job].
  using Done =
      std::function<void(std::size_t job, std::size_t text, std::span<const double> log_probabilities)>;
  /// Scores all texts of all jobs. `done` is called once per text, in the order of the texts of a job; jobs
  /// are in any order. `progress`, which may be empty, gets the number of ids that are done after each pass.
  void run(std::span<const Job> jobs, const Done& done,
           const std::function<void(std::uint64_t ids)>& progress);

  /// Rows that were computed; less than the ids of the texts where their beginnings are shared.
  std::uint64_t computed_rows() const { return computed_rows_; }

 private:
  struct Slot;
  void begin_text(Slot& slot);
  void compute_log_probabilities(std::span<const std::int32_t> targets, std::vector<double>& out) const;

  ScorerModel m_;
  std::uint64_t computed_rows_ = 0;
};

}  // namespace trainhost::evaluation
