// See batches.hpp. Both classes are functions of the step number alone, without a position, so a resumed run
// reads the same samples.
#include "core/training/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace trainhost::training {

Batches::Batches(const data::Samples& samples, const runfile::RunConfig& c, std::uint32_t rank,
                 std::uint32_t ranks)
    : samples_(samples),
      order_([&] {
        if (samples.size() == 0)
          throw usage_error(
              fmt::format("the training data has no sample of data.seq_len = {} tokens and its last target",
                          c.run.seq_len),
              "use more text or a smaller data.seq_len");
        return data::Order::of(samples, c.data.order == runfile::Order::kShuffled, c.run.seed);
      }()),
      samples_per_step_(std::uint64_t{c.run.accumulate} * c.run.micro_batch),
      rank_(rank),
      ranks_(ranks),
      seq_len_(c.run.seq_len) {}

void Batches::fill(std::uint64_t step_index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                   std::span<std::int32_t> starts) const {
  assert(tokens.size() >= samples_per_step_ * seq_len_ && targets.size() >= samples_per_step_ * seq_len_);
  // Sample k of this rank in step t.
  const std::uint64_t first = (step_index * ranks_ + rank_) * samples_per_step_;
  for (std::uint64_t k = 0; k < samples_per_step_; ++k)
    samples_.read(order_.sample(first + k), tokens.subspan(k * seq_len_, seq_len_),
                  targets.subspan(k * seq_len_, seq_len_),
                  starts.empty() ? starts : starts.subspan(k * seq_len_, seq_len_));
}

EvalBatches::EvalBatches(const data::Samples& samples, std::uint32_t seq_len, std::uint32_t micro_batch)
    : samples_(samples), seq_len_(seq_len), micro_batch_(micro_batch) {}

std::uint32_t EvalBatches::fill(std::uint64_t first, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets, std::span<std::int32_t> starts) const {
  // The last batch may be smaller; 0: the data are used up.
  auto n = static_cast<std::uint32_t>(
      first < samples_.size() ? std::min<std::uint64_t>(micro_batch_, samples_.size() - first) : 0);
  for (std::uint32_t k = 0; k < n; ++k)
    samples_.read(first + k, tokens.subspan(std::size_t{k} * seq_len_, seq_len_),
                  targets.subspan(std::size_t{k} * seq_len_, seq_len_),
                  starts.empty() ? starts : starts.subspan(std::size_t{k} * seq_len_, seq_len_));
  return n;
}

}  // namespace trainhost::training
