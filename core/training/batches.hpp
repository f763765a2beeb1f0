// The samples of a training step. The position in the data depends on the step number alone: step t (from 1)
// takes samples (t-1)*n .. t*n-1 of the order, n = accumulate * micro_batch.
#pragma once
#include <cstdint>
#include <span>

#include "core/data/dataset.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {

class Batches {
 public:
  /// Throws usage_error when the text is too short for one sample.
  Batches(const data::Tokens& tokens, const runfile::RunConfig& c);
  /// Fills tokens and targets [n * S] of update `step_index` (from 0).
  void fill(std::uint64_t step_index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const;

 private:
  const data::Tokens& tokens_;
  data::Order order_;
  std::uint64_t per_step_;
  std::uint32_t seq_len_;
};

/// Samples of validation text one after the other, a micro-batch at a time; the last may be short.
class EvalBatches {
 public:
  EvalBatches(const data::Tokens& tokens, std::uint32_t seq_len, std::uint32_t micro_batch);
  std::uint64_t samples() const { return samples_; }
  /// Fills the batch that begins with sample `first`; returns the number of sequences in it (0 = none left).
  std::uint32_t fill(std::uint64_t first, std::span<std::int32_t> tokens,
                     std::span<std::int32_t> targets) const;

 private:
  const data::Tokens& tokens_;
  std::uint64_t samples_;
  std::uint32_t seq_len_, micro_batch_;
};

}  // namespace trainhost::training
