// The token batches of training and evaluation. The samples depend only on the step number, so that a resumed
// run sees the same data: step t (from 0) takes samples t*N*n .. (t+1)*N*n-1 of the data order, n =
// accumulate * micro_batch; of N ranks, rank r takes the r-th n of them.
#pragma once
#include <cstdint>
#include <span>

#include "core/data/dataset.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::training {

class Batches {
 public:
  /// `samples` must outlive this. Throws usage_error if there are none.
  Batches(const data::Samples& samples, const runfile::RunConfig& c, std::uint32_t rank = 0,
          std::uint32_t ranks = 1);
  std::uint64_t samples() const { return order_.samples(); }  // of one pass over the data
  /// Fills tokens and targets, each [n * S], of this rank in optimizer step `step_index` (from 0). `starts`:
  /// the same size, or empty; see data::Samples::read().
  void fill(std::uint64_t step_index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> starts = {}) const;

 private:
  const data::Samples& samples_;
  data::Order order_;
  std::uint64_t samples_per_step_;  // of this rank
  std::uint32_t rank_, ranks_;
  std::uint32_t seq_len_;
};

/// The validation samples in order, one micro-batch at a time; the last may have fewer.
class EvalBatches {
 public:
  EvalBatches(const data::Samples& samples, std::uint32_t seq_len, std::uint32_t micro_batch);
  /// Fills the batch that begins with sample `first`; returns its number of sequences, 0 after the last
  /// sample. `starts`: as in Batches::fill().
  std::uint32_t fill(std::uint64_t first, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                     std::span<std::int32_t> starts = {}) const;

 private:
  const data::Samples& samples_;
  std::uint32_t seq_len_, micro_batch_;
};

}  // namespace trainhost::training
