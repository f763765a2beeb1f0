// Samples of a continuous text, and of several sources: see stream_samples() and joined_samples() in
// dataset.hpp.
#include <algorithm>
#include <cassert>

#include "core/data/dataset.hpp"

namespace trainhost::data {
namespace {

class StreamSamples final : public Samples {
 public:
  StreamSamples(const Tokens& tokens, std::uint32_t seq_len, std::uint64_t first, std::uint64_t count)
      : tokens_(tokens), seq_len_(seq_len), first_(first), count_(count) {}

  /// The last token is only a target, hence - 1.
  std::uint64_t size() const override { return count_ ? (count_ - 1) / seq_len_ : 0; }

  /// The ids are read once and shifted in memory; only the last target needs a second read.
  void read(std::uint64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> starts) const override {
    assert(tokens.size() == seq_len_ && targets.size() == seq_len_);
    const std::uint64_t first = first_ + sample * seq_len_;
    tokens_.read(first, tokens);
    std::copy_n(tokens.data() + 1, seq_len_ - 1, targets.data());
    tokens_.read(first + seq_len_, targets.subspan(seq_len_ - 1, 1));
    std::fill(starts.begin(), starts.end(), 0);
  }

 private:
  const Tokens& tokens_;
  std::uint32_t seq_len_;
  std::uint64_t first_, count_;
};

/// Samples of several sources, one after the other.
class JoinedSamples final : public Samples {
 public:
  JoinedSamples(std::vector<std::unique_ptr<Samples>> sources, const std::vector<double>& weights)
      : sources_(std::move(sources)) {
    assert(weights.empty() || weights.size() == sources_.size());
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      ends_.push_back(size_ += sources_[i]->size());
      if (!weights.empty()) parts_.push_back({sources_[i]->size(), weights[i]});
    }
  }
  std::uint64_t size() const override { return size_; }
  std::span<const MixturePart> parts() const override { return parts_; }
  void read(std::uint64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
            std::span<std::int32_t> starts) const override {
    assert(sample < size_);
    const auto i =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
    sources_[i]->read(i ? sample - ends_[i - 1] : sample, tokens, targets, starts);
  }

 private:
  std::vector<std::unique_ptr<Samples>> sources_;
  std::vector<std::uint64_t> ends_;  // index behind the last sample of each source
  std::vector<MixturePart> parts_;
  std::uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Samples> stream_samples(const Tokens& tokens, std::uint32_t seq_len) {
  return stream_samples(tokens, seq_len, 0, tokens.size());
}

std::unique_ptr<Samples> stream_samples(const Tokens& tokens, std::uint32_t seq_len, std::uint64_t first,
                                        std::uint64_t count) {
  assert(first + count <= tokens.size());
  return std::make_unique<StreamSamples>(tokens, seq_len, first, count);
}

std::unique_ptr<Samples> joined_samples(std::vector<std::unique_ptr<Samples>> sources,
                                        const std::vector<double>& weights) {
  return std::make_unique<JoinedSamples>(std::move(sources), weights);
}

}  // namespace trainhost::data
