// See batches.hpp. Both classes are functions of the step number alone, without a position, so a resumed run
// reads the same samples.
#include "core/training/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace trainhost::training {
namespace {

/// One sample: S ids, and as targets the id after each of them. The ids are read once and shifted in memory;
/// only the last target needs a second read.
void read_sample(const data::Tokens& t, std::uint64_t sample, std::uint32_t S, std::span<std::int32_t> tokens,
                 std::span<std::int32_t> targets) {
  t.read(sample * S, tokens.first(S));
  std::copy_n(tokens.data() + 1, S - 1, targets.data());
  t.read(sample * S + S, targets.subspan(S - 1, 1));
}

}  // namespace

Batches::Batches(const data::Tokens& tokens, const runfile::RunConfig& c)
    : tokens_(tokens),
      order_(tokens.size(), c.run.seq_len, c.data.order == runfile::Order::kShuffled, c.run.seed),
      samples_per_step_(std::uint64_t{c.run.accumulate} * c.run.micro_batch),
      seq_len_(c.run.seq_len) {
  // One sample needs S + 1 tokens: the last target is the token after it.
  if (order_.samples() == 0)
    throw usage_error(
        fmt::format(
            "the training data has {} tokens, fewer than one sample of data.seq_len = {} and its last target",
            tokens.size(), seq_len_),
        "use more text or a smaller data.seq_len");
}

void Batches::fill(std::uint64_t step_index, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets) const {
  assert(tokens.size() >= samples_per_step_ * seq_len_ && targets.size() >= samples_per_step_ * seq_len_);
  // Sample k of step t is element t * samples_per_step + k of the order.
  for (std::uint64_t k = 0; k < samples_per_step_; ++k)
    read_sample(tokens_, order_.sample(step_index * samples_per_step_ + k), seq_len_,
                tokens.subspan(k * seq_len_, seq_len_), targets.subspan(k * seq_len_, seq_len_));
}

// The last sample needs a target behind it, hence - 1.
EvalBatches::EvalBatches(const data::Tokens& tokens, std::uint32_t seq_len, std::uint32_t micro_batch)
    : tokens_(tokens),
      samples_(tokens.size() ? (tokens.size() - 1) / seq_len : 0),
      seq_len_(seq_len),
      micro_batch_(micro_batch) {}

std::uint32_t EvalBatches::fill(std::uint64_t first, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  // The last batch may be smaller; 0: the data are used up.
  auto n = static_cast<std::uint32_t>(
      first < samples_ ? std::min<std::uint64_t>(micro_batch_, samples_ - first) : 0);
  for (std::uint32_t k = 0; k < n; ++k)
    read_sample(tokens_, first + k, seq_len_, tokens.subspan(std::size_t{k} * seq_len_, seq_len_),
                targets.subspan(std::size_t{k} * seq_len_, seq_len_));
  return n;
}

}  // namespace trainhost::training
