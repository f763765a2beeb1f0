// Samples of a continuous text: see stream_samples() in dataset.hpp.
#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/data/dataset.hpp"

namespace trainhost::data {
namespace {

class StreamSamples final : public Samples {
 public:
  StreamSamples(const Tokens& tokens, std::uint32_t seq_len) : tokens_(tokens), seq_len_(seq_len) {}

  /// The last token is only a target, hence - 1.
  std::uint64_t size() const override { return tokens_.size() ? (tokens_.size() - 1) / seq_len_ : 0; }

  /// The ids are read once and shifted in memory; only the last target needs a second read.
  void read(std::uint64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> positions) const override {
    assert(tokens.size() == seq_len_ && targets.size() == seq_len_);
    tokens_.read(sample * seq_len_, tokens);
    std::copy_n(tokens.data() + 1, seq_len_ - 1, targets.data());
    tokens_.read(sample * seq_len_ + seq_len_, targets.subspan(seq_len_ - 1, 1));
    std::iota(positions.begin(), positions.end(), 0);
  }

 private:
  const Tokens& tokens_;
  std::uint32_t seq_len_;
};

}  // namespace

std::unique_ptr<Samples> stream_samples(const Tokens& tokens, std::uint32_t seq_len) {
  return std::make_unique<StreamSamples>(tokens, seq_len);
}

}  // namespace trainhost::data
